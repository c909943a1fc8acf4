"""Clipping single examples in closed form: against clipping their gradients one by one."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.mechanisms.clipping import ExampleClip


def lengths(x_KD):
    return torch.linalg.vector_norm(x_KD.double(), dim=1)


def rows(count, dimension, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dimension, generator=generator) * scale


@given(
    st.integers(0, 30),
    st.integers(1, 9),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
    st.integers(0, 99),
)
def test_equal_to_clipping_one_by_one(count, dimension, norm, scale, seed):
    x_KD, weight_K = rows(count, dimension, seed, scale), rows(count, 1, seed + 1)[:, 0]
    found = ExampleClip(norm).clip_sum(x_KD, weight_K, lengths(x_KD))
    expected = torch.zeros(dimension, dtype=torch.float64)
    for x_D, weight in zip(x_KD.double(), weight_K.double(), strict=True):
        gradient_D = weight * x_D
        expected += gradient_D * min(1.0, norm / max(float(gradient_D.norm()), 1e-300))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-6 * norm * (count + 1))
    assert found.dtype == torch.float64


@pytest.mark.parametrize("dimension", [1, 7, 10_000, 200_000])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e18])
def test_no_example_exceeds_the_norm(dimension, scale):
    clip = ExampleClip(0.3)
    x_KD = torch.full((1, dimension), scale)
    for weight in (1.0, -0.25, 1e-3):
        sum_D = clip.clip_sum(x_KD, torch.tensor([weight]), lengths(x_KD))
        length = float(torch.linalg.vector_norm(sum_D))
        assert length <= 0.3
        assert float(sum_D.float().double().norm()) <= 0.3
        assert length == pytest.approx(min(0.3, abs(weight) * scale * dimension**0.5), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_zero(bad):
    x_KD, weight_K = rows(4, 3), torch.tensor([0.5, 1.0, -1.0, 0.2])
    broken = x_KD.clone()
    broken[1, 2] = bad
    weights = weight_K.clone()
    weights[3] = bad
    clip = ExampleClip(0.1)
    found = clip.clip_sum(broken, weights, lengths(broken))
    expected = clip.clip_sum(x_KD[[0, 2]], weight_K[[0, 2]], lengths(x_KD[[0, 2]]))
    np.testing.assert_array_equal(found, expected)


def test_admits_what_so_many_examples_can_produce():
    clip = ExampleClip(0.5)
    assert clip.is_valid(np.array([1.0, 0.0]), 2)
    assert not clip.is_valid(np.array([1.001, 0.0]), 2)
    assert not clip.is_valid(np.array([np.nan, 0.0]), 2)
    assert not clip.is_valid(np.array([1e300, 1e300]), 2)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_the_norm_is_checked(norm):
    with pytest.raises(ValueError, match="clip norm must be"):
        ExampleClip(norm)
