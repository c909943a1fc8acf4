"""A promise is a set: no order, repetition, prefix, fork or regrouping of runs changes what it is,
and nothing that is put together loses a run or a caveat."""

import itertools
import math
import shutil
from dataclasses import replace
from decimal import Decimal
from functools import reduce

import pytest
from damage import rewrite
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import chained_record
from murmuration.privacy.accounting.chained_record import Head, head_path
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger, LedgerError, LedgerLoss
from murmuration.privacy.accounting.terms import Caveat, RunTerms, Trust, Unit, new_run_id
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import (
    Promise,
    ReleasedRun,
    combined,
    delta_text,
    epsilon_text,
)

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE
EVENT = PoissonGaussian(0.5, 1.0)


def made(epsilon=1.0, population="", disjoint_from=(), caveats=(), run=None, adjacency=ADD, **more):
    """A run, without a ledger that could be read."""
    run = new_run_id() if run is None else run
    terms = RunTerms(
        run, population=population, disjoint_from=frozenset(disjoint_from),
        caveats=frozenset(caveats), trust=Trust.SERVER, **more,
    )  # fmt: skip
    head = Head(1, f"{abs(hash((run, epsilon))):064x}"[-64:])
    return ReleasedRun(
        terms=terms,
        adjacency=adjacency,
        delta=1e-5,
        epsilon=epsilon,
        head=head,
        heads=(Head(0, "0" * 64), head),
    )


def history(run, words):
    """A run whose ledger has a line for each letter; prefixes of words are its earlier states."""
    heads = [Head(0, "0" * 64)]
    for place in range(1, len(words) + 1):
        text = f"{run}{words[:place]}"
        heads.append(Head(place, f"{abs(hash(text)):064x}"[-64:]))
    terms = RunTerms(run, caveats=frozenset())
    return ReleasedRun(
        terms=terms,
        adjacency=ADD,
        delta=1e-5,
        epsilon=float(len(words)),
        head=heads[-1],
        heads=tuple(heads),
    )


def figures(*runs):
    return [(row.populations, row.epsilon, row.runs) for row in Promise(runs).composed]


IDS = [f"{n:032x}" for n in range(1, 5)]
LINEAGES = st.lists(
    st.builds(
        history, st.sampled_from(IDS), st.text(alphabet="ab", min_size=1, max_size=5)
    ),
    min_size=1, max_size=7,
)  # fmt: skip


@given(LINEAGES, st.randoms(use_true_random=False), st.integers(1, 5))
def test_no_order_repetition_or_regrouping_changes_a_promise(runs, random, groups):
    expected = Promise(tuple(runs))
    shuffled = [*runs, *random.choices(runs, k=3)]
    random.shuffle(shuffled)
    parts = [Promise(tuple(shuffled[place::groups])) for place in range(groups)]
    assert reduce(lambda one, other: one | other, parts, Promise()) == expected
    assert expected | expected == expected
    assert expected | Promise() == expected
    assert combined(parts).to_json() == expected.to_json()


@given(LINEAGES)
def test_prefixes_merge_and_forks_add(runs):
    """Against a count by hand: of each run the words that no other goes on from."""
    words = {}
    for run in runs:
        words.setdefault(run.terms.run, set()).add(
            "".join("?" for _ in run.heads[1:]) and tuple(h.hash for h in run.heads[1:])
        )
    longest = [
        word
        for mine in words.values()
        for word in mine
        if not any(other != word and other[: len(word)] == word for other in mine)
    ]
    promise = Promise(tuple(runs))
    assert promise.epsilon == sum(len(word) for word in longest)
    assert promise.delta == pytest.approx(1e-5 * len(longest))


