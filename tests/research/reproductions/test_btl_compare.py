"""The comparison on synthetic judgements: rows, the best of the grid, what is charged."""

from dataclasses import replace

import pytest

from murmuration.research.reproductions import btl_compare
from murmuration.research.reproductions.btl_compare import UNTUNED, UNTUNED_LABELS

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


def test_quick_is_less_of_the_same(monkeypatch):
    seen = []

    def found(trial):
        seen.append(trial)
        runs = [btl_compare._Found(name, 1.0, 0.6, 0.5, 6) for name in trial.untuned]
        for clip in trial.clips:
            runs += [
                btl_compare._Found("uls", 0.5, 0.3, 0.5, 6, clip, rate) for rate in trial.rates
            ]
        return runs

    monkeypatch.setattr(btl_compare, "in_processes", lambda _, trials, workers: map(found, trials))
    rows = btl_compare.btl_compare(True, users=20, workers=1)
    assert len(seen) == 4  # two seeds, two epsilons
    assert len(seen[0].clips) * len(seen[0].rates) < 8
    for epsilon in (1.0, 3.0):
        (aup,) = [r for r in rows if r["strategy"] == "aup" and r["epsilon"] == epsilon]
        assert aup["ratio"] == 2.0
        assert aup["semi_norm_mean"] == pytest.approx(0.6)
    assert set(UNTUNED) < {row["strategy"] for row in rows}


def test_theory_is_that_of_these_populations():
    """Σ_D is 2/d times the identity, so both norms differ by its root."""
    found = {bound.source: bound for bound in btl_compare.theory(1.0)}
    assert found["A Thm 6"].value == pytest.approx(
        32 / 25_000**0.5 + 32**0.5 / (10**0.5 * 2500 * (1 + 1e-5))
    )
    ratio = found["A Thm 1"].value / found["A Thm 1, proof"].value
    assert ratio == pytest.approx((32 / 2) ** 0.5)


def btl_rows(ratio):
    def row(strategy, epsilon, error, **more):
        return {
            "strategy": strategy,
            "epsilon": epsilon,
            "error_mean": error,
            "error_sd": 0.1,
        } | more

    return [
        row("zero", None, 2.0),
        row("aup", 1.0, 0.5 * ratio, ratio=ratio, adjacency="add-remove"),
        row("uls best of grid", 1.0, 0.5, ratio=1.0, adjacency="add-remove"),
        row("uls", 1.0, 0.9, ratio=1.8, adjacency="add-remove"),
    ]


def label_rows():
    more = {"epsilon": 1.0, "error_sd": 0.1, "adjacency": "replace-labels"}
    return [
        {"strategy": "label-moment", "error_mean": 0.4, "ratio": 0.865, "rounds": 1.0} | more,
        {"strategy": "uls best of grid", "error_mean": 0.46, "ratio": 1.0, "rounds": 200.0} | more,
    ]


def test_what_is_said_and_drawn_of_both_comparisons(monkeypatch):
    monkeypatch.setattr(btl_compare, "btl_compare", lambda quick: btl_rows(1.037))
    monkeypatch.setattr(btl_compare, "label_compare", lambda quick: label_rows())
    found = btl_compare.reproduced(True)
    assert any("1.037 times" in remark for remark in found.remarks)
    assert found.plot is not None
    shown = [label.get_text() for label in found.plot.axes[0].get_yticklabels()]
    assert shown == ["zero", "aup", "uls best of grid"]
    shown = [label.get_text() for label in found.plot.axes[1].get_yticklabels()]
    assert shown == ["zero", "label-moment", "uls best of grid"]
    assert any("in 1 round has 0.865 times" in remark for remark in found.remarks)
    assert any("A Thm 6" in remark for remark in found.remarks)
    sources = {bound["source"] for bound in found.extra["bounds"]["1"]}
    assert {"A Thm 4", "L Thm 5.3", "L Thm D.5"} < sources
