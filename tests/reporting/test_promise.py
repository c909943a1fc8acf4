"""A promise as cards and programs are told it: never smaller, never without its caveats."""

import math

import pytest

from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.accounting.terms import Caveat, RunTerms, Trust, Unit
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun, earlier_runs
from murmuration.reporting.promise import (
    audited,
    details,
    paragraphs,
    table,
)


def made(epsilon=3.0, delta=1e-5, adjacency="add-remove", number=1, **terms):
    given = {"caveats": frozenset(), "trust": Trust.SERVER, **terms}
    head = Head(number, f"{number:064x}")
    return ReleasedRun(
        terms=RunTerms(**given),
        adjacency=Adjacency(adjacency),
        delta=delta,
        epsilon=epsilon,
        head=head,
    )


def test_of_a_run():
    told = details(Promise((made(1.0),)), sampling="Each took part")
    assert told["unit"] == "a user, with all their judgements"
    assert (told["epsilon"], told["delta"], told["sampling"]) == (1.0, 1e-5, "Each took part")
    allowed = math.e * 0.01 + 1e-5
    assert allowed <= told["attack"]["tpr_at_1_percent_fpr"] < allowed + 1e-3
    # Its own curve says less; of two runs together only the point is known.
    own = {
        "second_opinion": None,
        "attack": {"tpr_at_1_percent_fpr": 0.02, "tpr_at_0_1_percent_fpr": 0.003, "gdp_mu": 0.3},
    }
    assert details(Promise((made(1.0),)), result=own)["attack"] == own["attack"]
    both = details(Promise((made(1.0), made(1.0, number=2))), result=own)["attack"]
    assert both["tpr_at_1_percent_fpr"] >= math.exp(2) * 0.01
    assert "sums before noise" in told["trust"]
    assert told["audit"].startswith("none")
    assert told["private"] is True


def test_figures_are_never_smaller_than_they_are():
    told = details(Promise((made(2.99984),)))
    assert told["epsilon"] >= 2.99984
    assert "| ε | 3.00 |" in table(told)


@pytest.mark.parametrize(
    ("run", "unit", "epsilon"),
    [
        (made(None, unit=Unit.NOBODY), "nobody", None),
        (made(None, caveats=frozenset({Caveat.NOT_PROVEN.value})), "a user", None),
        (made(unit=Unit.ROW), "a single row", 3.0),
    ],
)
def test_whom_it_is_for(run, unit, epsilon):
    told = details(Promise((run,)))
    assert unit in told["unit"] and told["epsilon"] == epsilon
    assert ("| ε |" in table(told)) == (epsilon is not None)
    assert (told["attack"] is None) == (epsilon is None)


def test_a_known_seed_is_said_beside_every_figure():
    promise = Promise((made(caveats=frozenset({Caveat.SEEDED.value})),))
    told, shown = details(promise), table(details(promise))
    assert told["private"] is False
    for line in shown.splitlines():
        if "3.00" in line or "TPR" in line:
            assert "(simulation, seed known)" in line
    for text in paragraphs(promise):
        assert "ε =" not in text or "(simulation, seed known)" in text


def test_of_two_runs_the_seed_of_one_is_said_beside_every_figure_of_it():
    seeded = made(2.0, number=2, run="ab" * 16, caveats=frozenset({Caveat.SEEDED.value}))
    promise = Promise((made(3.0), seeded))
    assert "ε = 5.00" in details(promise)["together"]
    assert details(promise)["together"].endswith("(simulation, seed known)")
    runs = next(text for text in paragraphs(promise) if text.startswith("Runs: "))
    for text in runs.split("; "):
        assert ("ε = 2.00" in text) == ("(simulation, seed known)" in text)


def test_every_caveat_is_told_in_words_wherever_a_promise_is():
    caveats = frozenset(map(str, Caveat))
    promise = Promise((made(caveats=caveats - {"not proven"}),))
    for caveat in promise.caveats:
        assert Caveat(caveat).sentence in paragraphs(promise)
        assert caveat in table(details(promise))


@pytest.mark.parametrize("trust", list(Trust))
def test_who_is_trusted(trust):
    assert trust.sentence in details(Promise((made(trust=trust),)))["trust"]


def test_runs_together():
    own = made(1.0, 1e-6, number=2)
    promise = Promise((made(), own))
    told = details(promise)
    assert (told["epsilon"], told["delta"]) == (4.0, pytest.approx(1.1e-5))
    assert told["accountant"].startswith("basic composition of 2 runs")
    assert "ε = 4.00, δ = 1.1e-5 in 2 runs together" in told["together"]
    (text,) = earlier_runs(promise, own, "THE BASE WAS")
    assert text.startswith("THE BASE WAS TRAINED ON USERS, TOO, by 1 earlier run: for whoever")
    assert earlier_runs(Promise((own,)), own, "THE BASE WAS") == []
    nothing = details(Promise((made(), made(None, number=2))))
    assert nothing["epsilon"] is None and nothing["attack"] is None
    assert "declared public" in details(Promise().declared_public())["statement"]


def test_where_there_is_no_figure_none_is_made_up():
    first, *rest = paragraphs(Promise((made(), made(1.0, adjacency="replace", number=2))))
    assert first == "**No privacy guarantee: the runs' adjacencies differ.**"
    assert "1e-5, add-remove, pop" in " ".join(rest) and "1e-5, replace, pop" in " ".join(rest)


def test_an_audit_is_told_as_one_of_the_mechanism():
    row = {"target": "uls", "epsilon_lower": 0.81, "epsilon_claimed": 1.0, "confidence": 0.95}
    assert "at least 0.81 with 95% confidence, where 1 is claimed: of uls" in audited(row)


def test_a_cell_moves_no_terminal():
    row = {"epsilon_lower": 1, "confidence": 0.9, "epsilon_claimed": 1, "target": "a\x1b[2K\u202e"}
    shown = table(details(Promise((made(),)), audit=audited(row)))
    assert "\x1b" not in shown and "\u202e" not in shown


def test_a_cell_cannot_break_the_table():
    told = details(Promise((made(),)), sampling="one | two\n\n# three")
    assert "| sampling | one / two # three |" in table(told).splitlines()
