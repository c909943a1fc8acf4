"""What users were promised, in figures."""

import math

import pytest

from murmuration.server.lineage import Lineage, Trained
from murmuration.server.reporting.promise import audited, of_lineage, of_result, table


def test_of_a_run(make_result):
    told = of_result(make_result(epsilon=1.0, delta=1e-5, account="Each took part. Then noise."))
    assert told["unit"] == "a user, with all their judgements"
    assert (told["epsilon"], told["delta"], told["sampling"]) == (1.0, 1e-5, "Each took part")
    allowed = math.e * 0.01 + 1e-5
    assert allowed <= told["true_positive_rate_at_most"] < allowed + 1e-3
    assert told["false_positive_rate"] == 0.01
    assert "sums before noise" in told["trust"]
    assert told["audit"].startswith("none")


def test_figures_are_never_smaller_than_they_are(make_result):
    told = of_result(make_result(epsilon=2.99984))
    assert told["epsilon"] >= 2.99984
    assert "| ε | 3.00 |" in table(told)


@pytest.mark.parametrize(
    ("changes", "unit", "epsilon"),
    [
        ({"private": False}, "nobody", None),
        ({"proven": False}, "claimed, not proven", None),
        ({"privacy_level": "item"}, "a single judgement", 3.0),
        ({"one_user_per_row": True}, "a single row", 3.0),
    ],
)
def test_whom_it_is_for(make_result, changes, unit, epsilon):
    told = of_result(make_result(epsilon=3.0, **changes) | changes)
    assert unit in told["unit"] and told["epsilon"] == epsilon
    assert ("| ε |" in table(told)) == (epsilon is not None)
    assert (told["true_positive_rate_at_most"] is None) == (epsilon is None)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strategy": "local-label"}, "sees no true label"),
        ({"secure_aggregation": True}, "sums of all nodes before noise"),
        ({"secure_aggregation": True, "noise_parties": 3}, "3 nodes of each sum"),
    ],
)
def test_who_is_trusted(make_result, changes, said):
    assert said in of_result(make_result(**changes))["trust"]


def test_runs_before_are_told(make_result):
    row = {"populations": [], "runs": 2, "epsilon": 4.0, "delta": 2e-5, "why": "",
           "adjacency": "add-remove"}  # fmt: skip
    told = of_result(make_result(lineage={"composed": [row]}))
    assert "epsilon = 4" in table(told).split("with earlier runs")[1]
    assert "earlier" not in table(of_result(make_result()))


def test_of_what_was_made_with_models():
    one, other = Trained("1:a", 3.0, 1e-5, "add-remove"), Trained("2:b", 1.0, 1e-6, "add-remove")
    told = of_lineage(Lineage((one, other)))
    assert (told["epsilon"], told["delta"]) == (4.0, pytest.approx(1.1e-5))
    assert told["accountant"].startswith("basic composition of 2 runs")
    assert of_lineage(Lineage(public=True))["unit"].endswith("declared public")
    unknown = of_lineage(Lineage((one, Trained("2:b", None, 1e-6, "add-remove"))))
    assert unknown["epsilon"] is None and unknown["true_positive_rate_at_most"] is None


def test_an_audit_is_told_as_one_of_the_mechanism():
    row = {"target": "uls", "epsilon_lower": 0.81, "epsilon_claimed": 1.0, "confidence": 0.95}
    assert "at least 0.81 with 95% confidence, where 1 is claimed: of uls" in audited(row)


def test_a_cell_cannot_break_the_table(make_result):
    told = of_result(make_result(account="one | two\n\n# three"))
    assert len(table(told).splitlines()) == 11 and "| sampling | one / two # three |" in table(told)
