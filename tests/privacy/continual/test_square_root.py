"""The factor of the matrix of prefix sums."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.continual.square_root import SquareRoot


@given(st.integers(1, 200))
def test_its_square_is_the_matrix_of_prefix_sums(releases):
    root_WW = SquareRoot(releases).matrix_WW
    np.testing.assert_allclose(root_WW @ root_WW, np.tri(releases), atol=1e-12)
    np.testing.assert_array_equal(root_WW, np.tril(root_WW))


def test_coefficients_are_those_of_the_series():
    """Those of (1 − t)^(−1/2): binom(2k, k) / 4^k."""
    given_W = SquareRoot(30).coefficients_W
    np.testing.assert_allclose(given_W, [math.comb(2 * k, k) / 4**k for k in range(30)], rtol=1e-13)


@given(st.integers(1, 60))
def test_norms_are_those_of_the_matrix(releases):
    root = SquareRoot(releases)
    rows_W = np.linalg.norm(root.matrix_WW, axis=1)
    np.testing.assert_allclose([root.row_norm(w + 1) for w in range(releases)], rows_W)
    columns_W = np.linalg.norm(root.matrix_WW, axis=0)
    assert root.column_norm == pytest.approx(columns_W.max()) == pytest.approx(columns_W[0])
    np.testing.assert_allclose(root.gram_WW, root.matrix_WW.T @ root.matrix_WW)


def test_one_release_is_a_plain_one():
    assert SquareRoot(1).matrix_WW.tolist() == [[1.0]] and SquareRoot(1).column_norm == 1.0


def test_a_year_of_weeks_has_little_more_noise_than_one_release():
    """Over that of a single release, at equal epsilon for all together. One release a week of all
    votes so far, each with noise of its own, has √52 times it, and so has the last sum of 52
    releases of each week's votes."""
    root = SquareRoot(52)
    assert root.row_norm(52) * root.column_norm == pytest.approx(2.322, abs=0.001)
    assert root.row_norm(52) * root.column_norm < math.sqrt(52) / 3


def test_no_release():
    with pytest.raises(ValueError, match="at least one release, got 0"):
        SquareRoot(0)
