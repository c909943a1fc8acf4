"""The parts are those of the rounds that ran; no figure is checked for speed."""

from types import SimpleNamespace

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.research.bench import breakdown
from murmuration.research.bench.setting import Setting
from murmuration.strategies import registry
from murmuration.strategies.base import CohortStrategy

TINY = Setting(users=40, cohort=20, dimension=16)


def test_a_row_has_every_part_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = Ledger.charge, CohortStrategy.start, registry.node_halves()["uls"]
    row = breakdown.measure(TINY, rounds=4)
    assert (row["d"], row["cohort"]) == (16, 20)
    named = {part for _, _, part in breakdown._PARTS}
    assert set(row["parts_ms"]) == {
        *named,
        *(getattr(breakdown, n) for n in ("_NODE", "_REST", "_AFTER")),
    }
    assert all(ms > 0 for ms in row["parts_ms"].values())
    assert (Ledger.charge, CohortStrategy.start, registry.node_halves()["uls"]) == before
    assert not list(tmp_path.iterdir())


def test_time_inside_a_part_is_not_counted_twice(monkeypatch):
    readings = iter([0.0, 1.0, 3.0, 4.0, 6.0, 7.0])
    monkeypatch.setattr(breakdown, "time", SimpleNamespace(perf_counter=lambda: next(readings)))
    clock = breakdown._Clock()
    inner = clock.timed("inner", lambda: None)
    clock.timed("outer", lambda: (inner(), inner()))()
    assert clock._now == {"inner": 4.0, "outer": 3.0}
    assert not clock._open


def test_the_table(cli, monkeypatch):
    monkeypatch.setattr(
        breakdown, "measure", lambda *_a, **_k: {"d": 1, "cohort": 2, "parts_ms": {"a": 1.5}}
    )
    code, out, _ = cli("bench", "where", "--quick")
    assert code == 0
    assert "together" in out
    assert "1.5" in out
