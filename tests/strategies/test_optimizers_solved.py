"""A model without an optimizer."""

import numpy as np
import pytest

from murmuration.strategies.optimizers import SolvedModel


def test_it_holds_what_was_set():
    model = SolvedModel(3)
    assert not model.theta_D.any()
    assert model.set(np.array([3.0, 0.0, 4.0])) == pytest.approx(5.0)
    assert model.set(np.array([3.0, 0.0, 4.0])) == 0.0
    assert model.theta_D.dtype == model.result_D.dtype == np.float32
    assert model.result_D.tolist() == [3.0, 0.0, 4.0]
    assert model.rate() is None
    assert model.rate(1) is None


def test_state_restores_to_the_last_bit():
    model, other = SolvedModel(2), SolvedModel(2)
    model.set(np.array([1 / 3, 1e-20]))
    other.restore(model.state())
    assert other.theta.tolist() == model.theta.tolist()


def test_what_is_not_finite_is_refused_and_nothing_changes():
    model = SolvedModel(2)
    model.set(np.ones(2))
    with pytest.raises(ValueError, match="not finite"):
        model.set(np.array([1.0, np.nan]))
    assert model.theta.tolist() == [1.0, 1.0]