@given(st.lists(st.tuples(
    st.floats(0.1, 5.0), st.sampled_from(["", "a", "b", "c"]),
    st.sets(st.sampled_from(IDS)), st.sets(st.sampled_from(list(Caveat))),
), min_size=1, max_size=4), st.data())  # fmt: skip
def test_more_runs_never_cost_less_nor_lose_a_caveat(drawn, data):
    runs = tuple(
        made(epsilon, population, disjoint, caveats, run)
        for run, (epsilon, population, disjoint, caveats) in zip(IDS, drawn, strict=False)
    )
    some = tuple(data.draw(st.permutations(runs))[: data.draw(st.integers(0, len(runs)))])
    part, whole = Promise(some), Promise(runs)
    assert part.caveats <= whole.caveats
    assert {run.name for run in part.counted} <= {run.name for run in whole.counted}
    if part.epsilon is not None:
        assert whole.epsilon is not None and whole.epsilon >= part.epsilon - 1e-12
    # By hand: the dearest set of runs that one person can have been in.
    most = max(
        math.fsum(run.epsilon for run in chosen)
        for size in range(1, len(runs) + 1)
        for chosen in itertools.combinations(runs, size)
        if all(one.can_share_people(other) for one, other in itertools.combinations(chosen, 2))
    )
    assert whole.epsilon == pytest.approx(most, rel=1e-12)


def test_disjoint_is_said_of_the_runs_that_it_names_and_of_no_others():
    one, other = made(1.0, "a"), made(2.0, "b")
    apart = made(2.0, "b", [one.terms.run])
    assert figures(one, apart) == [(("a",), 1.0, 1), (("b",), 2.0, 1)] == figures(apart, one)
    assert Promise((one, apart)).epsilon == 2.0
    # Said about no run, or about another one, it is not kept for these.
    for stated in ([], [new_run_id()]):
        said = made(2.0, "b", stated)
        for order in ((one, said), (said, one)):
            assert Promise(order).epsilon == 3.0
            assert figures(*order)[-1] == (("a", "b"), 3.0, 2)
    # Nobody was in a run of its own population only.
    assert Promise((one, made(1.0, "a", [one.terms.run]))).epsilon == 2.0
    # Whom nobody named may be in each.
    assert figures(one, apart, made(4.0)) == [(("a",), 5.0, 2), (("b",), 6.0, 2)]
    assert figures(one, other)[-1] == (("a", "b"), 3.0, 2)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (made(adjacency=REPLACE), "adjacencies differ"),
        (made(None), "promised users nothing"),
        (made(unit=Unit.ROW), "different units"),
        (made(None, caveats=[Caveat.NOT_PROVEN]), "promised users nothing"),
    ],
)
def test_where_there_is_no_figure_there_is_none(other, why):
    promise = Promise((made(), other))
    assert promise.epsilon is None and promise.delta is None and not promise.private
    assert why in promise.statement
    assert why in promise.composed[0].why


def test_runs_that_protect_different_units_are_told_beside_each_other():
    rows = made(1.0, unit=Unit.ROW, caveats=[Caveat.SEEDED])
    whole = Promise((made(3.0), made(2.0), rows))
    assert whole.epsilon is None and not whole.private
    assert whole.statement == (
        "User-level DP: ε = 5.00, δ = 2e-5, add-remove; and, by other runs, Row-level DP: ε = 1.00,"
        " δ = 1e-5, add-remove (simulation, seed known) (the runs protect different units: no "
        "figure is about all of them)"
    )
    # A part without a figure leaves no guarantee to name.
    for other in (made(None, unit=Unit.NOBODY), made(1.0, adjacency=REPLACE)):
        assert (whole | Promise((other,))).statement.startswith("No privacy guarantee: ")


def test_a_known_seed_follows_every_figure():
    promise = Promise((made(3.0), made(1.0, caveats=[Caveat.SEEDED])))
    assert promise.epsilon == 4.0 and not promise.private
    assert promise.to_json()["private"] is False
    assert promise.statement == (
        "User-level DP: ε = 4.00, δ = 2e-5, add-remove (simulation, seed known)"
    )
    assert "seed known" in str(promise).partition("caveats")[2]
    assert Promise((made(3.0),)).statement == "User-level DP: ε = 3.00, δ = 1e-5, add-remove"
    assert str(Promise((made(3.0),))).endswith("caveats: none")
    assert Promise((made(3.0),)).private


def test_units_are_named():
    assert Promise((made(unit=Unit.ROW),)).statement.startswith("Row-level DP: ε = 1.00")
    assert Promise((made(None, unit=Unit.NOBODY),)).statement.startswith("No privacy: exact")
    assert "declared public" in Promise().declared_public().statement
    assert Promise().declared_public().public


