"""Random stopping against exact enumeration and the paper's formulas; a search that is not paid."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.audits.auditing import Task
from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import HoldOut, MixtureGaussian, PoissonGaussian, PureDp
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.selection import renyi
from murmuration.privacy.selection.random_stopping import (
    CandidateCost,
    RandomStopping,
    bound,
)
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.research.audits.selection.stopping import audit_stopping, outcomes, released

TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
COST = CandidateCost(0.2, 10.0, 100, 0.2, 0.5)


def charged(event, delta=1e-5):
    return accountant.epsilon([(event, 1)], adjacency=Adjacency.ADD_REMOVE, delta=delta)


def kappa_of(p_O, q_O):
    """κ at all orders of a pair with few outcomes, the larger of both orders."""
    ratio_O = np.log(p_O) - np.log(q_O)
    both = [
        [float(np.logaddexp.reduce(np.log(b) + sign * order * ratio_O)) for order in renyi.ORDERS_F]
        for sign, b in ((1, q_O), (-1, p_O))
    ]
    return np.max(both, axis=0)


def hockey_stick(p_O, q_O, target):
    alpha = math.exp(target)
    return max(
        float(np.maximum(p_O - alpha * q_O, 0).sum()), float(np.maximum(q_O - alpha * p_O, 0).sum())
    )


@given(
    st.lists(st.floats(0.02, 1.0), min_size=3, max_size=5),
    st.lists(st.floats(-1.5, 1.5), min_size=5, max_size=5),
    st.sampled_from([-0.5, 0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([1.5, 4.0, 25.0]),
)
def test_the_bound_holds_on_every_small_mechanism(weights, shifts, eta, runs):
    """All numbers of candidates and all outcomes enumerated: Rényi and hockey-stick divergences."""
    stopping = StoppingTime.with_mean(runs, eta)
    p_O = np.array(weights) / np.sum(weights)
    q_O = p_O * np.exp(shifts[: len(weights)])
    q_O /= q_O.sum()
    best = [released(side, stopping) for side in (p_O, q_O)]
    # What is left out of very many candidates is less than this.
    best = [np.maximum(side, 1e-12) for side in best]
    exact_F, bound_F = kappa_of(best[0], best[1]), bound(kappa_of(p_O, q_O), stopping)
    near = renyi.ORDERS_F < 30
    assert (exact_F[near] <= bound_F[near] + 1e-6).all()
    targets = np.linspace(0.0, 6.0, 25)
    delta_N = renyi.delta_of(bound_F, targets)
    for target, delta in zip(targets, delta_N, strict=True):
        assert hockey_stick(best[0], best[1], float(target)) <= delta + 1e-9


@pytest.mark.parametrize(("eta", "times"), [(0.0, 2.0), (1.0, 3.0)])
def test_pure_candidates_cost_two_plus_eta_times_as_much_and_attain_it(eta, times):
    """Corollary of Theorem 2, as λ grows; Liu and Talwar's 3ε where η = 1: nearly attained."""
    pure, stopping = 0.5, StoppingTime.with_mean(40.0, eta)
    kappa_F = np.minimum(renyi.at_all_orders(renyi.of_pure(pure)), (renyi.ORDERS_F - 1) * pure)
    most_F = bound(kappa_F, stopping) / (renyi.ORDERS_F - 1)
    assert most_F[-1] <= times * pure * 1.02 + math.log(stopping.mean) / renyi.ORDERS_F[-1]
    assert most_F[-1] >= times * pure * 0.98
    best = [released(side, stopping) for side in outcomes(pure)]
    attained = float(np.max(np.abs(np.log(best[0]) - np.log(best[1]))))
    assert 0.8 * times * pure <= attained <= times * pure + 1e-9


def test_the_theorem_as_it_is_written():
    """Gaussian ρ-zCDP candidates: D_λ = ρλ. Theorem 2 at its best λ̂ = √(log(1/γ)/ρ)."""
    rho, stopping = 0.01, StoppingTime(1.0, 0.1)
    kappa_F = renyi.ORDERS_F * (renyi.ORDERS_F - 1) * rho
    ours_F = bound(kappa_F, stopping) / (renyi.ORDERS_F - 1)
    hat = math.sqrt(math.log(10.0) / rho)
    written_F = (
        rho * renyi.ORDERS_F
        + 2.0 * (1 - 1 / hat) * rho * hat
        + 2.0 * math.log(10.0) / hat
        + math.log(10.0) / (renyi.ORDERS_F - 1)
    )
    np.testing.assert_allclose(ours_F, written_F, rtol=2e-4)
    assert (ours_F >= written_F * (1 - 1e-12)).all()  # ours is one of the orders, theirs the best


