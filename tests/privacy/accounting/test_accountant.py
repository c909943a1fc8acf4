import math
from collections import Counter
from dataclasses import dataclass

import dp_accounting
import numpy as np
import pytest
from by_dp_accounting import RELATION
from closed_forms import epsilon_of
from dp_accounting.pld import PLDAccountant
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant as accounting
from murmuration.privacy.accounting.accountant import (
    calibrate,
    calibrate_noise,
    joint_noise_multiplier,
    noise_multiplier_for,
)
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    HoldOut,
    MixtureGaussian,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    Unprotected,
)
from murmuration.privacy.adjacency import Adjacency

Q, T, DELTA = 540 / 2717, 200, 1e-5


def epsilon(
    probability,
    sigma,
    rounds,
    delta,
    adjacency=Adjacency.ADD_REMOVE,
    interval=accounting.INTERVAL,
):
    event = PoissonGaussian(probability, sigma)
    return accounting.epsilon(
        [(event, rounds)], adjacency=adjacency, delta=delta, interval=interval
    )


def reference(probability, sigma, rounds, delta, adjacency):
    """dp-accounting's own accountant, from its own events."""
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    sampled = dp_accounting.PoissonSampledDpEvent(probability, gaussian)
    accountant = PLDAccountant(RELATION[adjacency], value_discretization_interval=1e-4)
    return accountant.compose(sampled, rounds).get_epsilon(delta)


@dataclass(frozen=True)
class Pure:
    """A mechanism that is exactly (epsilon, 0)-DP."""

    epsilon: float
    kind = "pure"

    def loss(self, adjacency, interval):
        return (DiscretePMF.worst(self.epsilon, 0.0, interval),)


@pytest.mark.parametrize(
    ("probability", "sigma", "rounds", "delta", "adjacency", "expected"),
    [
        (0.1, 4.0, 200, 1e-5, Adjacency.ADD_REMOVE, 1.42),
        (0.1, 4.0, 200, 1e-5, Adjacency.ZERO_OUT, 1.42),
        (0.1, 4.0, 200, 1e-5, Adjacency.REPLACE, 2.94),
        (0.1, 4.0, 200, 1e-5, Adjacency.REPLACE_LABELS, 2.94),
        (0.1, 2.0, 200, 1e-5, Adjacency.ADD_REMOVE, 3.36),
        (0.01, 1.0, 1000, 1e-6, Adjacency.ADD_REMOVE, 2.13),
    ],
)
def test_the_fixed_points_of_the_design_notes(
    probability, sigma, rounds, delta, adjacency, expected
):
    found = epsilon(probability, sigma, rounds, delta, adjacency)
    assert found == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("rounds", "delta"), [(200_000, 1e-12), (200_000, 1e-10), (10_000, 1e-13)])
def test_many_rounds_at_a_tiny_delta(rounds, delta):
    """Where rounding decides. The rounds are one Gaussian, whose cost has a closed form."""
    found = epsilon(1.0, math.sqrt(rounds), rounds, delta)
    exact = epsilon_of(1.0, delta)
    assert exact <= found <= exact * 1.001


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE, Adjacency.ZERO_OUT])
@pytest.mark.parametrize(
    ("probability", "sigma", "rounds", "delta"),
    [(Q, 4.0543, T, DELTA), (0.01, 1.5, 300, 1e-6), (1.0, 5.0, 1, 1e-5), (1.0, 30.0, 50, 1e-7)],
)
def test_agreement_with_the_library(adjacency, probability, sigma, rounds, delta):
    found = epsilon(probability, sigma, rounds, delta, adjacency)
    assert found == pytest.approx(
        reference(probability, sigma, rounds, delta, adjacency), abs=1e-3, rel=1e-3
    )


def test_the_plan_of_a_real_run():
    plan = {"delta": DELTA, "probability": Q, "rounds": T}
    sigma = noise_multiplier_for(3.0, adjacency=Adjacency.ADD_REMOVE, **plan)
    assert sigma == pytest.approx(4.054, rel=1e-3)
    found = reference(Q, sigma, T, DELTA, Adjacency.ADD_REMOVE)
    assert 3.0 * 0.999 <= found <= 3.0 * 1.0001
    # A swap moves the sum twice as far as a departure: nearly twice the noise.
    swapped = noise_multiplier_for(3.0, adjacency=Adjacency.REPLACE, **plan)
    assert 1.8 * sigma < swapped < 2.0 * sigma
    assert reference(Q, swapped, T, DELTA, Adjacency.REPLACE) == pytest.approx(3.0, rel=1e-3)


