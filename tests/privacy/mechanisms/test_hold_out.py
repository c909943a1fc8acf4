import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import (
    GroupGaussian,
    HoldOut,
    ParallelEvent,
    PoissonGaussian,
    PureChoice,
    PureDp,
    of_several_runs,
)
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms import hold_out

ADD, DELTA, SHARE = Adjacency.ADD_REMOVE, 1e-5, 0.2
GAUSSIAN = PoissonGaussian(0.1, 4.0)


def epsilon(*charges, adjacency=ADD, delta=DELTA, interval=1e-4):
    return accountant.epsilon(charges, adjacency=adjacency, delta=delta, interval=interval)


def held(epsilon_held, share=SHARE):
    return HoldOut(share, epsilon_held).charges.items()


def gaussian_profile(mu):
    def profile(at):
        upper = stats.norm.cdf(mu / 2 - at / mu)
        return float(upper - math.exp(at + stats.norm.logcdf(-mu / 2 - at / mu)))

    return profile


def integrated(mu, share, epsilon_held, alpha):
    """Both divergences of the mixture from its definition: l_R normal, e^{l_H} of two values."""
    found = []
    for into in (True, False):
        total = 0.0
        for sign in (1.0, -1.0):
            y = math.exp(sign * epsilon_held)
            weight = 1.0 / (1.0 + y)

            def at(loss, y=y, into=into):
                ratio = (1 - share) * math.exp(loss) + share * y
                value = ratio - alpha if into else 1.0 - alpha * ratio
                return max(0.0, value) * stats.norm.pdf(loss, -(mu**2) / 2, mu)

            far = 12 * mu
            edge = ((alpha if into else 1 / alpha) - share * y) / (1 - share)
            corner = [math.log(edge)] if edge > 0 and abs(math.log(edge)) < far else None
            total += weight * integrate.quad(at, -far, far, points=corner, limit=400)[0]
        found.append(total)
    return max(found)


