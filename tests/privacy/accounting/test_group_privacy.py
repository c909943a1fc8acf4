import math
from itertools import pairwise

import pytest
from scipy import optimize

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import (
    GroupGaussian,
    MixtureGaussian,
    PoissonGaussian,
    PureDp,
    Unprotected,
)
from murmuration.privacy.accounting.group_privacy import group_epsilon
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.theory.analytic_gaussian import delta_of

COARSE = 1e-3


def black_box(sigma, group_size, adjacency=Adjacency.ADD_REMOVE):
    """U's setting: p = 0.01, T = 2000, delta = 1e-6."""
    charges = [(PoissonGaussian(0.01, sigma), 2000)]
    return group_epsilon(
        charges, group_size=group_size, adjacency=adjacency, delta=1e-6, interval=COARSE
    )


def tight(sigma, group_size):
    return accountant.epsilon(
        [(MixtureGaussian(sigma, group_size, 0.01), 2000)],
        adjacency=Adjacency.ADD_REMOVE,
        delta=1e-6,
        interval=COARSE,
    )


def test_the_shape_of_the_published_figure():
    sizes = (1, 2, 4, 8, 16, 32, 64)
    boxed = [black_box(4.0, k) for k in sizes]
    mixed = [tight(4.0, k) for k in sizes]
    # A tight account is nowhere worse, and the gap widens until the black box certifies nothing.
    ratios = [b / m for b, m in zip(boxed, mixed, strict=True)]
    assert ratios[0] == pytest.approx(1.0, rel=0.02)
    assert all(ratio > 0.99 for ratio in ratios)
    assert all(later > earlier for earlier, later in pairwise(ratios[1:5]))
    assert boxed[4] == pytest.approx(11.49, abs=0.01)
    assert boxed[5] == pytest.approx(33.72, abs=0.01)
    assert boxed[6] == math.inf
    assert all(math.isfinite(value) for value in mixed)
    # More noise, later divergence; less noise, sooner.
    assert black_box(1.0, 8) == math.inf
    assert math.isfinite(black_box(8.0, 64))


@pytest.mark.parametrize(
    ("group_size", "rounds", "mu", "delta"),
    [
        (4, 10_000, 1.0, 1e-5),  # 30.07 by a convolution whose error nobody bounds
        (2, 200_000, 1.0, 1e-10),
        (8, 10_000, 0.3, 1e-5),
        (64, 1000, 0.05, 1e-5),
        (64, 100_000, 0.02, 1e-10),
        (4, 1_000_000, 1.0, 1e-5),
    ],
)
def test_the_conversion_of_one_gaussian(group_size, rounds, mu, delta):
    # Rounds at q = 1 are one Gaussian, whose curve d(e) has a closed form.
    def excess(example):
        factor = math.log(math.expm1(group_size * example) / math.expm1(example))
        return math.log(delta_of(1.0 / mu, example)) + factor - math.log(delta)

    exact = optimize.brentq(excess, delta, 20.0 / group_size + 8.0 * mu)
    found = group_epsilon(
        [(PoissonGaussian(1.0, math.sqrt(rounds) / mu), rounds)],
        group_size=group_size,
        adjacency=Adjacency.ADD_REMOVE,
        delta=delta,
    )
    assert group_size * exact <= found <= group_size * exact * 1.002


def test_one_example_needs_no_conversion():
    events = [(PoissonGaussian(0.1, 4.0), 50), (PureDp(0.2), 1)]
    for adjacency in Adjacency:
        terms = {"adjacency": adjacency, "delta": 1e-5, "interval": COARSE}
        alone = accountant.epsilon(events, **terms)
        assert group_epsilon(events, group_size=1, **terms) <= alone


def test_every_point_of_the_curve_counts():
    events = [(PoissonGaussian(0.02, 3.0), 300)]
    k, delta = 4, 1e-5
    found = group_epsilon(
        events, group_size=k, adjacency=Adjacency.ADD_REMOVE, delta=delta, interval=COARSE
    )
    event, rounds = events[0]

    def at_user_level(example):
        part = accountant.delta_for(
            example,
            {event: rounds},
            adjacency=Adjacency.ADD_REMOVE,
            interval=COARSE,
        )
        return part * math.expm1(k * example) / math.expm1(example)

    assert at_user_level(found / k) <= delta * (1 + 1e-9)  # Vadhan 2017, Lemma 2.2
    for smaller in (0.999, 0.9, 0.5, 0.1):
        assert at_user_level(smaller * found / k) > delta


def test_a_pure_mechanism_costs_exactly_k_times_as_much():
    terms = {"delta": 1e-9, "interval": COARSE}
    for k in (2, 5):
        found = group_epsilon(
            [(PureDp(0.3), 1)], group_size=k, adjacency=Adjacency.ZERO_OUT, **terms
        )
        assert found == pytest.approx(0.3 * k, rel=1e-2)


def test_what_is_released_beside_groups_takes_its_part_of_delta():
    adjacency, run = Adjacency.ADD_REMOVE, [(PoissonGaussian(0.01, 4.0), 2000)]
    at_half = {"adjacency": adjacency, "delta": 5e-7, "interval": COARSE}
    beside = [(PoissonGaussian(0.1, 4.0), 50)]
    apart = group_epsilon(run, group_size=4, **at_half) + accountant.epsilon(beside, **at_half)
    grouped = [(GroupGaussian(4.0, 4, 0.01), 2000)]
    found = accountant.epsilon([*grouped, *beside], **{**at_half, "delta": 1e-6})
    assert found == pytest.approx(apart, rel=1e-9)


def test_a_replaced_user_takes_the_better_of_two_ways():
    for sigma, k in ((4.0, 2), (8.0, 4)):
        replaced = black_box(sigma, k, Adjacency.REPLACE)
        assert black_box(sigma, k) < replaced
        # As many again that come as go; and never more than that.
        assert replaced <= black_box(sigma, 2 * k) * (1 + 1e-9)
        assert black_box(sigma, k, Adjacency.REPLACE_LABELS) == replaced
        assert black_box(sigma, k, Adjacency.ZERO_OUT) == black_box(sigma, k)


def test_growing_groups_cost_more_and_more_noise_less():
    values = [black_box(6.0, k) for k in range(1, 8)]
    assert values == sorted(values)
    assert black_box(7.0, 6) < black_box(6.0, 6)


def test_nothing_and_everything():
    terms = {"group_size": 3, "adjacency": Adjacency.REPLACE, "delta": 1e-5}
    assert group_epsilon([], **terms) == 0.0
    assert group_epsilon([(Unprotected(), 1)], **terms) == math.inf
    quiet = [(PoissonGaussian(1e-4, 100.0), 1)]
    assert group_epsilon(quiet, **terms) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_delta_out_of_range_is_refused(delta):
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        group_epsilon([], group_size=2, adjacency=Adjacency.REPLACE, delta=delta)


def test_a_group_of_none_is_refused():
    with pytest.raises(ValueError, match="group size must be at least 1"):
        group_epsilon([], group_size=0, adjacency=Adjacency.REPLACE, delta=1e-5)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_noise_can_be_calibrated_for_groups(adjacency):
    plan = {"delta": 1e-6, "adjacency": adjacency}
    sigma = accountant.calibrate_noise(2.0, lambda s: {GroupGaussian(s, 8, 0.01): 100}, **plan)
    found = group_epsilon([(PoissonGaussian(0.01, sigma), 100)], group_size=8, **plan)
    assert 2.0 * (1 - 1.1e-4) <= found <= 2.0