def test_zero_out_costs_what_add_remove_costs_and_labels_what_replace_costs():
    case = (0.2, 5.0, 20, 1e-5)
    assert epsilon(*case, Adjacency.ZERO_OUT) == epsilon(*case, Adjacency.ADD_REMOVE)
    assert epsilon(*case, Adjacency.REPLACE_LABELS) == epsilon(*case, Adjacency.REPLACE)


def test_one_gaussian_without_sampling_is_the_analytic_one():
    sigma = noise_multiplier_for(
        1.0, delta=1e-5, probability=1.0, rounds=1, adjacency=Adjacency.ADD_REMOVE
    )
    assert sigma == pytest.approx(3.7306, rel=2e-4)  # Balle and Wang 2018


ranges = {
    "probability": st.floats(0.001, 1.0),
    "sigma": st.floats(2.0, 20.0),
    "rounds": st.integers(1, 100),
    "delta": st.floats(-9, -2).map(lambda exponent: 10.0**exponent),
    "adjacency": st.sampled_from([Adjacency.ADD_REMOVE, Adjacency.REPLACE]),
}


@settings(max_examples=8, phases=[Phase.generate])
@given(**ranges, factor=st.floats(1.1, 3.0))
def test_epsilon_moves_the_right_way_in_every_parameter(
    probability,
    sigma,
    rounds,
    delta,
    adjacency,
    factor,
):
    def cost(p, s, n, d, a=adjacency):
        return epsilon(p, s, n, d, a, interval=2e-3)

    slack = 1e-6  # of discretization
    base = cost(probability, sigma, rounds, delta)
    assert 0.0 <= base < math.inf
    assert cost(probability, sigma * factor, rounds, delta) <= base + slack
    assert cost(probability, sigma, math.ceil(rounds * factor), delta) >= base - slack
    assert cost(min(1.0, probability * factor), sigma, rounds, delta) >= base - slack
    assert cost(probability, sigma, rounds, min(0.5, delta * factor)) <= base + slack
    weaker = cost(probability, sigma, rounds, delta, Adjacency.ADD_REMOVE)
    stronger = cost(probability, sigma, rounds, delta, Adjacency.REPLACE)
    assert weaker <= stronger + slack
    coarser = epsilon(probability, sigma, rounds, delta, adjacency, interval=8e-3)
    assert coarser >= base - slack  # discretization errs on the safe side


def test_nothing_costs_nothing_and_an_unprotected_release_everything():
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    event = PoissonGaussian(0.1, 4.0)
    assert accounting.epsilon([], **terms) == 0.0
    assert accounting.epsilon([(event, 0), (Unprotected(), 0)], **terms) == 0.0
    assert accounting.epsilon([(event, 3), (Unprotected(), 1)], **terms) == math.inf


def test_different_events_compose_in_one_accountant():
    a, b = PoissonGaussian(0.1, 3.0), PoissonGaussian(0.3, 6.0)
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "interval": 1e-3}
    both = accounting.epsilon([(a, 40), (b, 10)], **terms)
    assert both == pytest.approx(accounting.epsilon([(b, 10), (a, 40)], **terms), rel=1e-9)
    alone = [accounting.epsilon([part], **terms) for part in ((a, 40), (b, 10))]
    assert max(alone) < both < sum(alone)
    split = accounting.epsilon([(a, 25), (b, 10), (a, 15)], **terms)
    assert split == pytest.approx(both, rel=1e-6)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("times", [1, 2, 7])
def test_a_pure_part_is_charged_each_time(adjacency, times):
    found = accounting.epsilon([(Pure(0.5), times)], adjacency=adjacency, delta=1e-9)
    assert found == pytest.approx(0.5 * times, abs=0.01)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, math.inf])
