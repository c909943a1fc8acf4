"""Banded factors: what they are, and that the search finds those with the least error."""

import math

import numpy as np
import pytest
from closed_forms import lower_triangular
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.continual.banded import Banded, square_root
from murmuration.privacy.continual.toeplitz import Workload


def prefix_sums(rounds):
    return Workload.of_matrix(np.tril(np.ones((rounds, rounds))))


ROWS = st.lists(st.floats(-0.9, 0.9), min_size=0, max_size=4).map(lambda row: [1.0, *row])


@given(ROWS, st.integers(1, 12))
def test_inverse_is_the_inverse_of_the_whole_matrix(row, rounds):
    factor = Banded.scaled(np.array(row))
    whole = np.linalg.inv(lower_triangular(factor.coefficients, rounds))
    np.testing.assert_allclose(lower_triangular(factor.inverse_T(rounds), rounds), whole, atol=1e-6)
    assert factor.row_norm(rounds) == pytest.approx(np.linalg.norm(whole[-1]), rel=1e-6)


@given(ROWS)
def test_no_column_is_longer_than_one_and_the_first_not_much_shorter(row):
    factor = Banded.scaled(np.array(row))
    columns = np.linalg.norm(lower_triangular(factor.coefficients, 9), axis=0)
    assert math.fsum(c * c for c in factor.coefficients) <= 1.0
    assert columns.max() <= 1.0 + 1e-15  # numpy's own rounding
    assert columns[0] > 1.0 - 1e-5
    assert all(c * 2**20 == int(c * 2**20) for c in factor.coefficients)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((), "begins with a positive"),
        ((0.0, 1.0), "begins with a positive"),
        ((-0.5, 0.5), "begins with a positive"),
        ((0.5, math.nan), "begins with a positive"),
        ((1.0, 1e-6), "longer than 1"),
        ((0.8, 0.7), "longer than 1"),
    ],
)
def test_what_is_no_factor_is_refused(row, message):
    with pytest.raises(ValueError, match=message):
        Banded(row)


def test_all_bands_are_as_good_as_the_square_root_and_no_better_than_is_possible():
    """For prefix sums the square root is nearly the best (Fichtenberger et al. 2023)."""
    rounds = 64
    workload, root = prefix_sums(rounds), square_root(rounds)
    by_root = workload.error(Banded.scaled(root))
    by_search = workload.error(Banded.chosen(workload, rounds))
    assert 0.97 * by_root < by_search <= by_root


@pytest.mark.parametrize("bands", [2, 4, 8, 16])
def test_more_bands_are_never_worse_and_the_search_beats_its_start(bands):
    workload = prefix_sums(100)
    error = workload.error(Banded.chosen(workload, bands))
    assert error < workload.error(Banded.chosen(workload, bands // 2)) < 1.0 + 1e-6
    assert error < workload.error(Banded.scaled(square_root(bands)))


def test_one_by_one_releases_are_best_with_independent_noise():
    """Where nothing is added up there is nothing to take back."""
    workload = Workload.of_matrix(np.eye(30))
    assert workload.error(Banded.chosen(workload, 4)) == pytest.approx(1.0, abs=1e-9)
    assert Banded.chosen(workload, 1) == Banded((1.0,))


def test_two_bands_by_hand():
    """Two rounds and their sum: ‖c‖² (‖first‖² + ‖sum‖²) of C⁻¹ = (1, −c)."""
    workload = prefix_sums(2)
    grid = np.linspace(-0.5, 1.5, 20_001)
    least = ((1 + grid**2) * (1 + (1 - grid) ** 2 + 1)).min() / 3
    assert workload.error(Banded.chosen(workload, 2)) ** 2 == pytest.approx(least, rel=1e-4)


def test_the_square_root_is_that_of_prefix_sums():
    """Its coefficients are those of (1 − t)^(−1/2): binom(2k, k) / 4^k."""
    row_B = square_root(30)
    np.testing.assert_allclose(row_B, [math.comb(2 * k, k) / 4**k for k in range(30)], rtol=1e-13)
    root_BB = lower_triangular(row_B, 30)
    np.testing.assert_allclose(root_BB @ root_BB, np.tri(30), atol=1e-12)
