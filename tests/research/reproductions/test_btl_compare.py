"""The comparison on synthetic judgements: rows, the best of the grid, what is charged."""

from dataclasses import replace

import pytest

from murmuration.research.reproductions import btl_compare
from murmuration.research.reproductions.btl_compare import UNTUNED_LABELS

SETTINGS = replace(btl_compare._SETTINGS, rounds=6, cohort=30, delta=1e-3)
SMALL = {
    "users": 60,
    "each": 4,
    "dimension": 3,
    "seeds": 2,
    "settings": SETTINGS,
    "clips": (0.2, 0.4),
    "rates": (0.5, 1.0),
}


def test_rows_say_how_far_from_the_best_of_the_grid_everything_is():
    rows = btl_compare.btl_compare(epsilons=(4.0,), untuned=("aup", "adaptive"), **SMALL)
    names = [row["strategy"] for row in rows]
    assert names == [
        "maximum likelihood",
        "zero",
        "aup",
        "adaptive",
        "uls best of grid",
        *["uls"] * 4,
    ]
    assert rows[1]["error_mean"] == pytest.approx(2.0)
    best, grid = rows[4], rows[5:]
    assert best["ratio"] == 1.0
    assert best["error_mean"] == min(row["error_mean"] for row in grid)
    chosen = sorted((row["clip"], round(row["learning_rate"] * row["clip"], 9)) for row in grid)
    assert chosen == [(0.2, 0.5), (0.2, 1.0), (0.4, 0.5), (0.4, 1.0)]
    for row in rows[2:]:
        assert 3.9 < row["epsilon_spent"] <= 4.0
        assert row["rounds"] == 6
        assert row["ratio"] == row["error_mean"] / best["error_mean"]
        assert row["error_sd"] > 0
        # Differences of these features have second moments of about 2/3 each way.
        assert row["semi_norm_mean"] == pytest.approx(row["error_mean"] * (2 / 3) ** 0.5, rel=0.3)


def test_labels_are_compared_beside_the_same_grid():
    rows = btl_compare.label_compare(epsilons=(4.0,), **SMALL)
    names = [row["strategy"] for row in rows]
    assert names == [*UNTUNED_LABELS, "uls best of grid", *["uls"] * 4]
    assert {row["adjacency"] for row in rows} == {"replace-labels"}
    assert [row["rounds"] for row in rows[:5]] == [1, 2, 1, 6, 6]
    for row in rows:
        assert 3.9 < row["epsilon_spent"] <= 4.0
    assert rows[0]["error_mean"] < 2.0


def test_theory_is_that_of_these_populations():
    """Σ_D is 2/d times the identity, so both norms differ by its root."""
    found = {bound.source: bound for bound in btl_compare.theory(1.0)}
    assert found["A Thm 6"].value == pytest.approx(
        32 / 25_000**0.5 + 32**0.5 / (10**0.5 * 2500 * (1 + 1e-5))
    )
    ratio = found["A Thm 1"].value / found["A Thm 1, proof"].value
    assert ratio == pytest.approx((32 / 2) ** 0.5)