def test_a_delta_out_of_range_is_refused(delta):
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        epsilon(0.1, 4.0, 1, delta)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        noise_multiplier_for(
            1.0, delta=delta, probability=0.1, rounds=1, adjacency=Adjacency.ADD_REMOVE
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": 0.0}, "epsilon must be a positive"),
        ({"target": -1.0}, "epsilon must be a positive"),
        ({"target": math.nan}, "epsilon must be a positive"),
        ({"target": math.inf}, "epsilon must be a positive"),
        ({"rounds": 0}, "at least one round"),
        ({"probability": 0.0}, "sampling probability"),
        ({"probability": 1.5}, "sampling probability"),
    ],
)
def test_impossible_plans_are_refused(changes, message):
    plan = {"target": 1.0, "delta": 1e-5, "probability": 0.1, "rounds": 10, **changes}
    with pytest.raises(ValueError, match=message):
        noise_multiplier_for(plan.pop("target"), adjacency=Adjacency.ADD_REMOVE, **plan)


@pytest.mark.parametrize(
    ("target", "probability", "rounds", "delta", "adjacency"),
    [
        (0.01, Q, 200, 1e-5, Adjacency.ADD_REMOVE),
        (0.05, 0.1, 1000, 1e-5, Adjacency.ADD_REMOVE),
        (0.3, 0.02, 500, 1e-7, Adjacency.REPLACE),
        (1.0, Q, 200, 1e-5, Adjacency.ADD_REMOVE),
        (5.0, 1.0, 3, 1e-5, Adjacency.REPLACE),
    ],
)
def test_calibrated_noise_meets_the_target_from_below(
    target, probability, rounds, delta, adjacency
):
    sigma = noise_multiplier_for(
        target, delta=delta, probability=probability, rounds=rounds, adjacency=adjacency
    )
    found = epsilon(probability, sigma, rounds, delta, adjacency)
    assert target * (1 - 1.01e-4) <= found <= target
    assert epsilon(probability, sigma * 0.999, rounds, delta, adjacency) > target


@given(st.floats(-3, 3), st.floats(0.3, 4.0), st.floats(0.0, 20.0))
def test_calibration_solves_any_falling_cost(log_target, slope, bend):
    def cost(x, interval):
        return (1 + 10 * interval) * x**-slope * (1 + bend / (1 + x))

    target = 10.0**log_target
    x = calibrate(cost, target, low=1e-12, high=1e20)
    assert target * (1 - 1.01e-4) <= cost(x, accounting.INTERVAL) <= target


def test_calibration_asks_nothing_twice():
    """An answer can take a second: too little noise is dear to account for."""
    asked = []

    def cost(x, interval):
        asked.append((x, interval))
        return 3.0 / x

    calibrate(cost, 2.0, high=100.0)
    assert len(asked) == len({*asked})


def test_calibration_at_the_ends_of_the_range():
    def cost(x, interval):
        return math.inf if x < 0.5 else 1 / x

    assert calibrate(cost, 5.0, low=1.0, high=100.0) == 1.0  # the least noise is already enough
    with pytest.raises(ValueError, match=r"epsilon = 0.001 is out of reach at 100"):
        calibrate(cost, 0.001, low=1.0, high=100.0)
    x = calibrate(cost, 4.0, low=0.01, high=100.0)  # a cliff: the target is met, not approached
    assert x == pytest.approx(0.5, rel=1e-6)
    assert cost(x, 0.0) <= 4.0


@pytest.mark.parametrize(
    ("target", "group_size", "probability", "rounds"),
    [(3.0, 32, 0.01, 1000), (0.1, 4, 0.05, 50), (2.0, 512, 0.02, 300), (8.0, 8, 0.1, 1)],
)
def test_noise_for_sampled_examples(target, group_size, probability, rounds):
    terms = {"delta": 1e-6, "adjacency": Adjacency.ADD_REMOVE}

    def charges(sigma):
        return {MixtureGaussian(sigma, group_size, probability): rounds}

    sigma = calibrate_noise(target, charges, **terms)
    found = accounting.epsilon(charges(sigma).items(), **terms)
    assert target * (1 - 1.01e-4) <= found <= target
    assert accounting.epsilon(charges(sigma * 0.999).items(), **terms) > target


def test_calibration_for_any_family_is_the_one_for_rounds():
    terms = {"delta": 1e-5, "adjacency": Adjacency.REPLACE}
    by_family = calibrate_noise(2.0, lambda sigma: {PoissonGaussian(0.1, sigma): 50}, **terms)
    assert by_family == pytest.approx(
        noise_multiplier_for(2.0, probability=0.1, rounds=50, **terms), rel=3e-4
    )


