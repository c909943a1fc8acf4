import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.mechanisms import discrete_laplace
from murmuration.privacy.mechanisms.discrete_laplace import AbsoluteClip, LocalLaplace
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


# One user's own vector.

ANY = st.lists(st.floats(width=64), min_size=1, max_size=5)


def in_steps(mechanism, vector):
    """A clipped vector, in whole steps."""
    clipped_V = mechanism.clip.clip_sum(torch.tensor([[*vector]], dtype=torch.float64))
    return [int(value) for value in (clipped_V / mechanism.clip.step).tolist()]


@given(ANY, ANY, st.floats(1e-3, 50.0), st.floats(1e-3, 1e3))
def test_no_two_vectors_are_told_apart_by_more_than_epsilon(one, other, epsilon, norm):
    """The ratio of probabilities of any result is at most exp of their distance over the scale."""
    mechanism = LocalLaplace(AbsoluteClip(norm), epsilon)
    size = min(len(one), len(other))
    first, second = (in_steps(mechanism, each[:size]) for each in (one, other))
    apart = sum(abs(a - b) for a, b in zip(first, second, strict=True))
    assert Fraction(apart) / mechanism.scale <= Fraction(epsilon)


@pytest.mark.parametrize("norm", [0.3, 1.0, 7.0])
def test_the_farthest_vectors_cost_nearly_all_of_it(norm):
    mechanism = LocalLaplace(AbsoluteClip(norm), 2.0)
    first, second = (in_steps(mechanism, [sign * 1e9, 0.0]) for sign in (1, -1))
    cost = float((first[0] - second[0]) / mechanism.scale)
    assert 2.0 * 0.9999 < cost <= 2.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_nothing(bad):
    assert in_steps(LocalLaplace(AbsoluteClip(1.0), 1.0), [0.5, bad]) == [0, 0]


def test_short_vectors_stay_as_they_are():
    mechanism = LocalLaplace(AbsoluteClip(1.0), 1.0)
    short_V = np.array([0.25, -0.5])
    steps = np.array(in_steps(mechanism, short_V))
    assert (steps * mechanism.clip.step).tolist() == short_V.tolist()


def test_the_sign_is_told_as_often_as_epsilon_says():
    """Two-sided: too little noise and too much would both show in 20,000 draws."""
    mechanism = LocalLaplace(AbsoluteClip(1.0), 2.0)
    coins = Randomness(5).stream("local")
    right = np.mean([mechanism.randomized(np.ones(1), coins)[0] > 0.0 for _ in range(20_000)])
    expected = 1.0 - 0.5 * math.exp(-1.0)  # P(noise > −norm) at scale 2 norm / ε = norm
    assert abs(right - expected) < 5 * math.sqrt(expected * (1 - expected) / 20_000)


def test_results_are_on_the_grid_and_spread_as_said():
    mechanism = LocalLaplace(AbsoluteClip(1.0), 3.0)
    coins = Randomness(6).stream("local")
    drawn = np.stack([mechanism.randomized(np.zeros(2), coins) for _ in range(4000)])
    assert (drawn / mechanism.clip.step == np.trunc(drawn / mechanism.clip.step)).all()
    assert drawn.std() == pytest.approx(mechanism.std, rel=0.05)
    assert mechanism.std == pytest.approx(math.sqrt(2.0) * 2.0 / 3.0, rel=1e-6)


def test_whole_numbers_are_added_before_anything_is_rounded():
    """Floats would round the noise first, and so hide a vector of one step from itself."""
    step, scale = 2.0**-28, Fraction(2**54)
    one_D = np.full(200, step)
    noisy_D = discrete_laplace._with_noise(one_D, step, scale, Randomness(8).stream("x"))
    coins = Randomness(8).stream("x")
    noise = [discrete_laplace.draw(scale, coins) for _ in one_D]
    assert noisy_D.tolist() == [float((1 + whole) * Fraction(step)) for whole in noise]
    assert (noisy_D != one_D + np.array(noise, dtype=np.float64) * step).any()


def test_less_of_it_is_left_the_more_is_noise():
    left = [
        LocalLaplace(AbsoluteClip(1.0), epsilon).shrunk(np.ones(1))[0]
        for epsilon in (0.01, 1.0, 3.0, 1e3)
    ]
    assert left == sorted(left)
    assert left[0] < 0.001
    assert left[1] == pytest.approx(1.0 / 9.0, rel=1e-6)
    assert left[-1] > 0.999


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_none(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        LocalLaplace(AbsoluteClip(1.0), epsilon)