def test_it_is_not_absurdly_loose():
    """Within a factor of two of the least that the best of ten candidates can cost."""
    sigma, stopping = 4.0, StoppingTime.with_mean(10.0, 1.0)
    event = RandomStopping(1.0, stopping.gamma, (CandidateCost(1.0, sigma, 1),))
    edges = np.linspace(-12 * sigma, 12 * sigma, 4001)

    def pieces(mean):
        return np.maximum(np.diff(stats.norm.cdf(edges, mean, sigma)), 1e-300)

    best = [released(side / side.sum(), stopping) for side in (pieces(1.0), pieces(0.0))]
    best = [np.maximum(side, 1e-300) for side in best]
    ours = charged(event)
    assert hockey_stick(best[0], best[1], ours) <= 1e-5
    assert hockey_stick(best[0], best[1], ours / 2.5) > 1e-5


def test_a_search_charged_as_one_run_is_caught():
    task = Task(Adjacency.ADD_REMOVE, 3.0, 10_000, Randomness(3))
    honest = audit_stopping(task)
    assert 0.5 * honest.claimed <= honest.lower <= honest.claimed
    free = audit_stopping(task, charge=lambda alone, stopping: PureDp(alone))
    assert free.lower > 1.5 * free.claimed


@pytest.mark.parametrize(
    "worse",
    [
        replace(COST, probability=0.25),
        replace(COST, noise_multiplier=9.0),
        replace(COST, rounds=120),
        replace(COST, heldout_epsilon=1.5),
        replace(COST, distance=1e-7),
    ],
)
def test_more_of_anything_costs_more(worse):
    stopping = StoppingTime.with_mean(5.0, 0.0)
    event = RandomStopping(0.0, stopping.gamma, (COST,))
    dearer = RandomStopping(0.0, stopping.gamma, (worse,))
    assert charged(event) < charged(dearer)
    both = RandomStopping(0.0, stopping.gamma, (COST, worse))
    assert charged(both) >= charged(dearer) * (1 - 1e-9)
    assert COST.within(worse) and not worse.within(COST)


def test_more_runs_and_more_shape_cost_more():
    costs = []
    for runs, eta in ((1.001, 0.0), (2.0, 0.0), (10.0, 0.0), (10.0, 1.0), (10.0, 2.0)):
        stopping = StoppingTime.with_mean(runs, eta)
        costs.append(charged(RandomStopping(eta, stopping.gamma, (COST,))))
    assert costs == sorted(costs)
    alone = accountant.epsilon(COST.charges.items(), **TERMS)
    assert alone < costs[0] < 1.35 * alone


def test_two_searches_compose():
    stopping = StoppingTime.with_mean(5.0, 0.0)
    event = RandomStopping(0.0, stopping.gamma, (COST,))
    twice = accountant.epsilon([(event, 2)], **TERMS)
    assert charged(event) < twice < 2 * charged(event)


def test_it_survives_json_and_says_each_cost_once():
    event = RandomStopping(0.5, 0.1, (COST, replace(COST, rounds=3), COST))
    assert len(event.candidates) == 2
    assert event == RandomStopping(0.5, 0.1, (replace(COST, rounds=3), COST))
    back = events.from_json(json.loads(json.dumps(events.to_json(event))))
    assert back == event and hash(back) == hash(event)


def test_what_a_run_charged_is_what_it_costs():
    assert CandidateCost.of_charges(COST.charges) == COST
    gaussian = PoissonGaussian(0.2, 10.0)
    discrete = DiscretizedGaussian(gaussian, 1025, 24)
    cost = CandidateCost.of_charges({discrete: 100, **HoldOut(0.2, 0.5).charges})
    assert cost == replace(COST, distance=100 * discrete.delta_overhead)
    assert not cost.within(COST) and cost.within(replace(COST, distance=1e-9))


@pytest.mark.parametrize(
    ("charges", "why"),
    [
        ({MixtureGaussian(8.0, 2, 0.1): 5}, "mixture-gaussian"),
        ({PureDp(1.0): 1, PoissonGaussian(0.1, 4.0): 5}, "pure-dp"),
        ({PoissonGaussian(0.1, 4.0): 5, PoissonGaussian(0.1, 5.0): 5}, "one sampled"),
        ({HoldOut(0.2, 0.5): 1}, "one sampled"),
    ],
)
def test_what_has_no_bound_is_refused(charges, why):
    with pytest.raises(ValueError, match=why):
        CandidateCost.of_charges(charges)


@pytest.mark.parametrize(
    "bad",
    [
        {"candidates": ()},
        {"candidates": (3,)},
        {"candidates": (COST,) * 1001},
        {"gamma": 1.5},
        {"eta": -2.0},
        {"candidates": ({"probability": 2.0, "noise_multiplier": 1.0, "rounds": 1},)},
        {"candidates": ({"probability": 0.2, "noise_multiplier": 1.0, "rounds": 0},)},
        {"candidates": ({"probability": 0.2, "noise_multiplier": math.nan, "rounds": 1},)},
    ],
)
def test_hostile_events_are_refused(bad):
    fields = {"eta": 0.0, "gamma": 0.1, "candidates": (COST,), **bad}
    with pytest.raises(ValueError, match=r"."):
        RandomStopping(**fields)
