"""The bandit and its judges."""

import numpy as np
import pytest

from murmuration.research.reproductions.bandits.bandit import BALL, Bandit


def test_shapes_and_lengths():
    drawn, again = (Bandit.draw(3, users=50, dimension=4) for _ in range(2))
    np.testing.assert_allclose(np.linalg.norm(drawn.phi_SAD, axis=2), 1.0)
    assert np.linalg.norm(drawn.x_JD, axis=1).max() <= 2.0 + 1e-12
    assert np.linalg.norm(drawn.truth_D) == pytest.approx(BALL)
    assert (again.x_JD == drawn.x_JD).all()
    assert (again.first_J == drawn.first_J).all()


def test_judges_follow_the_truth():
    drawn = Bandit.draw(0, users=20_000, dimension=3)
    logit_J = drawn.x_JD @ drawn.truth_D
    for low, high in ((-2.0, -1.0), (-0.5, 0.5), (1.0, 2.0)):
        there_J = (low < logit_J) & (logit_J < high)
        expected = (1 / (1 + np.exp(-logit_J[there_J]))).mean()
        assert drawn.first_J[there_J].mean() == pytest.approx(expected, abs=0.03)
