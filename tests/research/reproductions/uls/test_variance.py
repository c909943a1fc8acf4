"""Figures 2 and 6 of Charles et al. 2024: eqs. 5 and 6, and who has less noise."""

import pytest

from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.uls import variance


@pytest.fixture(scope="module")
def rows():
    return variance.variance(quick=True)


def test_variances_are_those_of_equations_5_and_6(rows):
    row = next(r for r in rows if (r["epsilon"], r["group_size"]) == (8.0, 4))
    assert row["compute"] == 128
    sigma = accountant.noise_multiplier_for(
        8.0, delta=1e-6, probability=32 / 1024, rounds=1000, adjacency=Adjacency.ADD_REMOVE
    )
    assert row["uls_alike"] == pytest.approx((sigma * 10 / 32) ** 2, rel=2e-3)
    assert row["uls_diverse"] == pytest.approx(row["uls_alike"] / 4)
    els = variance.noise_multiplier(8.0, 32, 128 / (32 * 1024))
    assert row["els"] == pytest.approx((els * 10 / 128) ** 2)


def test_at_equal_probabilities_conjecture_1_holds_here():
    """Everything of a user in both: σ_ELS is at most K σ_ULS."""
    els, uls = (variance.noise_multiplier(2.0, k, 0.125) for k in (32, 1))
    assert els < 32 * uls


def test_remarks_count_who_has_less():
    rows = [
        {"epsilon": e, "cohort": 32, "group_size": g, "compute": 32 * g, "els": 1.0,
         "uls_alike": alike, "uls_diverse": alike / g}
        for e, g, alike in ((0.5, 1, 1.5), (0.5, 4, 1.5), (8.0, 1, 0.9), (8.0, 4, 8.0))
    ]  # fmt: skip
    alike, diverse, by_epsilon, by_compute = variance.remarks(rows)
    assert "less noise in 3 of 4" in alike and "less noise in 2 of 4" in diverse
    assert by_epsilon.endswith("0.94 at 0.5, 1.45 at 8.")
    assert by_compute.endswith("1.20 at 32, 1.19 at 128.")
