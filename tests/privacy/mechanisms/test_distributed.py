"""Noise in shares: as much as is accounted for, and two figures that are not mixed up."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import PoissonGaussian, PureDp
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise, installed
from murmuration.privacy.mechanisms.distributed import (
    DistributedNoise,
    NodeNoise,
    NoisySum,
    against_server,
    node_noise,
    with_share,
)
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.adaptive import AdaptivePlan
from murmuration.strategies.els import ElsPlan

needs_opendp = pytest.mark.skipif(not installed(), reason="needs OpenDP")
ADJACENCY, DELTA = Adjacency.ZERO_OUT, 1e-6


def event(q=0.25, sigma=4.0, dimension=100, parties=6):
    return DistributedNoise(dimension, parties).charged(PoissonGaussian(q, sigma))


def cost(charges):
    return accountant.epsilon(charges.items(), adjacency=ADJACENCY, delta=DELTA)


def noise_of(parties=4, std=3.0, step=2.0**-20):
    return NodeNoise(parties, {"sum": NoisySum(std, step, 1.0)})


@needs_opendp
@pytest.mark.parametrize("parties", [2, 3, 7])
def test_shares_come_to_the_whole_noise_no_less_and_no_more(parties, checks):
    noise, step, size = noise_of(parties), 2.0**-20, 30_000
    total = np.zeros(size, dtype=np.int64)
    for _ in range(parties):
        total += with_share({"sum": np.zeros(size, np.int64)}, {"sum": step}, noise.shares)["sum"]
    checks.gaussian_noise(total * step, 3.0)


@needs_opendp
def test_each_share_is_drawn_anew_and_added_to_what_was_there():
    noise, step = noise_of(), {"sum": 2.0**-20}
    before = np.arange(1000, dtype=np.int64) << 30
    first, second = (with_share({"sum": before}, step, noise.shares)["sum"] for _ in range(2))
    assert (first != second).mean() > 0.99
    scale = noise.shares["sum"] * 2**20
    for found in (first, second):
        tail = stats.chi2.cdf((((found - before) / scale) ** 2).sum(), len(before))
        assert 1e-6 < tail < 1 - 1e-6


@needs_opendp
def test_noise_is_in_the_units_of_the_sum_whatever_grid_is_asked_for():
    """Whoever asks chooses the grid: a finer one must not make less noise."""
    noise, zero = noise_of(), np.zeros(20_000, dtype=np.int64)
    for step in (2.0**-20, 2.0**-30, 2.0**-5):
        found = with_share({"sum": zero}, {"sum": step}, noise.shares)["sum"] * step
        assert found.std() == pytest.approx(1.5, rel=0.03)
    with pytest.raises(ValueError, match="cannot be drawn"):
        with_share({"sum": zero}, {"sum": 2.0}, noise.shares)  # coarser than the noise


@needs_opendp
def test_a_sum_without_noise_is_not_passed_on():
    zero = np.zeros(3, dtype=np.int64)
    for sums, shares in (({"sum": zero, "within": zero}, {"sum": 1.0}), ({"sum": zero}, {})):
        with pytest.raises(ValueError, match="noise is for"):
            with_share(sums, dict.fromkeys(sums, 0.5), shares)


@needs_opendp
def test_nothing_gets_the_whole_noise(checks):
    noise = noise_of(parties=5)
    found = noise.on_nothing({"sum": (150, 200)})["sum"]
    assert found.shape == (150, 200)
    checks.gaussian_noise(found.ravel(), 3.0)


@given(st.integers(2, 1000), st.floats(1e-6, 1e6))
def test_shares_are_never_less_than_the_whole(parties, std):
    share = NoisySum(std, 1.0, 1.0).share(parties)
    whole = float(np.sqrt(np.longdouble(parties)) * np.longdouble(share))
    assert std <= whole <= std * (1 + 1e-12)


def test_the_noise_that_plans_ask_of_nodes_is_what_they_charge():
    """Of all sums together, by how far a user can move each: the event's own multiplier."""
    both = DistributedNoise(11, 6)
    plan = AdaptivePlan.for_epsilon(
        2.0, users=400, cohort=100, rounds=5, delta=DELTA, adjacency=ADJACENCY, discrete=both
    )
    clip = plan.clip
    noisy = {
        "sum": NoisySum(plan.noise_multiplier * clip.norm, clip.step, clip.norm),
        "within": NoisySum(plan.count_noise, grid.COUNT_STEP, plan.middle),
    }
    found = node_noise(both, noisy)
    charged = plan.mechanism.event
    assert found.noise_multiplier == pytest.approx(charged.noise_multiplier, rel=1e-12)
    assert node_noise(DiscreteNoise(11), noisy) is None
    assert node_noise(None, noisy) is None


