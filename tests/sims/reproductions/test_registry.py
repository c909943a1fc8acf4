"""Every entry of ``reproduce`` gives rows, remarks that follow from them, and its plot."""

import pytest

from murmuration.sims.reproductions import group_cohort, pessimism, registry
from murmuration.sims.reproductions.registry import ENTRIES


@pytest.mark.slow
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
        row("aup", 1.0, 0.5 * ratio, ratio=ratio, adjacency="add-remove"),
        row("uls best of grid", 1.0, 0.5, ratio=1.0, adjacency="add-remove"),
        row("uls", 1.0, 0.9, ratio=1.8, adjacency="add-remove"),
    ]


def label_rows(quick):
    more = {"epsilon": 1.0, "error_sd": 0.1, "adjacency": "replace-labels"}
    return [
        {"strategy": "label-moment", "error_mean": 0.4, "ratio": 0.865, "rounds": 1.0} | more,
        {"strategy": "uls best of grid", "error_mean": 0.46, "ratio": 1.0, "rounds": 200.0} | more,
    ]


def test_the_comparison_on_synthetic_judgements(monkeypatch):
    monkeypatch.setattr(registry, "btl_compare", lambda quick: btl_rows(1.037))
    monkeypatch.setattr(registry, "label_compare", label_rows)
    found = ENTRIES["btl-compare"].compute(True)
    assert any("1.037 times" in " ".join(remark.split()) for remark in found.remarks)
    assert found.plot is not None
    shown = [label.get_text() for label in found.plot.axes[0].get_yticklabels()]
    assert shown == ["zero", "aup", "uls best of grid"]
    shown = [label.get_text() for label in found.plot.axes[1].get_yticklabels()]
    assert shown == ["zero", "label-moment", "uls best of grid"]
    assert any("in 1 round has 0.865 times" in remark for remark in found.remarks)
    assert any("A Thm 6" in remark for remark in found.remarks)
    sources = {bound["source"] for bound in found.extra["bounds"]["1"]}
    assert {"A Thm 4", "L Thm 5.3", "L Thm D.5"} < sources


def test_the_policies(monkeypatch):
    compute = pessimism.pessimism

    def small(quick):
        return compute(users=(300, 600), epsilons=(3.0,), dimension=2, seeds=1)

    monkeypatch.setattr(pessimism, "pessimism", small)
    found = ENTRIES["pessimism"].compute(True)
    assert len(found.rows) == 3 * 2 * 3 * 3
    assert len(found.remarks) == 3
    assert found.plot is not None


def test_the_choice_of_group_size_and_cohort(monkeypatch):
    rows = [
        *({"epsilon": 1.0, "group_size": g, "cohort": 32, "error_mean": 2.0 / g} for g in (1, 2)),
        {"strategy": "random", "compute": 32, "regret_mean": 0.25, "regret_sd": None},
    ]
    monkeypatch.setattr(group_cohort, "group_cohort", lambda quick: rows)
    found = ENTRIES["group-cohort"].compute(True)
    assert "random 0.250" in found.remarks[0]
    assert len(found.plot.axes) == 2


@pytest.mark.parametrize(("holds", "words"), [(True, "2 of 2 cases hold"), (False, "is false")])
def test_the_conjecture(monkeypatch, holds, words):
    rows = [{"delta": 1e-6, "holds": True}, {"delta": 0.4, "holds": holds}]
    monkeypatch.setattr(registry, "uls_conjecture", lambda quick: rows)
    assert words in ENTRIES["uls-conjecture"].compute(True).remarks[0]


@pytest.mark.parametrize(
    ("name", "module", "panels"),
    [
        ("label-dp-fig1", "label_dp_fig1", 2),
        ("rr-vs-m", "rr_vs_m", 2),
        ("ctl-ltc-linear", "ctl_ltc", 8),
    ],
)
@pytest.mark.slow
def test_local_label_privacy(monkeypatch, name, module, panels):
    """Rows as they come from a tiny run, shown and told."""
    found = getattr(registry, module)
    tiny = {
        "label_dp_fig1": {"dimensions": (2,), "sizes": (100, 2000), "epsilons": (0.5, 1.0)}
        | {"repetitions": 2, "workers": 1},
        "rr_vs_m": {"judgements": 200, "users": 40, "each": (1, 4), "seeds": 2, "rounds": 2}
        | {"workers": 1},
        "ctl_ltc": {"sizes": (50, 100), "repetitions": 2},
    }[module]
    whole = getattr(found, module)
    monkeypatch.setattr(found, module, lambda quick, on_progress: whole(**tiny))
    shown = ENTRIES[name].compute(True)
    assert shown.rows and shown.remarks
    assert shown.plot is not None and len(shown.plot.axes) == panels
