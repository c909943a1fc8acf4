"""Theorem 3.5 of Zhou et al. 2025: what is measured, and verdicts that can fail."""

import math

import numpy as np
import pytest

from murmuration.research.reproductions.bandits import square_chipo_rates
from murmuration.research.reproductions.bandits.bandit import Bandit
from murmuration.research.reproductions.bandits.square_chipo_rates import SWEEPS, Cell
from murmuration.research.reproductions.slopes import AGREES, BELOW, DIFFERS

COINS, CTL, LTC = SWEEPS[0], SWEEPS[2], SWEEPS[3]


@pytest.fixture(scope="module")
def bandit():
    return Bandit.draw(1, users=10, dimension=4)


def test_the_truth_has_no_error_and_a_small_beta_no_gap(bandit):
    assert square_chipo_rates.reward_error(bandit, bandit.truth_D) == 0.0
    gap_B = square_chipo_rates.gaps(bandit, bandit.truth_D)
    assert (np.diff(gap_B) > 0).all() and gap_B[0] < 0.02


def test_the_error_is_of_differences_between_two_responses(bandit):
    theta_D = bandit.truth_D + np.array([0.5, 0.0, 0.0, 0.0])
    off_SA = 0.5 * bandit.phi_SAD[:, :, 0]
    pairs_SAA = off_SA[:, :, None] - off_SA[:, None, :]
    assert square_chipo_rates.reward_error(bandit, theta_D) == pytest.approx(
        math.sqrt((pairs_SAA**2).mean())
    )


def test_without_reward_the_reference_is_what_is_left(bandit):
    true_SA = bandit.phi_SAD @ bandit.truth_D
    missed = (true_SA.max(axis=1) - true_SA.mean(axis=1)).mean()
    gap_B = square_chipo_rates.gaps(bandit, np.zeros(4))
    assert gap_B == pytest.approx(np.full(len(gap_B), missed))


def test_corruption_after_the_coins_is_worse_and_more_is_worse():
    def error(sweep, alpha):
        cell = Cell(sweep, 2**14, 1.0, alpha)
        return np.mean([square_chipo_rates.measured((cell, seed))[0] for seed in range(3)])

    assert error(COINS, 0.0) < error(CTL, 0.16) < error(LTC, 0.16)
    assert error(LTC, 0.04) < error(LTC, 0.16)


@pytest.fixture
def powers(monkeypatch):
    """A function: both errors become a power of what varies."""

    def put(power):
        def made(task):
            cell, seed = task
            error = (1 + 0.01 * seed) * cell.x**power
            return error, error * np.array([2.0] * 4 + [1.0])

        monkeypatch.setattr(square_chipo_rates, "in_processes", lambda _, tasks: map(made, tasks))
        rows = square_chipo_rates.square_chipo_rates(True)
        return rows, [row["verdict"] for row in rows if row.get("error") == "gap"]

    return put


def test_the_rule(powers):
    assert powers(1.0)[1] == [DIFFERS, AGREES, BELOW, BELOW, DIFFERS, BELOW]
    assert powers(0.3)[1] == [DIFFERS, DIFFERS, DIFFERS, DIFFERS, DIFFERS, DIFFERS]
    rows, verdicts = powers(-0.5)
    assert verdicts[0] == AGREES
    assert {row["beta"] for row in rows if "beta" in row} == {square_chipo_rates.BETAS[-1]}
