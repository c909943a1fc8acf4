"""The plan of what shares its budget: it must be the plan that a run would use."""

from dataclasses import replace

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import registry
from murmuration.strategies.adaptive import (
    DEFAULT_QUANTILE,
    DEFAULT_START,
    AdaptivePlan,
    QuantileRule,
)
from murmuration.strategies.planning import PlanQuery

SIZES = {"users": 1000, "cohort": 200, "rounds": 20, "delta": 1e-5}


def solve(strategy, variant, adaptation, asked, adjacency):
    """What ``murmuration plan`` solves for this strategy."""
    own = {"strategy": strategy, "variant": variant, "adaptation": adaptation}
    return registry.named(strategy).solve(replace(asked, **own), adjacency)


def asked(**change: float | None) -> PlanQuery:
    values = {
        "group_size": None,
        "sampling_probability": None,
        "epsilon": 3.0,
        "noise_multiplier": None,
        **SIZES,
        **change,
    }
    return PlanQuery("", **values)  # type: ignore[arg-type]


def plain_noise() -> float:
    return accountant.noise_multiplier_for(
        3.0, delta=1e-5, probability=0.2, rounds=20, adjacency=Adjacency.ADD_REMOVE
    )


@pytest.mark.parametrize("strategy", ["adaptive", "aup"])
def test_a_counted_quantile_costs_a_little_noise(strategy):
    found = solve(strategy, "centred", "quantile", asked(), Adjacency.ADD_REMOVE)
    assert plain_noise() < found["noise_multiplier"] < 1.1 * plain_noise()
    plan = AdaptivePlan(
        adjacency=Adjacency.ADD_REMOVE,
        noise_multiplier=found["noise_multiplier"],
        count_noise=found["count_noise"],
        rule=QuantileRule(DEFAULT_START, DEFAULT_QUANTILE),
        **SIZES,  # type: ignore[arg-type]
    )
    spent = accountant.epsilon(plan.charges.items(), adjacency=plan.adjacency, delta=1e-5)
    assert 2.99 < spent <= 3.0


def test_tests_are_charged_in_full():
    found = solve("aup", "centred", "above-threshold", asked(), Adjacency.ADD_REMOVE)
    rest = accountant.epsilon(
        [(PoissonGaussian(0.2, found["noise_multiplier"]), 20)],
        adjacency=Adjacency.ADD_REMOVE,
        delta=1e-5,
    )
    assert found["tests"] * found["test_epsilon"] > 0
    assert rest < 3.0 < rest + found["tests"] * found["test_epsilon"]


@pytest.mark.parametrize("variant", ["published", "corrected"])
def test_filters_need_more_noise_than_one_sum(variant):
    found = solve("aup", variant, "quantile", asked(), Adjacency.ADD_REMOVE)
    assert found["noise_multiplier"] > plain_noise()
    assert found["epsilon"] == 3.0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": None}, "--epsilon"),
        ({"noise_multiplier": 2.0}, "--epsilon"),
        ({"users": None}, "--users"),
        ({"cohort": 0}, "--cohort"),
        ({"rounds": None}, "--rounds"),
        ({"delta": -1.0}, "--delta"),
    ],
)
def test_what_is_missing_is_named(change, named):
    with pytest.raises(InputError, match=named):
        solve("adaptive", "centred", "quantile", asked(**change), Adjacency.ADD_REMOVE)
