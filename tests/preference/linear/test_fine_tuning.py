import numpy as np
import pytest

from murmuration.preference.linear.fine_tuning import EPOCHS, fine_tuned


def test_it_is_sgd_on_the_log_loss_in_order():
    draw = np.random.default_rng(0)
    theta_D, x_MD = draw.normal(size=4), draw.normal(size=(5, 4)).astype(np.float32)
    y_M = np.array([1.0, 0.0, 0.5, 1.0, 0.0])
    expected_D = theta_D.copy()
    for x_D, y in [*zip(x_MD.astype(float), y_M, strict=True)] * EPOCHS:
        expected_D += 0.3 * (y - 1.0 / (1.0 + np.exp(-x_D @ expected_D))) * x_D
    own_D = fine_tuned(theta_D, x_MD, y_M, 0.3)
    np.testing.assert_allclose(own_D, expected_D, rtol=1e-12)
    assert (theta_D == np.random.default_rng(0).normal(size=4)).all()  # the crowd's stays


def test_nothing_moves_it_without_judgements_or_a_step():
    theta_D = np.array([1.0, -2.0])
    assert (fine_tuned(theta_D, np.zeros((0, 2)), np.zeros(0), 0.3) == theta_D).all()
    assert (fine_tuned(theta_D, np.ones((3, 2)), np.ones(3), 0.0) == theta_D).all()


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_huge_features_give_numbers(size):
    assert np.isfinite(fine_tuned(np.ones(2), size * np.ones((2, 2)), np.zeros(2), 0.1)).all()
