"""Plans as nodes see them: what is stated arrives unchanged, and what it costs is computed anew."""

import json
import math

import pytest

from privacy.accounting import epsilon
from privacy.adjacency import Adjacency
from privacy.events import PoissonGaussian, PureDp
from privacy.mixture import MixtureGaussian
from privacy.on_grid import OnGrid
from privacy.parts import OnPart
from strategies.stated import StatedPlan, cost

GAUSSIAN = PoissonGaussian(0.2, 2.0)


def plan(run="a1", adjacency=Adjacency.ZERO_OUT, delta=1e-6, rounds=10, charges=None):
    return StatedPlan.of(run, adjacency, delta, rounds, charges or {GAUSSIAN: rounds})


def test_a_plan_arrives_as_it_was_stated():
    stated = plan(charges={GAUSSIAN: 10, PureDp(0.5): 1})
    assert StatedPlan.from_json(stated.to_json()) == stated


def test_the_cost_is_computed_from_the_charges():
    expected = epsilon([(GAUSSIAN, 10)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    assert plan().epsilon() == pytest.approx(expected)
    assert cost([plan(), plan("b2")], 1e-6) == pytest.approx(
        epsilon([(GAUSSIAN, 20)], adjacency=Adjacency.ZERO_OUT, delta=1e-6)
    )
    assert cost([], 1e-6) == 0.0


def test_who_promises_nothing_costs_everything():
    assert cost([StatedPlan("a", Adjacency.ZERO_OUT, 1e-6, 5, ())], 1e-6) == math.inf
    for event in (PoissonGaussian(1.0, 1e-9), OnPart("1", PoissonGaussian(1.0, 1e-9))):
        assert cost([plan(charges={event: 1})], 1e-6) == math.inf


@pytest.mark.parametrize(
    ("event", "times"),
    [
        (MixtureGaussian(4.0, 10**6, 0.01), 1),
        (OnGrid(MixtureGaussian(4.0, 10**5, 0.01), 33, 28), 1),
        (PoissonGaussian(1.0, 1.0), 100_000),
        (OnPart(1, PoissonGaussian(1.0, 0.06)), 1000),
    ],
)
def test_what_would_keep_a_node_computing_for_long_is_refused_before(event, times, monkeypatch):
    monkeypatch.setattr("strategies.stated.accounting.epsilon", None)  # is not asked
    assert cost([plan(charges={event: times})], 1e-6) == math.inf


def test_what_runs_state_is_computed():
    for event, times in (
        (MixtureGaussian(4.0, 32, 0.01), 2000),
        (PoissonGaussian(0.01, 0.5), 1000),
        (PoissonGaussian(1.0, 50.0), 10_000),
    ):
        assert cost([plan(charges={event: times})], 1e-6) < 100.0


def test_parts_of_different_runs_are_not_disjoint():
    one = plan("a", charges={OnPart("1", GAUSSIAN): 10})
    other = plan("b", charges={OnPart("2", GAUSSIAN): 10})
    assert cost([one, other], 1e-6) == pytest.approx(cost([plan("a"), plan("b")], 1e-6))


def test_no_sum_over_adjacencies():
    with pytest.raises(ValueError, match="different adjacencies"):
        cost([plan(), plan("b", adjacency=Adjacency.REPLACE)], 1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"run": ""},
        {"run": "a b"},
        {"run": "x" * 65},
        {"adjacency": "sideways"},
        {"delta": 0.0},
        {"delta": "nan"},
        {"rounds": 0},
        {"rounds": 2.5},
        {"rounds": True},
        {"charges": [[{"kind": "magic"}, 1]]},
        {"charges": [[{"kind": "pure-dp", "epsilon": 1.0}, -1]]},
        {"charges": [[{"kind": "pure-dp", "epsilon": 1.0}, 1]] * 65},
        {"charges": 7},
    ],
)
def test_what_is_no_plan_is_refused(change):
    data = {**json.loads(plan().to_json()), **change}
    with pytest.raises(ValueError, match=r"plan|run|delta|rounds|charges"):
        StatedPlan.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", "[" * 100_000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match="not a plan"):
        StatedPlan.from_json(text)
