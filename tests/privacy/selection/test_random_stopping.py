"""Random stopping against the exact best of K and the paper's formula; a search not paid for."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from murmuration.audits.auditing import Task
from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.composition import INTERVAL
from murmuration.privacy.accounting.events import HoldOut, MixtureGaussian, PoissonGaussian, PureDp
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.selection.random_stopping import (
    CandidateCost,
    RandomStopping,
    addition,
    bound,
)
from murmuration.privacy.selection.stopping_time import StoppingTime
from murmuration.research.audits.selection.stopping import audit_stopping, outcomes, released
from murmuration.research.theory.analytic_gaussian import delta_of as gaussian_delta

TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
COST = CandidateCost(0.2, 10.0, 100, share=0.2, heldout_epsilon=0.5)


def charged(event, delta=1e-5):
    return accountant.epsilon([(event, 1)], adjacency=Adjacency.ADD_REMOVE, delta=delta)


def hockey_stick(p_O, q_O, target):
    alpha = math.exp(target)
    return max(
        float(np.maximum(p_O - alpha * q_O, 0).sum()), float(np.maximum(q_O - alpha * p_O, 0).sum())
    )


def profile_of(p_O, q_O):
    return lambda target: hockey_stick(p_O, q_O, target)


def best_of(p_O, stopping):
    """Exactly, by the generating function of K: the highest of K outcomes that rise in rank."""
    eta, left_O = stopping.eta, 1.0 - (1.0 - stopping.gamma) * np.cumsum(p_O).clip(0.0, 1.0)
    if eta == 0.0:
        at_most_O = np.log(left_O) / math.log(stopping.gamma)
    else:
        at_most_O = (left_O**-eta - 1.0) / (stopping.gamma**-eta - 1.0)
    return np.diff(at_most_O, prepend=0.0)


def mechanisms(number):
    """Pairs with few outcomes in any rank, some of which one side never has, and how many run."""
    generator = np.random.default_rng(65)
    for _ in range(number):
        size = int(generator.integers(2, 6))
        p_O = generator.dirichlet(np.full(size, generator.choice([0.3, 1.0])))
        q_O = p_O * np.exp(generator.choice([0.1, 1.0, 2.0]) * generator.normal(size=size))
        if generator.random() < 0.2:
            q_O[generator.integers(size)] = 0.0
        eta, runs = (
            generator.choice([-0.5, 0.0, 0.5, 1.0, 2.0]),
            generator.choice([1.5, 4, 25, 200]),
        )
        yield p_O, q_O / q_O.sum(), StoppingTime.with_mean(float(runs), float(eta))


def broken(number, charged_as):
    """Cases in which the best of K costs more than the bound, and the largest part of it."""
    count, largest = 0, 0.0
    for p_O, q_O, stopping in mechanisms(number):
        curve = bound(profile_of(p_O, q_O), charged_as(stopping))
        best = best_of(p_O, stopping), best_of(q_O, stopping)
        for target in (0.05, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0):
            exact, said = hockey_stick(*best, target), curve(target)
            count += exact > said + 1e-12
            largest = max(largest, exact / said if 1e-6 < said < 1.0 else 0.0)
    return count, largest


@pytest.mark.parametrize("number", [800, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_bound_holds_on_every_small_mechanism(number):
    """The exact best of K, of pairs, ranks and stopping times of all sorts, in both orders."""
    count, largest = broken(number, lambda stopping: stopping)
    assert count == 0
    assert largest > 0.9  # and nearly meets it


@pytest.mark.parametrize(
    "wrong",
    [{"gamma": 0.5}, {"eta": lambda right: right - 1.0}, {"eta": lambda _: -1.0}, {"mean": 1.0}],
    ids=["without gamma", "one less than eta", "without delta_1", "without the mean"],
)
def test_a_wrong_bound_is_broken(wrong):
    def charged_as(stopping):
        right = {name: getattr(stopping, name) for name in ("eta", "gamma", "mean")}
        more = {k: each(right[k]) if callable(each) else each for k, each in wrong.items()}
        return SimpleNamespace(**(right | more))

    assert broken(400, charged_as)[0] >= 10


def test_exact_is_what_all_numbers_of_candidates_come_to():
    p_O = np.array([0.2, 0.5, 0.3])
    for eta in (-0.5, 0.0, 1.0):
        stopping = StoppingTime.with_mean(10.0, eta)
        np.testing.assert_allclose(best_of(p_O, stopping), released(p_O, stopping), rtol=1e-9)


@pytest.mark.parametrize("eta", [-0.5, 0.0, 1.0])
@pytest.mark.parametrize("runs", [1.5, 10.0, 100.0])
def test_the_theorem_as_it_is_written_at_its_best(eta, runs):
    """Koskela, Redberg and Wang: the least addition over all of their first epsilons is ours."""
    stopping = StoppingTime.with_mean(runs, eta)
    gamma = stopping.gamma

    def profile(target):
        return gaussian_delta(2.0, target)

    def written(first):
        delta = profile(first)
        most = max(1 + (1 - gamma) * delta / gamma, gamma + (1 - gamma) * (delta + math.exp(first)))
        return (1 + eta) * math.log(most)

    ours = addition(profile, stopping)
    least = min(written(float(first)) for first in np.linspace(0.0, 2.0, 4001))
    assert least * (1 - 1e-3) <= ours <= least * (1 + 1e-9)
    assert bound(profile, stopping)(ours + 1.0) == pytest.approx(stopping.mean * profile(1.0))


@pytest.mark.parametrize(("eta", "times"), [(0.0, 2.0), (1.0, 3.0)])
def test_pure_candidates_cost_two_plus_eta_times_as_much_and_attain_it(eta, times):
    """Liu and Talwar's 3ε where η = 1: nearly attained."""
    pure, stopping = 0.5, StoppingTime.with_mean(40.0, eta)
    sides = outcomes(pure)
    curve = bound(profile_of(*sides), stopping)
    assert curve(times * pure + 1e-9) <= 1e-9
    best = [released(side, stopping) for side in sides]
    attained = float(np.max(np.abs(np.log(best[0]) - np.log(best[1]))))
    assert 0.8 * times * pure <= attained <= times * pure + 1e-9


