"""The comparison on synthetic judgements: rows, the best of the grid, what is charged."""

from dataclasses import replace

import pytest

from sims import btl_compare
from sims.btl_compare import UNTUNED

SETTINGS = replace(btl_compare._SETTINGS, rounds=6, cohort=30, delta=1e-3)
SMALL = {
    "users": 60,
    "each": 4,
    "dimension": 3,
    "seeds": 2,
    "settings": SETTINGS,
    "clips": (0.2, 0.4),
    "rates": (0.5, 1.0),
    "workers": 1,
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


def test_quick_is_less_of_the_same(monkeypatch):
    seen = []

    def found(trial):
        seen.append(trial)
        runs = [btl_compare._Found(name, 1.0, 0.5, 6) for name in trial.untuned]
        for clip in trial.clips:
            runs += [btl_compare._Found("uls", 0.5, 0.5, 6, clip, rate) for rate in trial.rates]
        return runs

    monkeypatch.setattr(btl_compare, "_try", found)
    rows = btl_compare.btl_compare(True, users=20, workers=1)
    assert len(seen) == 4  # two seeds, two epsilons
    assert len(seen[0].clips) * len(seen[0].rates) < 8
    for epsilon in (1.0, 3.0):
        (aup,) = [r for r in rows if r["strategy"] == "aup" and r["epsilon"] == epsilon]
        assert aup["ratio"] == 2.0
    assert set(UNTUNED) < {row["strategy"] for row in rows}
