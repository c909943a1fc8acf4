"""Plans without sampling: three numbers, of which two are given."""

import math
from dataclasses import replace

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.analytic_gaussian import calibrate_noise
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import registry
from murmuration.strategies.planning import PlanQuery

LABELS = Adjacency.REPLACE_LABELS


def solve(strategy, asked, adjacency):
    """What ``murmuration plan`` solves for this strategy."""
    return registry.named(strategy).solve(replace(asked, strategy=strategy), adjacency)


def asked(**change):
    values = {
        "users": 1000, "group_size": None, "sampling_probability": None, "cohort": None,
        "rounds": None, "delta": 1e-5, "epsilon": 3.0, "noise_multiplier": None, **change,
    }  # fmt: skip
    return PlanQuery("", **values)


def test_noise_is_the_analytic_gaussians():
    found = solve("label-moment", asked(), LABELS)
    assert found["noise_multiplier"] == pytest.approx(2 * calibrate_noise(3.0, 1e-5), rel=1e-3)
    assert (found["rounds"], found["cohort"], found["users"]) == (1, 1000, 1000)
    two = solve("label-moment", asked(rounds=2), LABELS)
    assert two["noise_multiplier"] == pytest.approx(
        math.sqrt(2) * found["noise_multiplier"], rel=1e-3
    )


@pytest.mark.parametrize("missing", ["epsilon", "delta"])
def test_there_and_back(missing):
    found = solve("objective-perturbation", asked(), LABELS)
    given = {**found, missing: None}
    again = solve("objective-perturbation",
                  asked(**{k: given[k] for k in ("epsilon", "delta", "noise_multiplier")}),
                  LABELS)  # fmt: skip
    assert again[missing] == pytest.approx(found[missing], rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 3}, "takes --rounds 1 or 2"),
        ({"cohort": 10}, "everybody takes part"),
        ({"users": None}, "needs --users"),
        ({"epsilon": None}, "exactly one"),
        ({"noise_multiplier": 1.0}, "exactly one"),
        ({"epsilon": -1.0}, "--epsilon must be positive"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InputError, match=message):
        solve("label-moment", asked(**change), LABELS)
