"""The parts are those of the rounds that ran; no figure is checked for speed."""

from types import SimpleNamespace

import pytest

from client import answers
from privacy.ledger import Ledger
from sims import bench_where
from sims.bench import Setting
from strategies.rounds import CohortStrategy

TINY = Setting(16, 20, "sims.bench_crowds:few")


def test_a_row_has_every_part_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = Ledger.charge, CohortStrategy.start, answers.NODE_HALVES["uls"]
    row = bench_where.measure(TINY, rounds=4)
    assert (row["d"], row["cohort"]) == (16, 20)
    named = {part for _, _, part in bench_where._PARTS}
    assert set(row["parts_ms"]) == {
        *named,
        *(getattr(bench_where, n) for n in ("_NODE", "_REST", "_AFTER")),
    }
    assert all(ms > 0 for ms in row["parts_ms"].values())
    assert (Ledger.charge, CohortStrategy.start, answers.NODE_HALVES["uls"]) == before
    assert not list(tmp_path.iterdir())


def test_time_inside_a_part_is_not_counted_twice(monkeypatch):
    readings = iter([0.0, 1.0, 3.0, 4.0, 6.0, 7.0])
    monkeypatch.setattr(bench_where, "time", SimpleNamespace(perf_counter=lambda: next(readings)))
    clock = bench_where._Clock()
    inner = clock.timed("inner", lambda: None)
    clock.timed("outer", lambda: (inner(), inner()))()
    assert clock._now == {"inner": 4.0, "outer": 3.0}
    assert not clock._open


def test_the_table(murmuration, monkeypatch):
    monkeypatch.setattr(
        bench_where, "measure", lambda *_a, **_k: {"d": 1, "cohort": 2, "parts_ms": {"a": 1.5}}
    )
    code, out, _ = murmuration("bench", "where", "--quick")
    assert code == 0
    assert "together" in out
    assert "1.50" in out


@pytest.mark.parametrize("value", [1000, 1500.4, 0.12345, "text"])
def test_figures_are_plain(value):
    from sims.bench_command import _figure

    assert "e+" not in _figure(value)