def test_the_server_knows_who_is_in_a_round():
    """What it sees costs what a full cohort would; what is published is sampled."""
    published = {event(): 20}
    seen = against_server(published)
    assert seen == {event(q=1.0): 20}
    assert cost(seen) == pytest.approx(cost({PoissonGaussian(1.0, 4.0): 20}), abs=1e-4)
    assert cost(seen) > 2.5 * cost(published)


def test_coins_that_nodes_toss_go_on_counting():
    noise = DistributedNoise(100, 6)
    mixture = noise.charged(MixtureGaussian(4.0, 8, 0.1))
    assert against_server({mixture: 3}) == {mixture: 3}


@pytest.mark.parametrize("honest", [1, 2, 5, 6, 60])
def test_fewer_honest_nodes_are_less_noise_and_more_are_no_more(honest):
    (seen,) = against_server({event(): 1}, honest)
    there = min(honest, 6)
    assert seen.parties == there
    expected = 4.0 * math.sqrt(there / 6)
    assert expected * (1 - 1e-12) <= seen.noise_multiplier <= expected


@pytest.mark.parametrize(
    "other",
    [
        PoissonGaussian(0.5, 4.0),
        DiscretizedGaussian(PoissonGaussian(0.5, 4.0), 100, 28),
        PureDp(0.1),
        HoldOut(0.2, 0.5),
    ],
)
def test_where_the_server_adds_noise_itself_nothing_is_said_of_what_it_sees(other):
    assert against_server({event(): 5, other: 1}) is None
    assert against_server({event(): 5}, honest=0) is None


def test_equal_views_of_different_events_are_counted_together():
    assert against_server({event(q=0.1): 3, event(q=0.7): 4}) == {event(q=1.0): 7}


def test_the_cost_is_that_of_one_draw_and_it_survives_the_ledger():
    assert cost({event(): 20}) == pytest.approx(
        cost({DiscreteNoise(100).charged(PoissonGaussian(0.25, 4.0)): 20}), abs=1e-9
    )
    found = events.from_json(events.to_json(event()))
    assert found == event()
    old = events.to_json(DiscreteNoise(100).charged(PoissonGaussian(0.25, 4.0)))
    del old["parties"]  # as ledgers of before have it
    assert events.from_json(old) == DiscreteNoise(100).charged(PoissonGaussian(0.25, 4.0))


@pytest.mark.parametrize("parties", [0, 1])
def test_one_party_is_no_company(parties):
    with pytest.raises(ValueError, match="at least two parties"):
        DistributedNoise(3, parties)


def test_a_release_adds_nothing_and_takes_nothing_that_nodes_cannot_have_sent():
    noise, step = DistributedNoise(3, 2), np.full(3, 2.0**-4)
    sum_D = np.array([0.5, -7.0, 0.0625])
    assert noise.add(sum_D, np.ones(3), step, Randomness(None)).tolist() == sum_D.tolist()
    with pytest.raises(ValueError, match="not on the grid"):
        noise.add(sum_D + 0.01, np.ones(3), step, Randomness(None))
    with pytest.raises(ValueError, match="3 coordinates"):
        noise.add(sum_D[:2], np.ones(2), step[:2], Randomness(None))
    with pytest.raises(ValueError, match="no seed"):
        noise.add(sum_D, np.ones(3), step, Randomness(1))


def test_how_long_noise_may_be():
    """A node that sends nonsense is still noticed; honest noise is not taken for it."""
    noise = noise_of(parties=4, std=3.0)
    shapes = {"sum": (100,)}
    assert noise.in_users(4, shapes) == math.ceil(3.0 * (10.0 + 10.0))
    assert noise.in_users(2, shapes) == noise.in_users(4, shapes)
    assert noise.in_users(16, shapes) == math.ceil(2 * 3.0 * 20.0)


def test_no_noise_is_no_multiplier():
    assert NodeNoise(2, {"sum": NoisySum(0.0, 1.0, 1.0)}).noise_multiplier == 0.0


def test_els_against_the_server_costs_what_is_published():
    plan = ElsPlan.for_epsilon(
        3.0,
        users=400,
        group_size=4,
        probability=0.2,
        rounds=20,
        delta=DELTA,
        adjacency=ADJACENCY,
        clip=ExampleClip(0.1),
        discrete=DistributedNoise(10, 5),
    )
    assert against_server(plan.charges) == plan.charges
