"""The sandwich, and the bound that is charged, against exact sums where these can be computed."""

import itertools
import json
import math

import numpy as np
import pytest
from by_dp_accounting import loss_of
from scipy import stats

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import GroupGaussian, PoissonGaussian, PureDp
from murmuration.privacy.accounting.grid_noise import (
    DiscretizedGaussian,
    delta_overhead,
    shares_apart,
)
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency, Unsupported

GAUSSIAN = PoissonGaussian(0.2, 1.5)


def discrete(scale, reach):
    """Points and probabilities of the discrete Gaussian, normalised exactly enough."""
    z = np.arange(-reach, reach + 1)
    weights = np.exp(-(z.astype(np.float64) ** 2) / (2 * scale**2))
    return z, weights / weights.sum()


def rounded(scale, z):
    """Probabilities of the rounded Gaussian; from the tail that is small."""
    low, high = (np.abs(z) - 0.5) / scale, (np.abs(z) + 0.5) / scale
    return np.where(z == 0, 1 - 2 * stats.norm.sf(high), stats.norm.sf(low) - stats.norm.sf(high))


@pytest.mark.parametrize("scale", [1.0, 2.0, 5.5, 40.0])
def test_the_sandwich_holds_at_every_point(scale):
    z, found = discrete(scale, int(12 * scale))
    ratio = np.log(found / rounded(scale, z))
    assert (ratio <= 1 / (24 * scale**2) * (1 + 1e-6) + 1e-12).all()
    below = z**2 / (24 * scale**4) + 3 * math.exp(-2 * math.pi**2 * scale**2)
    assert (-ratio <= below * (1 + 1e-6) + 1e-10).all()
    # And neither side is idle: both are nearly attained.
    assert ratio.max() > 0.95 / (24 * scale**2)
    assert (-ratio).max() > 0.4 * below.max()


def hockey_stick(first, second, alpha):
    return float(np.maximum(first - alpha * second, 0.0).sum())


def shifted(weights, by):
    return np.roll(weights, by, axis=tuple(range(len(by))))


@pytest.mark.parametrize("probability", [1.0, 0.3])
@pytest.mark.parametrize(
    ("scale", "shifts"),
    [(6.0, [(4,), (-4,)]), (40.0, [(60,), (60,)]), (16.0, [(12, 16), (-12, -16)])],
)
def test_the_exact_divergence_is_within_the_bound(scale, shifts, probability):
    """Sampled discrete Gaussians in one and two dimensions, every direction of every relation."""
    dimension = len(shifts[0])
    length = max(math.hypot(*shift) for shift in shifts)
    _, one = discrete(scale, int(14 * scale))
    base = one if dimension == 1 else np.outer(one, one)
    with_first, with_second = (
        (1 - probability) * base + probability * shifted(base, shift) for shift in shifts
    )
    event = PoissonGaussian(probability, scale / length)
    more = delta_overhead(dimension, scale, 1 / event.noise_multiplier)
    assert more < 1.0
    pairs = {
        Adjacency.ADD_REMOVE: [(base, with_first), (with_first, base)],
        Adjacency.REPLACE: [(with_first, with_second), (with_second, with_first)],
    }
    for adjacency, both in pairs.items():
        loss = loss_of(event, adjacency, 1e-3)
        for epsilon in (0.0, 0.2, 0.5, 1.0, 2.0, 4.0):
            continuous = float(loss.get_delta_for_epsilon(epsilon))
            for first, second in both:
                exact = hockey_stick(first, second, math.exp(epsilon))
                assert exact <= continuous + more + 1e-9


def test_the_continuous_loss_alone_would_be_false():
    """At small scales there are ε at which the discrete noise costs more: the rest is needed."""
    worst = 0.0
    for scale, shift in itertools.product((1.0, 1.5, 2.0), (1, 2)):
        _, base = discrete(scale, int(14 * scale))
        mu = shift / scale
        for epsilon in np.linspace(0.0, 3.0, 31):
            exact = hockey_stick(base, np.roll(base, shift), math.exp(epsilon))
            # Balle and Wang 2018, Theorem 8.
            continuous = stats.norm.cdf(mu / 2 - epsilon / mu)
            continuous -= math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
            assert exact - continuous <= delta_overhead(1, scale, mu)
            worst = max(worst, exact - continuous)
    assert worst > 1e-3


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_composed_it_is_at_least_the_continuous_cost_and_barely_more(adjacency):
    def cost(event):
        return accountant.epsilon([(event, 50)], adjacency=adjacency, delta=1e-5, interval=1e-3)

    plain, fine = cost(GAUSSIAN), cost(DiscretizedGaussian(GAUSSIAN, 100_000, 28))
    assert plain <= fine <= plain + 1e-5
    coarse = cost(DiscretizedGaussian(GAUSSIAN, 1000, 18))
    assert coarse > fine + 1e-5


def test_the_mass_that_is_moved_shows_in_delta_exactly():
    event = DiscretizedGaussian(GAUSSIAN, 1000, 10)
    loss, plain = (loss_of(e, Adjacency.ADD_REMOVE, 1e-3) for e in (event, GAUSSIAN))
    assert 1e-5 < event.delta_overhead < 1e-3
    for epsilon in (0.0, 0.5, 1.0, 3.0, 10.0):
        more = loss.get_delta_for_epsilon(epsilon) - plain.get_delta_for_epsilon(epsilon)
        assert more == pytest.approx(event.delta_overhead, rel=1e-6)