def test_fixed_charges_are_paid_before_the_noise():
    terms = {"delta": 1e-5, "adjacency": Adjacency.ADD_REMOVE}

    def charges(sigma):
        return {PoissonGaussian(0.1, sigma): 100, PureDp(0.25): 2}

    sigma = calibrate_noise(1.0, charges, **terms)
    assert 0.9998 <= accounting.epsilon(charges(sigma).items(), **terms) <= 1.0
    assert sigma > calibrate_noise(1.0, lambda s: {PoissonGaussian(0.1, s): 100}, **terms)
    with pytest.raises(ValueError, match=r"0\.4 is out of reach.*still costs 0\.5"):
        calibrate_noise(0.4, charges, **terms)


def test_a_sum_and_a_count_on_one_cohort_are_one_gaussian():
    assert joint_noise_multiplier(3.0, 1e9) == pytest.approx(3.0)  # a count too noisy to matter
    assert joint_noise_multiplier(2.0, 1.0) == pytest.approx(math.sqrt(2))  # two equal halves
    assert joint_noise_multiplier(2.0, 2.0, bound=1.0) == pytest.approx(math.sqrt(2))
    # Andrew et al. 2021, Theorem 1: z_sum = (z^-2 - (2 σ_b)^-2)^(-1/2).
    z, bit_noise = 1.1, 7.0
    z_sum = (z**-2 - (2 * bit_noise) ** -2) ** -0.5
    assert joint_noise_multiplier(z_sum, bit_noise) == pytest.approx(z)


@given(st.floats(0.1, 50.0), st.floats(0.1, 50.0))
def test_the_joint_release_is_the_vector_with_both_parts(sigma, bit_noise):
    # The worst user is as far from zero, in units of the noise, as in both parts together.
    length = float(np.linalg.norm([1.0 / sigma, 0.5 / bit_noise]))
    assert joint_noise_multiplier(sigma, bit_noise) == pytest.approx(1 / length)
    assert joint_noise_multiplier(sigma, bit_noise) < sigma


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_joint_release_without_noise_is_refused(bad):
    for arguments in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(ValueError, match="positive finite"):
            joint_noise_multiplier(*arguments)


def test_what_a_choice_costs_is_added_never_convolved():
    rounds = (PoissonGaussian(0.1, 2.0), 50)
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    alone = accounting.epsilon([rounds], **terms)
    added = accounting.epsilon([(PureChoice(0.2), 2), rounds], **terms)
    convolved = accounting.epsilon([(PureDp(0.2), 2), rounds], **terms)
    assert added == pytest.approx(alone + 0.4, abs=1e-12)
    assert convolved < added - 1e-3
    assert accounting.epsilon([(PureChoice(0.2), 0), rounds], **terms) == alone


def exactly(outcomes, target):
    """Delta at ``target`` of outcomes that are so likely under P and under Q, in both orders."""
    alpha = math.exp(target)
    into = sum(max(0.0, p - alpha * q) for p, q in outcomes)
    return max(into, sum(max(0.0, q - alpha * p) for p, q in outcomes))


def test_the_events_of_two_runs_are_never_one_runs():
    """A tenth is trained on in each of two runs, by coins of their own, and told without noise.

    Taken for one run, two releases behind one coin, that claims epsilon = 0.05 at a delta that is
    not enough by far: whoever is trained on in either run is exposed.
    """
    share, strong, delta = 0.9, 12.0, 0.11
    coins, told = HoldOut(share), PureDp(strong)
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": delta}
    run = {coins: 1, told: 1}
    # One run: a user's own answer with probability 1 - share, and else one of nobody's.
    heads, tails = 1 / (1 + math.exp(-strong)), 1 / (1 + math.exp(strong))
    one = [((1 - share) * p + share * q, q) for p, q in ((heads, tails), (tails, heads))]
    both = [(p * r, q * s) for p, q in one for r, s in one]
    assert exactly(one, 0.05) <= delta < 0.17 < exactly(both, 0.05)
    assert accounting.epsilon(run.items(), **terms) < 0.05
    pooled = Counter(run) + Counter(run)
    with pytest.raises(ValueError, match="hand in the events of each run by themselves"):
        accounting.epsilon(pooled.items(), **terms)
    together = accounting.epsilon(run.items(), run.items(), **terms)
    assert exactly(both, together) <= delta
    assert together > 5.0


