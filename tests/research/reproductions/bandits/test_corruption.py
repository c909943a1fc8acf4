"""Corruption before and after the coins: how often labels are wrong."""

import math

import numpy as np
import pytest

from murmuration.research.reproductions.bandits.corruption import Corruption

ROWS = 200_000
EPSILON = 0.5
FLIP = 1 / (math.exp(EPSILON) + 1)


def stated(corruption: Corruption, first: bool = True, seed: int = 1) -> float:
    """How often the first response is stated where it is (or is not) the true one."""
    return corruption.stated(np.full(ROWS, first), np.random.default_rng(seed)).mean()


def near(found: float, wanted: float) -> bool:
    return abs(found - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / ROWS) + 1e-12


@pytest.mark.parametrize("first", [True, False])
def test_coins_alone(first):
    wanted = 1 - FLIP if first else FLIP
    assert near(stated(Corruption(epsilon=EPSILON), first), wanted)
    assert stated(Corruption(), first) == first


def test_the_masks_of_the_paper():
    """App. E: the mask is set and then flipped (CTL), or flipped and then set (LTC)."""
    alpha = 0.1
    assert near(
        1 - stated(Corruption(alpha, 0.0, EPSILON)), alpha * (1 - FLIP) + (1 - alpha) * FLIP
    )
    assert near(1 - stated(Corruption(0.0, alpha, EPSILON)), alpha + (1 - alpha) * FLIP)


@pytest.mark.parametrize("first", [True, False])
def test_any_adversary(first):
    alpha, told = 0.2, 1 - FLIP if first else FLIP

    def always(first_J):
        return np.full(first_J.shape, True)

    said = alpha + (1 - alpha) * first
    ctl = said * (1 - FLIP) + (1 - said) * FLIP
    assert near(stated(Corruption(alpha, 0.0, EPSILON, always), first), ctl)
    assert near(stated(Corruption(0.0, alpha, EPSILON, always), first), alpha + (1 - alpha) * told)
    both = Corruption(before=alpha, after=alpha, epsilon=EPSILON, adversary=always)
    assert near(stated(both, first), alpha + (1 - alpha) * ctl)


@pytest.mark.parametrize("share", [-0.1, 0.6, math.nan])
def test_impossible_shares_are_refused(share):
    with pytest.raises(ValueError, match="share of corrupted labels"):
        Corruption(before=share)
    with pytest.raises(ValueError, match="share of corrupted labels"):
        Corruption(after=share)
