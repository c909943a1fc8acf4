"""Comparisons: means over seeds, refusals, resuming, the price of releasing everything."""

import json
from dataclasses import replace

import pytest

from murmuration.planning.compare import Cell, compare, composed_epsilon, plot, write
from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.sims.runtimes import sweep
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.fixture
def base(crowd, crowd_test):
    return RunConfig(data=crowd, test=crowd_test, rounds=3, cohort=10, delta=1e-3)


def result(accuracy: float, **more: object) -> dict:
    return {"heldout_accuracy": accuracy, "rounds": 3, "gradients": 30, "bytes_per_user": 8, **more}


def test_a_row_is_mean_and_deviation_over_seeds():
    row = Cell("uls", 1.0, (result(0.6), result(0.8))).row()
    assert row["accuracy_mean"] == pytest.approx(0.7)
    assert row["accuracy_sd"] == pytest.approx(0.1 * 2**0.5)
    assert (row["rounds"], row["gradients"], row["bytes_per_user"]) == (3, 30, 8)
    assert Cell("uls", 1.0, (result(0.6),)).row()["accuracy_sd"] is None


def test_every_strategy_at_every_epsilon_and_once_without_privacy(base, tmp_path):
    heard = []
    cells = compare(base, ["uls", "nonprivate"], [0.5, 2.0], 2, tmp_path, heard.append)
    assert [(c.strategy, c.epsilon, len(c.results)) for c in cells] == [
        ("uls", 0.5, 2),
        ("uls", 2.0, 2),
        ("nonprivate", None, 2),
    ]
    assert len(set(heard)) == 6
    assert {r["adjacency"] for c in cells for r in c.results} == {"add-remove"}
    assert all(r["epsilon"] <= c.epsilon for c in cells[:2] for r in c.results)


def test_an_interrupted_comparison_goes_on_with_what_is_there(base, tmp_path, monkeypatch):
    first = compare(base, ["uls"], [0.5], 1, tmp_path)
    ran = []
    real = sweep.execute
    monkeypatch.setattr(sweep, "execute", lambda c, **k: ran.append(c.seed) or real(c, **k))
    again = compare(base, ["uls"], [0.5], 2, tmp_path)
    assert again[0].results[0] == first[0].results[0]
    assert ran == [0, 1]
    folder = tmp_path / "runs" / "uls-epsilon0.5-seed0"
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == 1 + base.rounds


def test_what_has_no_guarantee_is_listed_as_refused(base, tmp_path):
    under_replace = replace(base, adjacency="replace")
    cells = compare(under_replace, ["els", "uls"], [0.5], 1, tmp_path)
    assert cells[0].results == ()
    assert "no guarantee under replace" in str(cells[0].refused)
    assert cells[1].refused is None
    write(cells, 0.5, under_replace, tmp_path)
    assert "refused" in (tmp_path / "report.md").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="every run was refused"):
        compare(under_replace, ["els"], [0.5], 1, tmp_path)


def test_releasing_everything_costs_the_composition_of_the_ledgers(base, tmp_path):
    cells = compare(base, ["uls", "nonprivate"], [0.5], 2, tmp_path)
    sigma = cells[0].results[0]["noise_multiplier"]
    expected = accountant.epsilon(
        [(PoissonGaussian(10 / 50, sigma), 2 * base.rounds)],
        adjacency=Adjacency.ADD_REMOVE,
        delta=base.delta,
        interval=1e-3,
    )
    assert composed_epsilon(cells, Adjacency.ADD_REMOVE, base.delta) == pytest.approx(expected)


def test_what_is_written(tmp_path, base):
    cells = [
        Cell("uls", 1.0, (result(0.6), result(0.7))),
        Cell("uls", 3.0, (result(0.7), result(0.7))),
        Cell("nonprivate", None, (result(0.75),)),
    ]
    write(cells, 4.2, base, tmp_path)
    rows = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["rows"]
    assert rows == [cell.row() for cell in cells]
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "ε = 4.2" in report
    assert "| uls | 1 | 0.6500 ± 0.0707 |" in report
    assert (tmp_path / "comparison.png").stat().st_size > 5000
    axes = plot(cells).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["nonprivate", "uls"]


def test_one_seed_has_no_bars_and_says_so(tmp_path, base):
    one = [Cell("uls", e, (result(0.6),)) for e in (1.0, 3.0)]
    two = [Cell("uls", e, (result(0.6), result(0.7))) for e in (1.0, 3.0)]
    for cells, bars, said in ((one, 0, "one seed"), (two, 1, "over 2 seeds")):
        axes = plot(cells).axes[0]
        assert [len(container[2]) for container in axes.containers] == [bars]
        assert said in axes.get_title(loc="left")
        write(cells, 4.2, base, tmp_path)
        assert said in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_ticks_do_not_touch():
    def labels(*epsilons):
        figure = plot([Cell("uls", epsilon, ()) for epsilon in epsilons])
        return [tick.get_text() for tick in figure.axes[0].get_xticklabels()]

    assert labels(1.0, 3.0, 8.0) == ["1", "3", "8"]
    assert labels(1.0, 1.05, 3.0, 7.9, 8.0) == ["1", "3", "8"]
    assert labels(2.0) == ["2"]