def test_a_run_without_a_hold_out_beside_one_with_saves_nothing():
    """Nobody is held out from the one: no bag of both their events could say so."""
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    gaussian = (PoissonGaussian(0.1, 4.0), 50)
    with_coins = [gaussian, *HoldOut(0.5, 0.1).charges.items()]
    together = accounting.epsilon([gaussian], with_coins, **terms)
    assert together == accounting.epsilon([(gaussian[0], 100), (PureDp(0.1), 1)], **terms)
    assert together > accounting.epsilon([(gaussian[0], 100), *with_coins[1:]], **terms)


def test_where_turns_are_known_a_secret_hold_out_saves_nothing():
    """Who is not asked in their turn is held out: the dearer half counts, and the curve knows."""
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    gaussian = (BufferedGaussian(10, 3, 3.0), 1)
    training = accounting.epsilon([gaussian], **terms)
    for coins in (HoldOut(0.2, 0.5), HoldOut(0.5, 0.1)):
        run = [gaussian, *coins.charges.items()]
        assert accounting.epsilon(run, **terms) == training
        known = (1.0 - coins.share) * 1e-5
        at = accounting.curve(run, **terms)
        assert at is not None and at(training) == pytest.approx(known, rel=1e-2)
        secret = [(PoissonGaussian(1.0, 3.0), 1), *coins.charges.items()]
        assert accounting.epsilon(secret, **terms) < training
    assert accounting.epsilon([gaussian, *HoldOut(0.2, 9.0).charges.items()], **terms) == 9.0


def test_parts_of_two_runs_are_not_disjoint():
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    gaussian = PoissonGaussian(0.1, 4.0)
    first, second = ([(ParallelEvent(part, gaussian), 50)] for part in (0, 1))
    together = accounting.epsilon(first, second, **terms)
    assert together == accounting.epsilon([(gaussian, 100)], **terms)
    assert together > accounting.epsilon([*first, *second], **terms)


@given(st.permutations(range(4)))
def test_runs_that_released_nothing_and_their_order_change_nothing(order):
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "interval": 1e-2}
    gaussian = PoissonGaussian(0.1, 4.0)
    alone = [(gaussian, 20), *HoldOut(0.5, 0.1).charges.items()]
    runs = [alone, [], [(gaussian, 30)], [(PureDp(0.1), 0)]]
    assert accounting.epsilon(alone, [], [(PureDp(0.1), 0)], **terms) == accounting.epsilon(
        alone, **terms
    )
    assert accounting.epsilon(*(runs[i] for i in order), **terms) == pytest.approx(
        accounting.epsilon([(gaussian, 50), (PureDp(0.1), 1)], **terms), rel=1e-9
    )


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_the_curve_of_a_run_is_never_below_what_epsilon_says(adjacency):
    coins = HoldOut(0.3, 0.5)
    run = [(PoissonGaussian(0.2, 4.0), 60), (PureChoice(0.1), 1), *coins.charges.items()]
    at = accounting.curve(run, adjacency=adjacency, delta=1e-5)
    assert at is not None
    found = accounting.epsilon(run, adjacency=adjacency, delta=1e-5)
    assert at(found) <= 1e-5 * (1 + 1e-6)
    known = [at(e) for e in np.linspace(0.0, 3.0, 31)]
    assert known == sorted(known, reverse=True)
    for delta in (1e-4, 1e-3, 1e-2):  # far from where it is tight
        exact = accounting.epsilon(run, adjacency=adjacency, delta=delta)
        if exact > coins.epsilon:
            assert at(exact * (1 - 1e-5)) > delta * (1 - 1e-4) or adjacency is Adjacency.REPLACE
            assert at(exact) <= delta * 1.001


def test_groups_that_take_turns_are_one_in_each_of_several_runs():
    """Whoever is in one group in a run may be in any in the next, and in each run in one only."""
    event, terms = BandedGaussian(3, 0.2, 4.0), {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}
    run = [(ParallelEvent(group, event), 20 - bool(group)) for group in range(3)]
    one = accounting.epsilon([(PoissonGaussian(0.2, 4.0), 20)], **terms)
    assert accounting.epsilon(run, **terms) == one
    two = accounting.epsilon([(PoissonGaussian(0.2, 4.0), 40)], **terms)
    assert accounting.epsilon(run, run[::-1], **terms) == pytest.approx(two, rel=1e-9)
    assert accounting.epsilon(run, [(event, 20)], **terms) == pytest.approx(two, rel=1e-9)
