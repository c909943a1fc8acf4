"""Every entry of ``reproduce`` gives rows, remarks that follow from them, and its plot."""

import pytest

from sims import reproductions
from sims.reproductions import ENTRIES


def test_the_papers_tables():
    found = ENTRIES["aup-tables"].compute(True)
    assert len(found.rows) == 6
    for row in found.rows:
        assert row["table_1_recomputed"] == pytest.approx(row["table_1"], rel=0.025)
        assert row["table_2_recomputed"] == pytest.approx(row["table_2"], rel=0.008)
        assert row["epsilon_under_replace"] > 0.9 * row["epsilon"]
    assert found.plot is not None
    assert len(found.plot.axes[0].lines) == 6


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
        row("aup", 1.0, 0.5 * ratio, ratio=ratio),
        row("uls best of grid", 1.0, 0.5, ratio=1.0),
        row("uls", 1.0, 0.9, ratio=1.8),
    ]


def test_the_comparison_on_synthetic_judgements(monkeypatch):
    monkeypatch.setattr(reproductions, "btl_compare", lambda quick: btl_rows(1.037))
    found = ENTRIES["btl-compare"].compute(True)
    assert any("1.037 times" in " ".join(remark.split()) for remark in found.remarks)
    assert found.plot is not None
    shown = [label.get_text() for label in found.plot.axes[0].get_yticklabels()]
    assert shown == ["zero", "aup", "uls best of grid"]


@pytest.mark.parametrize(("holds", "words"), [(True, "2 of 2 cases hold"), (False, "is false")])
def test_the_conjecture(monkeypatch, holds, words):
    rows = [{"delta": 1e-6, "holds": True}, {"delta": 0.4, "holds": holds}]
    monkeypatch.setattr(reproductions, "uls_conjecture", lambda quick: rows)
    assert words in ENTRIES["uls-conjecture"].compute(True).remarks[0]
