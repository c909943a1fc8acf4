"""Best of n: the U-statistic beside all subsets, ties, and the bound beside exact divergences."""

from itertools import combinations
from math import exp, inf, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from murmuration.alignment.best_of_n import best, expected_best, kl_bound
from murmuration.alignment.pool import Pool
from murmuration.preference.data.errors import InputError

# Few different rewards, so that many are equal.
POOLS = st.tuples(st.integers(1, 3), st.integers(1, 7)).flatmap(
    lambda shape: st.tuples(
        arrays.arrays(np.float64, shape, elements=st.sampled_from([-1.5, 0.0, 0.25, 3.0])),
        arrays.arrays(np.float64, shape, elements=st.floats(-9, 9, width=16)),
    )
)


def by_subsets(rewards_N, figures_N, n):
    """The mean over all subsets of what is chosen; of equal ones each alike."""
    found = []
    for some in combinations(range(len(rewards_N)), n):
        highest = max(rewards_N[k] for k in some)
        found.append(np.mean([figures_N[k] for k in some if rewards_N[k] == highest]))
    return np.mean(found)


@given(POOLS)
def test_it_is_the_mean_over_all_subsets(pool):
    rewards_PN, figures_PN = pool
    found_nP = expected_best(rewards_PN, figures_PN)
    assert found_nP.shape == rewards_PN.shape[::-1]
    wanted_nP = [
        [by_subsets(r, f, n) for r, f in zip(rewards_PN, figures_PN, strict=True)]
        for n in range(1, rewards_PN.shape[1] + 1)
    ]
    np.testing.assert_allclose(found_nP, wanted_nP, atol=1e-12)


@given(POOLS)
def test_more_to_choose_from_never_lowers_the_reward(pool):
    rewards_PN, _ = pool
    found_nP = expected_best(rewards_PN, rewards_PN)
    assert (np.diff(found_nP, axis=0) >= -1e-12).all()
    np.testing.assert_allclose(found_nP[0], rewards_PN.mean(1), atol=1e-12)
    np.testing.assert_allclose(found_nP[-1], rewards_PN.max(1), atol=1e-12)


def test_it_is_unbiased():
    """Best of 3 of a known distribution, from pools of 8 that share draws."""
    generator = np.random.default_rng(0)
    values, chance = np.array([0.0, 1.0, 4.0]), np.array([0.5, 0.3, 0.2])
    pools_PN = generator.choice(values, (40_000, 8), p=chance)
    upto = chance.cumsum() ** 3
    exact = float((values * np.diff(upto, prepend=0.0)).sum())
    found_P = expected_best(pools_PN, pools_PN, 3)[2]
    assert found_P.mean() == pytest.approx(exact, abs=4 * found_P.std() / 200)


def test_large_pools_are_exact_enough():
    """Weights of a thousand answers add up, and those of best of n are those of n uniform draws."""
    rank_1N = np.arange(1.0, 1001.0)[None]
    found_n = expected_best(rank_1N, rank_1N)[:, 0]
    n = np.arange(1, 1001)
    np.testing.assert_allclose(found_n, n * 1001 / (n + 1), rtol=1e-11)  # mean of the highest
    np.testing.assert_allclose(expected_best(rank_1N, np.ones_like(rank_1N)), 1.0, rtol=1e-12)


def test_a_figure_that_cannot_count_does_not():
    rewards = [[0.0, 1.0, 2.0]]
    found = expected_best(rewards, [[nan, inf, 5.0]])[:, 0]
    assert np.isnan(found[0])
    assert found[1] == inf  # the lowest of three is never the best of two
    assert found[2] == 5.0


@pytest.mark.parametrize(
    ("rewards", "figures", "most", "said"),
    [
        ([[1.0, 2.0]], [[1.0]], None, "one shape"),
        ([1.0, 2.0], [1.0, 2.0], None, "one shape"),
        ([[1.0, 2.0]], [[1.0, 2.0]], 3, "from 1 to 2"),
        ([[1.0, 2.0]], [[1.0, 2.0]], 0, "from 1 to 2"),
        ([[1.0, nan]], [[1.0, 2.0]], None, "NaN"),
    ],
)
def test_what_it_refuses(rewards, figures, most, said):
    with pytest.raises(InputError, match=said):
        expected_best(np.array(rewards), np.array(figures), most)


def test_the_first_of_equal_ones_is_taken():
    assert best(Pool(["a", "b"], [["x", "y"], ["x", "y"]], np.array([[2.0, 2], [1, 3]]))) == [0, 1]


@given(st.integers(1, 12), st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6))
def test_the_divergence_is_below_the_bound(n, masses):
    """Of a distribution over answers in order of a reward, without ties, exactly."""
    chance = np.array(masses) / sum(masses)
    upto = np.minimum(chance.cumsum(), 1.0)
    chosen = upto**n - (upto - chance).clip(0) ** n
    some = chosen > 0
    divergence = float((chosen[some] * np.log(chosen[some] / chance[some])).sum())
    assert divergence <= kl_bound(n) + 1e-9


def test_the_bound_is_reached_where_answers_are_many():
    chance, n = np.full(100_000, 1e-5), 5
    upto = np.arange(1, 100_001) / 100_000
    chosen = upto**n - (upto - 1e-5).clip(0) ** n
    assert float((chosen * np.log(chosen / chance)).sum()) == pytest.approx(kl_bound(n), abs=1e-3)
    assert kl_bound(1) == 0.0
    assert exp(kl_bound(4) + 0.75) == pytest.approx(4.0)
    assert kl_bound(4) == log(4) - 0.75
