"""Every label is randomized once: across requests, restarts, processes, terms and crashes."""

import itertools
import math
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from murmuration.client.labels.memory import LabelState, TermsChanged
from murmuration.client.labels.private_file import PrivateFile
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.public_items import canonical, item_id
from murmuration.preference.data.schema import Schema
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness

SYSTEM = Randomness(None)


def pair(user, item, best="a", tie=False):
    """A judgement of "a" and "b", which in canonical order are 0 and 1."""
    row = {
        "user_id": user,
        "prompt": f"p{item}",
        "chosen": best,
        "rejected": "ab".replace(best, ""),
    }
    return row | {"tie": True} if tie else row


def pairs(counts, best="a"):
    return Judgements.from_rows(
        [pair(f"u{u}", item, best) for u, count in enumerate(counts) for item in range(count)]
    )


def several(users, items, best, choices=4):
    """Judgements of K responses, the best of which has the canonical places ``best``."""
    responses = [f"r{place}" for place in range(choices)]
    return Judgements.from_rows(
        (
            {"user_id": f"u{u}", "prompt": f"p{i}", "responses": responses, "best": best}
            for u in range(users)
            for i in range(items)
        ),
        schema=Schema("top-1", choices, max_judgements=10**5),
    )


def answers(state, judgements, promise=None):
    """By user and row: what was told."""
    found = state.answer(judgements, promise or LabelPromise(20.0, cap=200), SYSTEM)
    users = np.repeat(judgements.user_ids, np.diff(found.labels.start_U))
    told = zip(users, found.rows_N, found.labels.answers_N, strict=True)
    return {(str(user), int(row)): int(answer) for user, row, answer in told}


@pytest.fixture
def state(tmp_path):
    return LabelState(tmp_path / "s")


def again(state):
    """The same file after a restart."""
    return LabelState(state._file.path)


def test_the_same_label_asked_a_hundred_times_gives_one_answer(state):
    judgements = pairs([40, 1, 25])
    first = answers(state, judgements)
    for _ in range(50):
        assert answers(state, judgements) == first
        assert answers(again(state), judgements) == first
    # Fresh coins on these labels would be other ones: the chance of the same again is 2^-44.
    assert answers(LabelState(None), judgements) != first


def test_a_part_of_the_users_and_another_order_get_the_same(state):
    judgements = pairs([6, 3, 9])
    first = state.answer(judgements, LabelPromise(1.0), SYSTEM)
    part = state.answer(judgements.select([2, 0]), LabelPromise(1.0), SYSTEM)
    assert part.fresh == 0
    cuts = first.labels.start_U
    expected = [*first.labels.answers_N[cuts[2] : cuts[3]], *first.labels.answers_N[: cuts[1]]]
    assert part.labels.answers_N.tolist() == expected
    assert part.labels.per_label_U.tolist() == [1.0 / 9, 1.0 / 6]


def test_whichever_side_is_listed_first_and_a_changed_mind_get_the_same(state):
    first = answers(state, pairs([200]))
    assert answers(state, pairs([200], best="b")) == first
    assert {0, 1} == set(first.values())


@pytest.mark.parametrize(
    "terms",
    [
        LabelPromise(2.0),
        LabelPromise(0.5),
        LabelPromise(1.0, cap=5),
        LabelPromise(1.0, delta=1e-5),
    ],
)
def test_other_terms_are_refused(state, terms):
    judgements = pairs([5, 2])
    first = answers(state, judgements, LabelPromise(1.0))
    before = state._file.path.read_bytes()
    with pytest.raises(TermsChanged, match="told once with epsilon 1, and are not"):
        again(state).answer(judgements, terms, SYSTEM)
    # One user's former terms are enough, and nobody else is told either.
    with pytest.raises(TermsChanged):
        state.answer(pairs([5, 2, 8]), terms, SYSTEM)
    assert state._file.path.read_bytes() == before
    assert answers(state, judgements, LabelPromise(1.0)) == first


def test_others_may_have_other_terms(state):
    state.answer(pairs([3]), LabelPromise(1.0), SYSTEM)
    other = Judgements.from_rows([pair("somebody else", 1)])
    assert state.answer(other, LabelPromise(2.0), SYSTEM).fresh == 1


