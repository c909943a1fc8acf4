import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from murmuration.privacy.accounting.events import LaplaceNoise
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.auditing import scratch_ledger
from murmuration.privacy.mechanisms import discrete_laplace
from murmuration.privacy.mechanisms.discrete_laplace import AbsoluteClip, LaplaceSum
from murmuration.privacy.mechanisms.randomness import Randomness


def draws(scale, count=4000):
    coins = Randomness(3).stream("laplace", scale.numerator)
    return np.array([discrete_laplace.draw(scale, coins) for _ in range(count)])


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(20)])
def test_distribution(scale):
    z_N = draws(scale)
    places = np.arange(-400, 401)
    expected = np.exp(-np.abs(places) / float(scale))
    expected /= expected.sum()
    seen = np.array([(z_N == place).sum() for place in places])
    kept = expected * len(z_N) >= 8
    tail = [len(z_N) - seen[kept].sum()], [(1 - expected[kept].sum()) * len(z_N)]
    observed = np.concatenate([seen[kept], tail[0]])
    wanted = np.concatenate([expected[kept] * len(z_N), tail[1]])
    assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-4
    assert discrete_laplace.std(scale) == pytest.approx(
        float(np.sqrt((expected * places**2).sum())), rel=1e-3
    )


def test_a_float_epsilon_is_taken_exactly():
    scale = 2**20 / Fraction(0.1)
    z_N = draws(scale, 400)
    assert len(np.unique(z_N)) > 390
    assert np.abs(z_N).mean() == pytest.approx(float(scale), rel=0.2)


def test_no_noise_without_a_scale():
    for scale in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="positive"):
            discrete_laplace.draw(scale, Randomness(1).stream("x"))


# The release of a sum.


def released(sums_D, *, noise=0.5, norm=3.0, adjacency=Adjacency.ADD_REMOVE, seed=0):
    mechanism = LaplaceSum(AbsoluteClip(norm), noise, adjacency)
    with scratch_ledger(adjacency) as ledger:
        noisy_D = mechanism.release(
            np.asarray(sums_D), round_=1, covers="sum", ledger=ledger, source=Randomness(seed)
        )
        assert [charge.event for charge in ledger.charges] == [LaplaceNoise(noise)]
    return mechanism, noisy_D


def test_nobody_adds_more_than_the_bound():
    clip = AbsoluteClip(3.0)
    rng = np.random.default_rng(0)
    rows = [*rng.standard_normal((20, 7)) * 5, [1e308] * 7, [1e-300] * 7, [-3.0] + [0.0] * 6]
    for row in rows:
        sum_D = clip.clip_sum(torch.tensor(np.array([row]))).numpy()
        assert np.abs(sum_D).sum() <= 3.0
        assert (sum_D % clip.step == 0).all()
    for bad in (math.nan, math.inf, -math.inf):
        assert not clip.clip_sum(torch.tensor([[bad] + [0.0] * 6])).any()
    short = np.full(7, 0.25)
    assert clip.clip_sum(torch.tensor(short[None])).numpy() == pytest.approx(short, abs=1e-6)
    apart = sum(clip.clip_sum(torch.tensor(np.array([row]))) for row in rows[:20])
    assert (clip.clip_sum(torch.tensor(np.array(rows[:20]))) == apart).all()
    assert clip.is_valid(apart.numpy(), 20) and not clip.is_valid(np.full(7, 9.0), 20)
    for norm in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="clip norm"):
            AbsoluteClip(norm)


def test_the_noise_is_that_of_the_bound():
    """P(noise)/P(noise moved by all that the bound lets a user move) is e^ε, from below, and
    draws are of that scale: E|noise| = scale."""
    mechanism, noisy_D = released(np.zeros(20_000))
    moved = math.floor(mechanism.clip.norm / mechanism.clip.step)
    assert 2.0 * (1 - 1e-7) < moved / mechanism.scale < 2.0
    scale = float(mechanism.scale) * mechanism.clip.step
    assert scale == pytest.approx(0.5 * 3.0, rel=1e-7)
    assert np.abs(noisy_D).mean() == pytest.approx(scale, rel=0.04)  # 5 standard deviations
    assert mechanism.std == pytest.approx(math.sqrt(2.0) * scale, rel=1e-6)
    assert (noisy_D % mechanism.clip.step == 0).all()


def test_a_move_in_many_coordinates_costs_no_more_than_in_one():
    """The exact ratio of probabilities on neighbours, two-sided: all of a user in one coordinate
    attains ε, and divided among five does not exceed it."""
    mechanism, _ = released(np.zeros(1))
    whole = math.floor(mechanism.clip.norm / mechanism.clip.step)
    for parts in ([whole], [whole // 5] * 5):
        at = [int(part) for part in parts]  # the farthest outcome: beyond each coordinate's move
        ratio = sum(abs(z - 0) - abs(z - part) for z, part in zip(at, parts, strict=True))
        loss = ratio / mechanism.scale
        assert 2.0 * (1 - 1e-6) < loss <= 2.0


def test_what_must_not_be_released_is_not():
    mechanism = LaplaceSum(AbsoluteClip(3.0), 0.5, Adjacency.REPLACE)
    terms = {"round_": 1, "covers": "sum", "source": Randomness(0)}
    other = scratch_ledger(Adjacency.ADD_REMOVE)
    with other as ledger, pytest.raises(ValueError, match="the ledger is for"):
        mechanism.release(np.zeros(2), ledger=ledger, **terms)
    with scratch_ledger(Adjacency.REPLACE) as ledger:
        for bad in (math.nan, math.inf, 0.1):
            with pytest.raises(ValueError, match="not on the grid"):
                mechanism.release(np.array([bad]), ledger=ledger, **terms)
        assert not ledger.charges


def test_whole_numbers_are_added_before_anything_is_rounded():
    """Floats would round the noise first, and so hide a vector of one step from itself."""
    step, scale = 2.0**-28, Fraction(2**54)
    one_D = np.full(200, step)
    noisy_D = discrete_laplace._with_noise(one_D, step, scale, Randomness(8).stream("x"))
    coins = Randomness(8).stream("x")
    noise = [discrete_laplace.draw(scale, coins) for _ in one_D]
    assert noisy_D.tolist() == [float((1 + whole) * Fraction(step)) for whole in noise]
    assert (noisy_D != one_D + np.array(noise, dtype=np.float64) * step).any()
