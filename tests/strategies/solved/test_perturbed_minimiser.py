"""Public weights of users: how far labels can move a mean."""

import itertools

import numpy as np
import pytest
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.strategies.solved.perturbed_minimiser import reach, user_weights


def examples_of(x_RD, counts):
    start_U = torch.tensor([0, *itertools.accumulate(counts)])
    x_RD = torch.as_tensor(np.asarray(x_RD))
    return PairExamples(x_RD, torch.ones(len(x_RD), dtype=x_RD.dtype), start_U)


@pytest.mark.parametrize("shape", [(1, 4), (3, 4), (6, 2), (9, 5)])
def test_labels_move_a_mean_no_further_than_reach(shape):
    """Every change of every label: searched through all sign patterns."""
    generator = np.random.default_rng(0)
    for _ in range(20):
        x_RD = generator.standard_normal(shape) * generator.uniform(0.1, 3.0, (shape[0], 1))
        found = float(reach(examples_of(x_RD, [shape[0]]))[0])
        signs = np.array(list(itertools.product([-1.0, 0.0, 1.0], repeat=shape[0])))
        farthest = np.linalg.norm(signs @ x_RD / shape[0], axis=1).max()
        assert farthest <= found * (1 + 1e-12)
        assert found <= np.linalg.norm(x_RD, axis=1).mean() * (1 + 1e-9)


def test_reach_is_attained_by_parallel_and_by_equal_orthogonal_rows():
    same = np.tile([[3.0, 4.0]], (7, 1))
    assert float(reach(examples_of(same, [7]))[0]) == pytest.approx(5.0)
    axes = 2.0 * np.eye(4)
    assert float(reach(examples_of(axes, [4]))[0]) == pytest.approx(2.0 / 2.0)  # 2 · √4 / 4
    nothing = examples_of(np.zeros((3, 2)), [1, 2])
    assert reach(nothing).tolist() == [0.0, 0.0]
    assert user_weights(nothing, 0.0).tolist() == [0.0, 0.0]


def test_weights_make_every_user_move_the_sum_by_no_more_than_length():
    examples = examples_of(np.random.default_rng(1).standard_normal((9, 3)), [4, 5])
    for length in (0.2, 0.5, 50.0):
        moved = user_weights(examples, length) * reach(examples)
        assert (moved <= length * (1 + 1e-12)).all()
    np.testing.assert_allclose(user_weights(examples, 0.0) * reach(examples), 1.0)
    assert user_weights(examples, 50.0).tolist() == [1.0, 1.0]