@pytest.mark.parametrize("epsilon_held", [1e-9, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize("share", [0.2, 0.7])
def test_delta_is_that_of_the_mixture_integrated(share, mu, epsilon_held):
    coins = HoldOut(share, epsilon_held)
    for more in (0.0, 0.1, 0.5, 1.0, 2.0):
        at = coins.alone + more
        exact = integrated(mu, share, epsilon_held, math.exp(at))
        got = hold_out.mixed_delta(at, coins, gaussian_profile(mu))
        assert got == pytest.approx(exact, abs=1e-9, rel=1e-5)


@pytest.mark.parametrize("epsilon_held", [0.1, 0.5, 1.0])
def test_epsilon_is_that_of_the_mixture_integrated(epsilon_held):
    sigma = 4.0
    got = epsilon((PoissonGaussian(1.0, sigma), 1), *held(epsilon_held))
    exact = optimize.brentq(
        lambda at: integrated(1 / sigma, SHARE, epsilon_held, math.exp(at)) - DELTA,
        HoldOut(SHARE, epsilon_held).alone,
        3.0,
    )
    assert got == pytest.approx(exact, abs=1e-4)
    assert got >= exact - 1e-6


def test_the_mixture_against_trials_of_its_own():
    """A run of one bit and a figure of one bit: every event is counted, in both directions."""
    run, told, share = 0.8, 0.4, 0.3
    p, q = (np.array([1, math.exp(e)]) / (1 + math.exp(e)) for e in (run, told))
    with_user = (1 - share) * np.outer(p, q[::-1]) + share * np.outer(p[::-1], q)
    without = np.outer(p[::-1], q[::-1])

    def profile(at):
        return float(np.maximum(p - math.exp(at) * p[::-1], 0).sum())

    coins = HoldOut(share, told)
    for at in (coins.alone, 0.4, 0.6, 0.75):
        exact = max(
            np.maximum(a - math.exp(at) * b, 0).sum()
            for a, b in ((with_user, without), (without, with_user))
        )
        assert hold_out.mixed_delta(at, coins, profile) == pytest.approx(exact, abs=1e-12)


def test_targets_where_only_a_point_of_the_run_is_used():
    # A run that may spend this much at δ/(1−h): the figures of the first estimate.
    for epsilon_held, run in ((0.0, 1.147), (0.1, 1.138), (1.0, 1.0)):
        got = hold_out.mixed_point(HoldOut(SHARE, epsilon_held), lambda _, run=run: run, DELTA)
        assert got == pytest.approx(1.0, abs=6e-4)


@pytest.mark.parametrize(("epsilon_held", "less"), [(1e-6, 0.127), (0.5, 0.119), (1.0, 0.032)])
def test_how_much_noise_a_hold_out_saves(epsilon_held, less):
    def calibrated(*more):
        return accountant.calibrate_noise(
            1.0, lambda s: {PoissonGaussian(0.2, s): 200, **dict(more)}, delta=DELTA, adjacency=ADD
        )

    assert 1 - calibrated(*held(epsilon_held)) / calibrated() == pytest.approx(less, abs=1e-3)


def test_almost_nobody_held_out_is_the_run_alone():
    share = 2.0**-11
    alone = epsilon((GAUSSIAN, 100))
    assert epsilon((GAUSSIAN, 100), *held(0.1, share)) == pytest.approx(alone, rel=2e-3)
    assert epsilon((GAUSSIAN, 100), *held(0.1, share)) <= alone


def test_almost_everybody_held_out_is_what_is_said_of_them():
    assert epsilon((GAUSSIAN, 100), *held(0.7, 0.99999)) == pytest.approx(0.7, abs=1e-3)


def exact_mixture(share, epsilon_held, epsilon, loss):
    """Of a run that is randomized response at ``loss``: δ by its definition, in fractions."""
    h, alpha = Fraction(share), Fraction(math.exp(epsilon))
    into, back = Fraction(0), Fraction(0)
    for y in (Fraction(math.exp(epsilon_held)), 1 / Fraction(math.exp(epsilon_held))):
        for x in (Fraction(math.exp(loss)), 1 / Fraction(math.exp(loss))):
            weight = 1 / (1 + y) / (1 + x)  # of both, without the user
            ratio = (1 - h) * x + h * y
            into += weight * max(0, ratio - alpha)
            back += weight * max(0, 1 - alpha * ratio)
    return float(max(into, back))


@pytest.mark.parametrize("share", [1 - 1e-7, 1 - 1e-12, 1 - 1e-14, 1 - 2.0**-53])
@pytest.mark.parametrize("epsilon_held", [0.0, 1e-9, 1.0, 10.0])
def test_whatever_is_rounded_counts_where_nearly_everybody_is_held_out(share, epsilon_held):
    def profile(epsilon):
        return max(0.0, -math.expm1(epsilon - 3.0)) / (1.0 + math.exp(-3.0)) * (1 + 1e-12)

    for part in (0.8, 0.3, 1e-2):
        delta = (1 - share) * part
        found = hold_out.mixed_epsilon(HoldOut(share, epsilon_held), profile, delta)
        assert exact_mixture(share, epsilon_held, found, 3.0) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.ZERO_OUT])
def test_no_run_costs_what_being_held_out_costs(adjacency):
    got = epsilon(*held(1.0), adjacency=adjacency)
    assert got == pytest.approx(math.log(0.8 + 0.2 * math.e), rel=1e-6)
    assert epsilon((HoldOut(SHARE), 1)) == 0.0


def test_never_more_than_the_dearer_half_and_monotone():
    run = [epsilon((GAUSSIAN, n)) for n in (20, 100)]
    for spent, times in zip(run, (20, 100), strict=True):
        costs = [epsilon((GAUSSIAN, times), *held(e)) for e in (0.0, 0.2, 0.4, 0.8, 1.6)]
        assert costs == sorted(costs)
        assert all(c <= max(spent, e) for c, e in zip(costs, (0, 0.2, 0.4, 0.8, 1.6), strict=True))
    for shares in ((0.1, 0.2, 0.5, 0.9),):
        costs = [epsilon((GAUSSIAN, 100), *held(0.1, share)) for share in shares]
        assert costs == sorted(costs, reverse=True)


def test_a_second_release_about_the_same_users_adds_up():
    twice = epsilon((GAUSSIAN, 100), (HoldOut(SHARE), 1), (HoldOut(SHARE, 0.3), 2))
    assert twice == epsilon((GAUSSIAN, 100), *held(0.6))


@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE, Adjacency.REPLACE_LABELS])
def test_where_users_are_replaced_the_dearer_half_counts(adjacency):
    run = epsilon((GAUSSIAN, 100), adjacency=adjacency)
    for epsilon_held in (0.1, run, run + 1):
        got = epsilon((GAUSSIAN, 100), *held(epsilon_held), adjacency=adjacency)
        assert got == max(run, epsilon_held)


