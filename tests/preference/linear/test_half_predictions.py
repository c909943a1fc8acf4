import numpy as np
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.half_predictions import right_by_halves


def pairs(x_RD, y_R, counts):
    starts = torch.tensor([0, *np.cumsum(counts)])
    return PairExamples(
        torch.tensor(x_RD, dtype=torch.float32), torch.tensor(y_R, dtype=torch.float32), starts
    )


def mean_of_known(x_MD, y_M):
    """A reward along what was preferred."""
    return ((2.0 * y_M - 1.0)[:, None] * x_MD).mean(axis=0)


def test_each_half_is_predicted_by_the_other_alone():
    # Of the first user both halves agree; the second's contradict each other; one has one half;
    # of the last the third judgement is in neither, and the fourth a tie.
    x_RD = np.ones((9, 1))
    y_R = [1, 1, 1, 0, 1, 1, 1, 0, 0.5]
    half_J = np.array([0, 1, 0, 1, 0, 0, 1, 2, 1], dtype=np.int8)
    share_U = right_by_halves(pairs(x_RD, y_R, [2, 2, 1, 4, 0]), half_J, mean_of_known)
    assert share_U[:2].tolist() == [1.0, 0.0]
    assert np.isnan(share_U[[2, 4]]).all()
    assert share_U[3] == 1.0


def test_equal_rewards_are_half_right():
    share_U = right_by_halves(
        pairs(np.ones((2, 1)), [1, 0], [2]), np.array([0, 1]), lambda x, y: np.zeros(1)
    )
    assert share_U.tolist() == [0.5]


def test_a_users_share_is_theirs_alone():
    draw = np.random.default_rng(1)
    x_RD, y_R = draw.normal(size=(40, 3)), draw.integers(0, 2, size=40).astype(float)
    half_J = draw.integers(0, 2, size=40).astype(np.int8)
    share_U = right_by_halves(pairs(x_RD, y_R, [10, 20, 10]), half_J, mean_of_known)
    x_RD[10:30], y_R[10:30] = np.nan, 1.0 - y_R[10:30]
    again_U = right_by_halves(pairs(x_RD, y_R, [10, 20, 10]), half_J, mean_of_known)
    assert (again_U[[0, 2]] == share_U[[0, 2]]).all()