def test_a_damaged_state_answers_nothing(state):
    state.answer(pairs([2]), LabelPromise(1.0), SYSTEM)
    data = bytearray(state._file.path.read_bytes())
    data[-4] ^= 1
    state._file.path.write_bytes(data)
    for ask in (lambda: state.answer(pairs([2]), LabelPromise(1.0), SYSTEM), state.spends):
        with pytest.raises(InputError, match="is damaged, so nothing is answered"):
            ask()


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_crash_while_writing(state, monkeypatch, at):
    judgements = pairs([60])
    asked = []
    real = Path.replace

    def replace(path, target):
        asked.append(path.read_bytes())
        if at == "after":
            real(path, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        answers(state, judgements)
    monkeypatch.undo()
    found = again(state).answer(judgements, LabelPromise(20.0, cap=200), SYSTEM)
    # Either the coins were never seen by anybody, or they are the ones that count.
    assert found.fresh == (60 if at == "before" else 0)
    assert (state._file.path.read_bytes() == asked[0]) == (at == "after")


def test_answers_that_could_not_be_kept_are_not_handed_out(state, monkeypatch):
    first = answers(state, pairs([3]))

    def full(*_):
        raise InputError("the disk is full")

    monkeypatch.setattr(PrivateFile, "write", full)
    with pytest.raises(InputError, match="full"):
        answers(state, pairs([4]))
    # What needs no coins needs no disk.
    assert answers(state, pairs([3])) == first


def _ask_in_a_process(path, queue):
    queue.put(answers(LabelState(path), pairs([30, 30])))


def test_processes_that_ask_at_once_get_the_same(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [
        context.Process(target=_ask_in_a_process, args=(tmp_path / "s", queue)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    found = [queue.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert all(answer == found[0] for answer in found)


def test_an_item_that_recurs_is_several_labels(state):
    rows = [pair("u", 1, "a"), pair("u", 1, "b"), pair("u", 2), *[pair("u", 1)] * 98]
    judgements = Judgements.from_rows(rows)
    found = state.answer(judgements, LabelPromise(1.0), SYSTEM)
    assert found.labels.per_label_U[0] == pytest.approx(1 / 101)
    assert len(set(found.labels.items_N.tolist())) == 2
    assert len(found.rows_N) == 101
    # Coins of their own: 100 equal answers at almost even odds would be a miracle.
    one = found.labels.answers_N[found.labels.items_N == item_id("p1", ("a", "b"))]
    assert 20 < one.sum() < 80
    assert answers(state, judgements, LabelPromise(1.0)) == answers(
        again(state), judgements, LabelPromise(1.0)
    )


def test_new_judgements_are_told_while_there_is_room(state):
    promise = LabelPromise(2.5, cap=5)
    first = state.answer(pairs([3]), promise, SYSTEM)
    assert first.labels.per_label_U.tolist() == [0.5]
    later = state.answer(pairs([9]), promise, SYSTEM)
    assert (later.fresh, len(later.rows_N)) == (2, 5)
    assert later.labels.per_label_U.tolist() == [0.5]
    kept = dict(zip(first.labels.items_N, first.labels.answers_N, strict=True))
    told = dict(zip(later.labels.items_N, later.labels.answers_N, strict=True))
    assert kept.items() <= told.items()
    assert state.answer(pairs([20]), promise, SYSTEM).fresh == 0


def test_without_a_cap_a_budget_is_spent_at_first(state):
    state.answer(pairs([4]), LabelPromise(2.0), SYSTEM)
    later = state.answer(pairs([7]), LabelPromise(2.0), SYSTEM)
    assert (later.fresh, len(later.rows_N)) == (0, 4)


def test_which_labels_are_kept_does_not_depend_on_labels_or_their_order():
    promise = LabelPromise(2.0, cap=4)
    shown = [(f"p{i}", label) for i, label in enumerate("abababababab")]
    kept = set()
    for labels in ("".join(label for _, label in shown), "a" * 12, "b" * 12):
        for order in (range(12), reversed(range(12))):
            rows = [pair("u", i, labels[i]) for i in order]
            judgements = Judgements.from_rows(rows)
            found = LabelState(None).answer(judgements, promise, SYSTEM)
            kept.add(tuple(found.labels.items_N.tolist()))
    assert len(kept) == 1
    assert len(kept.pop()) == 4
    # Another user keeps others: what is asked most is not all that is told.
    others = {
        tuple(
            LabelState(None)
            .answer(Judgements.from_rows([pair(f"u{u}", i) for i in range(12)]), promise, SYSTEM)
            .labels.items_N.tolist()
        )
        for u in range(5)
    }
    assert len(others) > 1


def test_rows_and_items_are_those_of_the_judgements(state):
    judgements = pairs([5, 3])
    found = state.answer(judgements, LabelPromise(1.0), SYSTEM)
    assert sorted(found.rows_N) == list(range(8))
    for row, item in zip(found.rows_N, found.labels.items_N, strict=True):
        assert item == item_id(judgements.prompts[row], judgements.responses[row])
    assert found.labels.start_U.tolist() == [0, 5, 8]


@pytest.mark.parametrize("per_node", [1, 4, 15])
def test_a_seeded_simulation_is_the_same_for_any_grouping(per_node):
    judgements, promise = pairs([3, 8, 1] * 5), LabelPromise(1.0, cap=6)
    whole = LabelState(None).answer(judgements, promise, Randomness(7))
    parts = [
        LabelState(None).answer(judgements.select(users), promise, Randomness(7)).labels.answers_N
        for users in np.array_split(np.arange(15)[::-1], 15 // per_node)
        for users in [users[::-1]]
    ][::-1]
    assert np.concatenate(parts).tolist() == whole.labels.answers_N.tolist()
    other = LabelState(None).answer(judgements, promise, Randomness(8))
    assert other.labels.answers_N.tolist() != whole.labels.answers_N.tolist()


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("best", ["a", "b"])
def test_pairs_are_flipped_as_often_as_promised(epsilon, best):
    judgements = pairs([150] * 200, best)
    found = LabelState(None).answer(judgements, LabelPromise(150 * epsilon), Randomness(11))
    count, p = len(found.rows_N), 1 / (math.exp(epsilon) + 1)
    flipped = (found.labels.answers_N != "ab".index(best)).sum()
    assert abs(flipped - count * p) < 4 * math.sqrt(count * p * (1 - p))
    np.testing.assert_allclose(found.labels.flips_N, p, rtol=1e-12)


@pytest.mark.parametrize(("best", "tied"), [(2, (2,)), ([0, 3], (0, 3)), ([0, 1, 2, 3], range(4))])
def test_the_best_of_several_is_told_as_often_as_promised(best, tied):
    judgements = several(200, 150, best)
    found = LabelState(None).answer(judgements, LabelPromise(150.0), Randomness(12))
    count = len(found.rows_N)
    expected = RandomizedResponse(1.0, 4).matrix()[list(tied)].mean(axis=0)
    counts = np.bincount(found.labels.answers_N, minlength=4)
    bound = 4 * np.sqrt(count * expected * (1 - expected))
    assert (np.abs(counts - count * expected) < bound).all()
    # The unbiased soft label is so on average: even among those that tie.
    p = found.labels.flips_N[0]
    soft = (counts / count - p / 3) / (1 - p - p / 3)
    even = np.isin(np.arange(4), list(tied)) / len(tied)
    np.testing.assert_allclose(soft, even, atol=0.05)


def test_a_tied_pair_is_told_as_either_side():
    rows = [pair("u", item, best, tie=True) for item in range(20_000) for best in "ab"[item % 2]]
    judgements = Judgements.from_rows(rows, schema=Schema(max_judgements=20_000))
    found = LabelState(None).answer(judgements, LabelPromise(60_000.0), Randomness(13))
    assert abs(found.labels.answers_N.sum() - 10_000) < 4 * math.sqrt(5_000)
    assert set(found.labels.flips_N.tolist()) == {RandomizedResponse(3.0).flip_probability}


def test_answers_are_places_in_canonical_order(state):
    judgements = several(1, 400, best=1, choices=3)
    found = state.answer(judgements, LabelPromise(12_000.0), SYSTEM)
    for row, answer in zip(found.rows_N, found.labels.answers_N, strict=True):
        assert canonical(judgements.responses[row])[answer] == "r1"


def test_users_with_different_numbers_of_responses(state):
    rows = [
        {"user_id": "u", "prompt": "p", "responses": ["a", "b", "c"], "best": 0},
        {"user_id": "u", "prompt": "p", "responses": ["a", "b"], "best": 0},
    ]
    judgements = Judgements.from_rows(rows, schema=Schema("top-1", 3))
    found = state.answer(judgements, LabelPromise(2.0), SYSTEM)
    expected = {RandomizedResponse(1.0, k).flip_probability for k in (2, 3)}
    assert set(found.labels.flips_N.tolist()) == expected


def test_labels_that_cannot_be_told(state):
    rankings = Judgements.from_rows(
        [{"user_id": "u", "prompt": "p", "responses": ["a", "b", "c"], "ranking": [2, 1, 3]}],
        schema=Schema("ranking", 3),
    )
    with pytest.raises(InputError, match="a whole ranking is no single label"):
        state.answer(rankings, LabelPromise(1.0), SYSTEM)
    judgements = pairs([2])
    noisy = Judgements(
        **{name: getattr(judgements, name) for name in ("user_ids", "start_U", "prompts")},
        responses=judgements.responses,
        y_R=judgements.y_R,
        flip_R=np.full(2, 0.25),
    )
    with pytest.raises(InputError, match="randomized already"):
        state.answer(noisy, LabelPromise(1.0), SYSTEM)
    with pytest.raises(ValueError, match="at least 1e-09"):
        state.answer(judgements, LabelPromise(1e-9), SYSTEM)
    assert not state._file.path.exists()


@pytest.mark.parametrize("promise", [LabelPromise(1.0), LabelPromise(1.0, cap=2)])
def test_a_user_without_judgements_tells_nothing_and_stops_nobody(state, promise):
    """Whose rows cannot be used has none; the others' labels must not depend on that."""
    row = {"user_id": "a", "prompt": "p", "chosen": "x", "rejected": "y"}
    one = Judgements.from_rows([row])
    both = replace(one, user_ids=("a", "z"), start_U=np.array([0, 1, 1]))
    alone = LabelState(None).answer(one, promise, Randomness(0)).labels
    found = state.answer(both, promise, Randomness(0)).labels
    assert found.start_U.tolist() == [0, 1, 1]
    assert found.answers_N.tolist() == alone.answers_N.tolist()
    assert [spend.user_id for spend in state.spends()] == ["a"]
    later = Judgements.from_rows([row, {**row, "user_id": "z"}])
    assert np.diff(state.answer(later, promise, Randomness(0)).labels.start_U).tolist() == [1, 1]


def test_a_user_sees_what_they_spent(state):
    state.answer(pairs([3, 1]), LabelPromise(2.0, cap=4), SYSTEM)
    state.answer(Judgements.from_rows([pair("v", 1)] * 3), LabelPromise(1.5), SYSTEM)
    spends = {spend.user_id: spend for spend in again(state).spends()}
    assert list(spends) == ["u0", "u1", "v"]
    assert [spend.epsilon for spend in spends.values()] == pytest.approx([1.5, 0.5, 1.5])
    assert [spend.labels for spend in spends.values()] == [4, 4, 3]
    item = f"{item_id('p1', ('a', 'b')):016x}"
    assert spends["v"].items == (item, f"{item}.1", f"{item}.2")
    assert item in spends["u0"].items
    for a, b in itertools.pairwise(spends["u0"].items):
        assert a < b


def test_what_is_remembered_of_a_delta(state):
    promise = LabelPromise(3.0, delta=1e-5)
    found = state.answer(pairs([50]), promise, SYSTEM)
    assert found.labels.per_label_U[0] == pytest.approx(0.105, abs=5e-4)
    (spend,) = state.spends()
    assert spend.epsilon == pytest.approx(3.0, rel=1e-6)