def test_excess_grows_with_dimension_and_reach_and_falls_with_scale():
    base = delta_overhead(1000, 2.0**20, 1.0)
    assert delta_overhead(2000, 2.0**20, 1.0) > base
    assert delta_overhead(1000, 2.0**20, 30.0) > base
    assert delta_overhead(1000, 2.0**21, 1.0) < base / 3
    assert delta_overhead(10, 1e-3, 1.0) == math.inf
    assert delta_overhead(10_000, 2.0**28, 1.0) == pytest.approx(1.9e-14, rel=0.02)


def test_a_mixture_of_examples_has_a_discrete_form_too():
    mixture = MixtureGaussian(2.0, 4, 0.05)
    event = DiscretizedGaussian(mixture, 100, 28)
    for relation in (Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT):
        plain, found = (
            accountant.epsilon([(e, 50)], adjacency=relation, delta=1e-6, interval=1e-3)
            for e in (mixture, event)
        )
        assert plain <= found <= plain + 1e-6
    with pytest.raises(Unsupported):
        event.loss(Adjacency.REPLACE, 1e-3)
    # A user moves the sum by up to four clip norms.
    assert (
        DiscretizedGaussian(mixture, 2, 10).delta_overhead
        > DiscretizedGaussian(PoissonGaussian(0.05, 2.0), 2, 10).delta_overhead
    )


def test_it_is_written_to_ledgers_and_read_again():
    for event in (
        DiscretizedGaussian(GAUSSIAN, 7, 28),
        DiscretizedGaussian(MixtureGaussian(2.0, 4, 0.05), 7, 20),
    ):
        assert events.from_json(json.loads(json.dumps(events.to_json(event)))) == event
        assert hash(event) == hash(
            DiscretizedGaussian(event.event, event.dimension, event.precision)
        )
    with pytest.raises(ValueError):
        events.from_json({"kind": "on-grid", "event": {"kind": "?"}, "dimension": 1})


@pytest.mark.parametrize(
    ("event", "dimension", "precision", "message"),
    [
        (PureDp(1.0), 1, 28, "no discrete form"),
        (GAUSSIAN, 0, 28, "dimension"),
        (GAUSSIAN, 1.5, 28, "dimension"),
        (GAUSSIAN, 1, -1, "precision"),
        (GAUSSIAN, 1, 60, "precision"),
        (PoissonGaussian(0.1, 0.4), 1, 0, "too coarse"),
        (GAUSSIAN, 10_000, 4, "too coarse"),
    ],
)
def test_what_nothing_can_be_said_about(event, dimension, precision, message):
    with pytest.raises(ValueError, match=message):
        DiscretizedGaussian(event, dimension, precision)


def test_group_privacy_has_none_that_composes():
    with pytest.raises(ValueError, match="other events cannot join"):
        DiscretizedGaussian(GroupGaussian(2.0, 4, 0.05), 10, 28).loss(Adjacency.ADD_REMOVE, 1e-3)


@pytest.mark.parametrize("share", [0.5, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("parties", [2, 3, 4, 7])
def test_the_sum_of_shares_is_one_draw_but_for_tau(share, parties):
    """Exactly, by convolution: the logarithm of the ratio, at every point that can be told."""
    z = np.arange(-200, 201)
    one = np.exp(-(z**2) / (2 * share**2))
    one /= one.sum()
    several = one
    for _ in range(parties - 1):
        several = np.convolve(several, one)  # positive terms: exact to the last digits
    middle = len(several) // 2
    several = several[middle - 200 : middle + 201]
    whole = np.exp(-(z**2) / (2 * parties * share**2))
    whole /= whole.sum()
    here = whole > 1e-30
    apart = np.abs(np.log(several[here] / whole[here])).max()
    scale = share * math.sqrt(parties)
    assert apart <= shares_apart(scale, parties) + 1e-12
    if share <= 0.7:
        assert apart > 1e-3 * shares_apart(scale, parties)  # it is about this, and not vacuous


def test_noise_in_shares_costs_more_where_shares_are_small_and_no_more_where_they_are_not():
    small = [
        DiscretizedGaussian(PoissonGaussian(0.5, 4.0), 1, 0, parties).delta_overhead
        for parties in (1, 4, 9, 16)
    ]
    assert small == sorted(small)
    assert small[-1] > small[0] + 3 * shares_apart(4.0, 16) > small[0] + 0.02
    event = PoissonGaussian(0.5, 1.0)
    assert (
        DiscretizedGaussian(event, 10_000, 28, 1000).delta_overhead
        == DiscretizedGaussian(event, 10_000, 28).delta_overhead
    )
    with pytest.raises(ValueError, match="too coarse"):
        DiscretizedGaussian(PoissonGaussian(0.5, 4.0), 1, 0, 17)  # shares of less than one step


@pytest.mark.parametrize("parties", [0, -1, 1.0, True])
def test_parties_are_counted(parties):
    with pytest.raises(ValueError, match="at least one party"):
        DiscretizedGaussian(PoissonGaussian(0.5, 4.0), 1, 4, parties)