@pytest.mark.parametrize("cost", [COST, replace(COST, share=0.0, heldout_epsilon=0.0)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_the_curve_of_a_candidate_is_that_of_its_run(cost, delta):
    spent = accountant.epsilon(cost.charges.items(), adjacency=Adjacency.ADD_REMOVE, delta=delta)
    profile = cost.profile(Adjacency.ADD_REMOVE, INTERVAL)
    assert delta * (1 - 1e-3) <= profile(spent) <= delta * (1 + 1e-2)


@pytest.mark.parametrize(("eta", "runs"), [(0.0, 3.0), (0.0, 10.0), (1.0, 10.0), (1.0, 30.0)])
def test_the_best_of_gaussian_runs_costs_nearly_as_much_and_never_more(eta, runs):
    """Exactly, on one axis: with the score that costs most, where low results rank highest."""
    sigma, stopping = 4.0, StoppingTime.with_mean(runs, eta)
    event = RandomStopping(eta, stopping.gamma, (CandidateCost(1.0, sigma, 1),))
    edges = np.linspace(-12 * sigma, 12 * sigma, 4001)
    sides = [np.diff(stats.norm.cdf(edges, mean, sigma)) for mean in (1.0, 0.0)]
    ours, largest = charged(event), 0.0
    for part in (0.0, 0.02, 0.1, 0.3):
        top = int(np.searchsorted(np.cumsum(sides[0]), part)) if part else 0
        first, second = (best_of(np.roll(side, -top), stopping) for side in sides)
        assert hockey_stick(first, second, ours) <= 1e-5
        largest = max(largest, hockey_stick(first, second, ours / 1.25))
    assert largest > 1e-5


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
