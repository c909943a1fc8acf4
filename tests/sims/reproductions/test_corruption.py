"""Corruption before and after the coins: how often labels are wrong, and rows of populations."""

import math

import numpy as np
import pytest

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import Schema
from murmuration.sims.population.population import Population
from murmuration.sims.reproductions.corruption import (
    Corruption,
    against,
    corrupted_rows,
    everywhere,
    opposite,
)

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
    assert near(1 - stated(Corruption.ctl(alpha, EPSILON)), alpha * (1 - FLIP) + (1 - alpha) * FLIP)
    assert near(1 - stated(Corruption.ltc(alpha, EPSILON)), alpha + (1 - alpha) * FLIP)


@pytest.mark.parametrize("first", [True, False])
def test_any_adversary(first):
    alpha, told = 0.2, 1 - FLIP if first else FLIP
    always = everywhere(True)
    said = alpha + (1 - alpha) * first
    ctl = said * (1 - FLIP) + (1 - said) * FLIP
    assert near(stated(Corruption.ctl(alpha, EPSILON, always), first), ctl)
    assert near(stated(Corruption.ltc(alpha, EPSILON, always), first), alpha + (1 - alpha) * told)
    both = Corruption(before=alpha, after=alpha, epsilon=EPSILON, adversary=always)
    assert near(stated(both, first), alpha + (1 - alpha) * ctl)


def test_against_the_truth():
    wanted = against(np.array([2.0, -0.1, 0.3]))(np.array([True, True, False]))
    assert wanted.tolist() == [False, True, False]
    assert opposite(np.array([True, False])).tolist() == [False, True]


@pytest.mark.parametrize("share", [-0.1, 0.6, math.nan])
def test_impossible_shares_are_refused(share):
    with pytest.raises(ValueError, match="share of corrupted labels"):
        Corruption(before=share)
    with pytest.raises(ValueError, match="share of corrupted labels"):
        Corruption(after=share)


def test_rows_of_a_population_carry_the_channel_of_the_coins_only():
    rows = list(Population(users=300, seed=2).rows())
    corruption = Corruption.ltc(0.1, 1.0)
    seen = list(corrupted_rows(rows, corruption, seed=4))
    again = list(corrupted_rows(rows, corruption, seed=4))
    assert seen == again and len(seen) == len(rows)
    assert seen != list(corrupted_rows(rows, corruption, seed=5))
    swapped = np.array(
        [s["chosen"] != r["chosen"] for r, s in zip(rows, seen, strict=True) if not r["tie"]]
    )
    wanted = 0.1 + 0.9 / (math.e + 1)
    assert abs(swapped.mean() - wanted) < 4 * math.sqrt(wanted * (1 - wanted) / len(swapped))
    assert not any(row["tie"] for row in seen)
    judgements = Judgements.from_rows(seen, schema=Schema(labels="randomized"))
    assert judgements.channel.kind == "randomized-response"
    assert judgements.channel.flip_probability == pytest.approx(1 / (math.e + 1))


def test_ties_are_settled_evenly():
    rows = [{"user_id": "a", "prompt": "p", "chosen": "x", "rejected": "y", "tie": True}] * 4000
    chosen = [row["chosen"] for row in corrupted_rows(rows, Corruption(), seed=0)]
    assert abs(chosen.count("x") / 4000 - 0.5) < 0.04
    assert "flip_probability" not in next(iter(corrupted_rows(rows, Corruption(), seed=0)))