def test_a_choice_shifts_the_curve():
    rounds = (GAUSSIAN, 100)
    got = epsilon(rounds, (PureChoice(0.1), 1), *held(0.2))
    # By a point of the curve, which costs a little more.
    most = hold_out.mixed_point(
        HoldOut(SHARE, 0.2), lambda delta: 0.1 + epsilon(rounds, delta=delta), DELTA
    )
    assert epsilon(rounds, *held(0.2)) < got <= most


def test_parts_count_as_their_dearest():
    got = epsilon((ParallelEvent(1, GAUSSIAN), 50), (ParallelEvent(2, GAUSSIAN), 100), *held(0.2))
    assert got == epsilon((GAUSSIAN, 100), *held(0.2))


def test_group_privacy_is_mixed_by_a_point():
    grouped = (GroupGaussian(20.0, 4, 0.05), 100)
    run, part = epsilon(grouped), epsilon(grouped, delta=DELTA / 0.8)
    got = epsilon(grouped, *held(0.3))
    assert got == pytest.approx(math.log(0.8 * math.exp(part) + 0.2 * math.exp(0.3)), rel=1e-9)
    assert got < run


def test_an_unprotected_run_stays_one():
    assert epsilon((events.Unprotected(), 1), *held(0.2)) == math.inf


@pytest.mark.parametrize("second", [(HoldOut(0.9), 1), (HoldOut(0.2), 2)])
@pytest.mark.parametrize("accounted", [accountant.epsilon, accountant.curve])
def test_a_run_tosses_its_coins_once_for_one_share(second, accounted):
    """What has two hold-outs is of two runs, whoever put their events together."""
    charges = [(GAUSSIAN, 100), (HoldOut(0.2, 0.3), 1), second]
    with pytest.raises(ValueError, match=r"^the events of several runs.*the events of each run by"):
        accounted(charges, adjacency=ADD, delta=DELTA)


def test_a_user_who_is_held_out_for_certain_costs_randomized_response():
    coins = HoldOut(0.2, 1.3)
    losses = {1.3: 1 / (1 + math.exp(-1.3)), -1.3: 1 / (1 + math.exp(1.3))}
    for at in (0.0, 0.4, 1.2999, 1.3, 5.0):
        exact = sum(p * max(0.0, 1.0 - math.exp(at - loss)) for loss, p in losses.items())
        assert coins.delta_alone(at) == pytest.approx(exact, abs=1e-15)


def test_several_runs_compose_without_coins():
    charges = [(GAUSSIAN, 100), (ParallelEvent(1, GAUSSIAN), 5), *held(0.3)]
    assert of_several_runs(charges) == [(GAUSSIAN, 105), (PureDp(0.3), 1)]


def test_round_trip_and_limits():
    event = HoldOut(0.2, 0.5)
    assert events.from_json(events.to_json(event)) == event
    assert event.charges == {HoldOut(0.2, 0.0): 1, event: 1}
    for bad in ((0.0, 1.0), (1.0, 1.0), (1e-4, 1.0), (0.2, -1.0), (0.2, math.nan), (0.2, 501.0)):
        with pytest.raises(ValueError, match="held"):
            HoldOut(*bad)
    with pytest.raises(Unsupported):
        epsilon((events.MixtureGaussian(2.0, 2, 0.1), 1), *held(0.1), adjacency=Adjacency.REPLACE)


@pytest.mark.parametrize("share", [0.2, 1 / 3, 2.0**-11, 0.001, 0.999])
def test_the_bar_of_the_coin_is_the_share_exactly(share):
    assert hold_out.bar(share) / 2**64 == share
    assert hold_out.bar(share) == math.ceil(share * 2**64)


def test_who_is_held_out_is_known_to_those_who_have_the_key_alone():
    users_N, runs = np.arange(2000, dtype=np.uint64), (bytes(32), bytes([1] * 32))
    one_N, other_N = (hold_out.held_out(users_N, 0.5, key) for key in runs)
    assert (one_N == hold_out.held_out(users_N, 0.5, runs[0])).all()
    assert 900 < (one_N == other_N).sum() < 1100
    with pytest.raises(ValueError, match="32 bytes"):
        hold_out.held_out(users_N, 0.5, bytes(31))