def test_an_unknown_caveat_is_kept_and_told():
    promise = Promise((made(caveats=["of the year 2031"]),)) | Promise((made(),))
    assert "of the year 2031" in promise.caveats
    assert promise.sentences == ["A caveat of another version: of the year 2031."]


TERMS = {"adjacency": ADD, "delta": 1e-5, "budget": None}


def charged(path, rounds, terms=None, seeded=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    with Ledger(path, **TERMS, terms=terms) as ledger:
        for round_ in range(len(ledger.charges) + 1, rounds + 1):
            ledger.charge(EVENT, round_=round_, covers="a sum", seeded=seeded)
    return path


def plain(**more):
    return RunTerms(**{"caveats": frozenset(), "trust": Trust.SERVER, **more})


def test_two_runs_side_by_side_are_two(tmp_path):
    """Same settings, same second, same charges: their ledgers were the same bytes once."""
    one, other = (charged(tmp_path / name / "ledger.jsonl", 3, plain()) for name in "ab")
    first, second = ReleasedRun.read(one), ReleasedRun.read(other)
    assert first.head != second.head and first.epsilon == second.epsilon
    assert Promise((first, second)).epsilon == 2 * first.epsilon
    assert Promise((first, ReleasedRun.read(one))).epsilon == first.epsilon


def test_a_copied_folder_that_goes_on_is_one_run_and_two_where_both_do(tmp_path):
    path = charged(tmp_path / "run" / "ledger.jsonl", 2, terms := plain())
    early = ReleasedRun.read(path)
    shutil.copytree(path.parent, tmp_path / "copy")
    charged(tmp_path / "copy" / "ledger.jsonl", 4, terms)
    copied = ReleasedRun.read(tmp_path / "copy" / "ledger.jsonl")
    assert copied.goes_on_from(early)
    assert Promise((early, copied)).epsilon == Promise((copied,)).epsilon
    with Ledger(path, **TERMS, terms=terms) as ledger:  # another round than the copy's
        ledger.charge(PoissonGaussian(0.5, 2.0), round_=3, covers="a sum")
    forked = ReleasedRun.read(path)
    assert forked.terms.run == copied.terms.run
    both = Promise((early, copied, forked))
    assert both.epsilon == pytest.approx(copied.epsilon + forked.epsilon)


def test_copies_of_a_folder_that_go_on_alike_are_two(tmp_path):
    """The same rounds in the same second: their lines were the same bytes once."""
    path = charged(tmp_path / "run" / "ledger.jsonl", 1, terms := plain())
    shutil.copytree(path.parent, tmp_path / "copy")
    both = [charged(run, 3, terms) for run in (path, tmp_path / "copy" / "ledger.jsonl")]
    one, other = map(ReleasedRun.read, both)
    assert one.terms.run == other.terms.run and one.epsilon == other.epsilon
    assert len(Promise((one, other)).counted) == 2
    assert Promise((one, other)).epsilon == 2 * one.epsilon


def test_another_runs_ledger_is_refused(tmp_path):
    mine = charged(tmp_path / "mine" / "ledger.jsonl", 1, terms := plain())
    other = charged(tmp_path / "other" / "ledger.jsonl", 3, plain())
    for name in (other, head_path(other)):
        shutil.copy(name, mine.parent)
    with pytest.raises(LedgerLoss, match="ledger of another run"):
        Ledger(mine, **TERMS, terms=terms)


def test_a_ledger_says_what_its_run_said_whoever_opens_it(tmp_path):
    terms = plain(
        population="town", disjoint_from=frozenset({IDS[0]}), unit=Unit.ROW,
        caveats=frozenset({Caveat.SHARED_PASSES.value}), trust=Trust.OWN_NODE,
    )  # fmt: skip
    path = charged(tmp_path / "run" / "ledger.jsonl", 1, terms)
    run = ReleasedRun.read(path)
    assert run.terms == terms
    # Opened by a program that says nothing, it loses nothing; what comes up later is added.
    with Ledger(path, **TERMS) as ledger:
        ledger.note(Caveat.NOT_PROVEN)
        ledger.note(Caveat.NOT_PROVEN)
    assert len(path.read_bytes().splitlines()) == 3
    after = ReleasedRun.read(path)
    assert after.terms.caveats == terms.caveats | {Caveat.NOT_PROVEN}
    assert after.epsilon is None
    with Ledger(path, **TERMS, terms=replace(terms, caveats=frozenset({"new"}))) as ledger:
        assert ledger.terms.caveats == after.terms.caveats | {"new"}


@pytest.mark.parametrize("caveat", [Caveat.NOT_PROVEN, Caveat.UNCHARGED])
def test_a_word_alone_takes_the_figure_away(tmp_path, caveat):
    path = charged(tmp_path / "run" / "ledger.jsonl", 1, plain(caveats=frozenset({caveat.value})))
    assert ReleasedRun.read(path).epsilon is None


def test_what_a_ledgers_lines_show_needs_no_word(tmp_path):
    """A seed shows in what it drew: no header can hide it."""
    path = charged(tmp_path / "run" / "ledger.jsonl", 2, plain(), seeded=True)
    assert ReleasedRun.read(path).terms.caveats == {Caveat.SEEDED}


@pytest.mark.parametrize(
    "changes",
    [
        {"run": ""},
        {"run": 5},
        {"unit": "label"},
        {"population": "a\u202e"},
        {"population": "a\n# Nothing was spent"},
        {"caveats": "none"},
        {"caveats": ["\x1b[2K"]},
        {"disjoint_from": {}},
    ],
)
def test_a_first_line_that_no_run_wrote_is_refused(tmp_path, changes):
    path = charged(tmp_path / "run" / "ledger.jsonl", 1, plain())
    first, *rest = chained_record.read(path).lines
    rewrite(path, [{**first, **changes}, *rest])
    with pytest.raises(LedgerError, match=r"ledger\.jsonl:1: not the first line of a ledger"):
        ReleasedRun.read(path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_charges_that_cannot_be_composed_are_refused_in_a_line(tmp_path):
    path = charged(tmp_path / "run" / "ledger.jsonl", 1, plain())
    first, charge = chained_record.read(path).lines
    event = {**charge["event"], "noise_multiplier": 1e-300}
    rewrite(path, [first, {**charge, "event": event}])
    with pytest.raises(LedgerError, match="its charges cannot be composed"):
        ReleasedRun.read(path)


def test_many_disjoint_runs_are_counted_in_time():
    """Sixty runs, pairwise as awkward as they can be: no more than all of them is ever said."""
    runs = [made(1.0, f"p{n}", [f"{k:032x}" for k in range(n)], run=f"{n:032x}") for n in range(60)]
    assert Promise(tuple(runs)).epsilon == 1.0
    thirds = [
        made(1.0, f"p{n}", [f"{k:032x}" for k in range(n - n % 3, n)], run=f"{n:032x}")
        for n in range(60)
    ]
    assert Promise(tuple(thirds)).epsilon == 60.0  # 3 to the 20th sets: all runs are added
    assert Promise(tuple(thirds[:12])).epsilon == 4.0


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (2.9914, "3.00"),
        (2.99, "2.99"),
        (3.0, "3.00"),
        (0.1 + 0.2, "0.300"),
        (1.0, "1.00"),
        (0.9999, "1.000"),
        (0.01234, "0.0124"),
        (12.31, "12.4"),
        (123.4, "124"),
        (1234.5, "1235"),
        (0.0, "0"),
        (float("inf"), "∞"),
    ],
)
def test_epsilon_is_rounded_up(epsilon, text):
    assert epsilon_text(epsilon) == text


@given(st.floats(1e-6, 1e6))
def test_epsilon_is_never_understated_and_hardly_overstated(epsilon):
    shown = float(Decimal(epsilon_text(epsilon)))
    assert epsilon * (1 - 1e-9) <= shown <= epsilon * 1.0101


@pytest.mark.parametrize(
    ("delta", "text"),
    [(1e-5, "1e-5"), (2.5e-6, "2.5e-6"), (0.02, "0.02"), (1e-10, "1e-10"), (0.001, "0.001")],
)
def test_delta_looks_as_it_is_typed(delta, text):
    assert delta_text(delta) == text


@given(st.floats(1e-30, 0.999))
def test_delta_can_be_read_back(delta):
    assert float(delta_text(delta)) == pytest.approx(delta, rel=1e-4)
