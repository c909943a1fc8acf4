"""Factors and workloads: errors are those of the whole matrices, slopes those of the errors."""

import math

import numpy as np
import pytest
from closed_forms import lower_triangular
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.continual.banded import Banded, square_root
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.continual.toeplitz import Workload

BUFFERED = BufferedToeplitz.scaled(np.array([0.4, 0.3]), np.array([0.9, 0.5]), 12, 4)


@given(st.sampled_from([BUFFERED, Banded((0.8, 0.5, 0.3))]), st.integers(2, 12))
def test_inverse_is_the_inverse_of_the_whole_matrix(factor, rounds):
    inverse = np.linalg.inv(lower_triangular(factor.row_T(rounds)))
    np.testing.assert_allclose(
        lower_triangular(factor.inverse_T(rounds)), inverse, rtol=1e-9, atol=1e-9
    )
    assert factor.row_norm(rounds) == pytest.approx(np.linalg.norm(inverse[-1]), rel=1e-9)


@given(st.sampled_from([BUFFERED, Banded((0.8, 0.5, 0.3))]), st.integers(2, 9), st.integers(0, 99))
def test_error_is_that_of_the_matrices(factor, rounds, seed):
    """By the sums of diagonals, and by inverting C and multiplying."""
    workload_RT = np.random.default_rng(seed).normal(size=(rounds + 2, rounds))
    direct = np.linalg.norm(workload_RT @ np.linalg.inv(lower_triangular(factor.row_T(rounds))))
    expected = direct / np.linalg.norm(workload_RT)
    assert Workload.of_matrix(workload_RT).error(factor) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("length", [2, 3, 8, 40])
def test_the_slope_is_that_of_the_noise(length):
    added, row_K = Workload.of_matrix(np.tri(40)), square_root(length)
    value, slope_K = added.log_noise(row_K) or (0.0, row_K)
    for k in range(length):
        step_K = 1e-6 * np.eye(1, length, k)[0]
        ahead, behind = ((added.log_noise(row_K + s) or (0.0,))[0] for s in (step_K, -step_K))
        assert slope_K[k] == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-6)
    inverse = np.linalg.inv(lower_triangular(np.pad(row_K, (0, 40 - length))))
    assert value == pytest.approx(2 * math.log(np.linalg.norm(np.tri(40) @ inverse)), rel=1e-9)


def test_noise_without_bound_is_no_candidate():
    assert Workload.of_matrix(np.tri(400)).log_noise(np.array([1.0, 4.0])) is None
