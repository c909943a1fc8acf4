"""How often the best of several wins: against whom, and what claims it stands by."""

import numpy as np
import pytest

from murmuration.research.reproductions.alignment import wins
from murmuration.research.reproductions.alignment.answers import Answers
from murmuration.research.reproductions.alignment.claims import AGREES, DISAGREES, OPEN
from murmuration.research.reproductions.alignment.rewards import (
    NONPRIVATE,
    PRIVATE,
    PUBLISHED,
    USERWISE,
    Learnt,
)


def test_equals_are_half_a_win():
    truth_PN, others_PM = np.array([[2.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 3.0, 0.5]])
    np.testing.assert_allclose(wins.shares(truth_PN, others_PM), [[0.75, 0.5, 0.0]])


def test_who_cannot_tell_answers_apart_wins_half():
    generator = np.random.default_rng(1)
    truth_PN, others_PM = generator.standard_normal((2, 400, 6))
    won_PN = wins.shares(truth_PN, others_PM)
    assert wins.win_rate(np.zeros((400, 6)), won_PN) == pytest.approx(0.5, abs=0.03)
    # Best of six against one: six of seven.
    assert wins.win_rate(truth_PN, won_PN) == pytest.approx(6 / 7, abs=0.03)
    assert wins.win_rate(-truth_PN, won_PN) == pytest.approx(1 / 7, abs=0.03)


@pytest.fixture(scope="module")
def result():
    generator = np.random.default_rng(0)
    phi_PND = generator.standard_normal((60, 8, 2)).astype(np.float32)
    pool = Answers(phi_PND[:, :, 0].astype(float), np.zeros((60, 8), bool), phi_PND)
    found = []
    for seed in range(3):
        of = {(NONPRIVATE, None): Learnt(np.array([1.0, 0.0], np.float32), 0.8, 9)}
        for name in PRIVATE:
            for epsilon, noise in ((3.0, 2.0), (8.0, 0.3)):
                theta_D = [-1.0 if name == PUBLISHED else 1.0, noise + 0.01 * seed]
                of[name, epsilon] = Learnt(np.array(theta_D, np.float32), 0.7, 9)
        found.append(of)
    return wins.measured(pool, found)


def test_rewards_choose_from_one_half_and_meet_the_other(result):
    assert result.extra["best_of"] == 4
    assert result.extra["by_the_truth"] == pytest.approx(0.8, abs=0.06)
    (clean,) = [row for row in result.rows if row["strategy"] == NONPRIVATE]
    assert clean["win_mean"] == pytest.approx(result.extra["by_the_truth"])


def test_claims_are_told(result):
    said = "\n".join(result.remarks)
    assert f"{DISAGREES}: {PUBLISHED} above {USERWISE} at ε = 8" in said
    assert f"{DISAGREES}: {PUBLISHED} above 50 % at ε = 8" in said
    assert f"{AGREES}: {USERWISE} at ε = 8 above ε = 3" in said


def test_a_reward_that_says_nothing_is_neither_below_nor_above():
    """It wins what the reference does, whatever that is by the chance of few prompts."""
    nothing = dict.fromkeys(
        [(name, epsilon) for name in PRIVATE for epsilon in (3.0, 8.0)], [0.1 + 0.2] * 5
    )
    said = {claim.said: claim.verdict for claim in wins.claims(nothing, 0.3)}
    assert len(said) == 4 * 2 * 4 + 8 + 4
    assert set(said.values()) == {OPEN}
