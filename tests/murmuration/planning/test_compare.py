"""Comparisons: means over seeds, refusals, resuming, the price of releasing everything."""

import json
import math
from dataclasses import replace

import pytest

from murmuration.planning.compare import Cell, StrategyComparison, compare
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.sims.runtimes import sweep
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")
ADD_REMOVE, LABELS = Adjacency.ADD_REMOVE, Adjacency.REPLACE_LABELS


@pytest.fixture
def base(crowd, crowd_test):
    return RunConfig(data=crowd, test=crowd_test, rounds=3, cohort=10, delta=1e-3)


def result(accuracy: float | None, **more: object) -> dict:
    plan = {"rounds": 3, "gradients": 30, "bytes_per_user": 8}
    unknown = dict.fromkeys(("heldout_error", "heldout_chance", "baselines"))
    return {"heldout_accuracy": accuracy, **plan, **unknown, **more}


def cell(strategy, epsilon, *accuracies, adjacency=ADD_REMOVE, **more):
    return Cell(strategy, epsilon, adjacency, tuple(result(each, **more) for each in accuracies))


def of(tmp_path, *cells, composed=4.2):
    return StrategyComparison(tmp_path, cells, 1e-3, composed)


def legend(comparison):
    return {text.get_text() for text in comparison.plot().legends[0].get_texts()}


def test_a_row_is_mean_and_deviation_over_seeds():
    row = cell("uls", 1.0, 0.6, 0.8).row()
    assert row["accuracy_mean"] == pytest.approx(0.7)
    assert row["accuracy_sd"] == pytest.approx(0.1 * 2**0.5)
    assert (row["rounds"], row["gradients"], row["bytes_per_user"]) == (3, 30, 8)
    assert cell("uls", 1.0, 0.6).row()["accuracy_sd"] is None


def test_every_strategy_at_every_epsilon_and_once_without_privacy(base, tmp_path):
    heard = []
    cells = compare(base, ["uls", "nonprivate"], [0.5, 2.0], 2, tmp_path, on_run=heard.append)
    assert [(c.strategy, c.epsilon, len(c.results)) for c in cells] == [
        ("uls", 0.5, 2),
        ("uls", 2.0, 2),
        ("nonprivate", None, 2),
    ]
    assert len(set(heard)) == 6
    assert {r["adjacency"] for c in cells for r in c.results} == {"add-remove"}
    assert all(r["epsilon"] <= c.epsilon for c in cells[:2] for r in c.results)
    assert "adjacency" not in cells.table()[0]
    assert "under add-remove" in cells.caption


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


def test_a_comparison_goes_on_with_its_own_settings_alone(base, tmp_path):
    compare(base, ["uls"], [0.5], 1, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"^uls: .*--rounds was 3"):
        compare(replace(base, rounds=4), ["nonprivate", "uls"], [0.5], 2, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


REFUSED = {
    "no strategy": (["uls", "magic"], {}, {"magic": "must be one of"}),
    "no variant": (["uls:published", "aup"], {}, {"uls:published": "--variant"}),
    "no setting": (["uls:bogus=1"], {}, {"uls:bogus=1": "no such setting"}),
    "no number": (["uls:rounds=x"], {}, {"uls:rounds=x": "is no int"}),
    "of all": (["uls:data=x", "uls"], {}, {"uls:data=x": "the same for all"}),
    "a promise": (["uls:epsilon=9", "uls"], {}, {"uls:epsilon=9": "the same for all"}),
    "twice": (["uls:rounds=2:rounds=3"], {}, {"uls:rounds=2:rounds=3": "twice"}),
    "another strategy": (["uls:strategy=els"], {}, {"uls:strategy=els": "twice"}),
    "adjacency": (["els", "uls"], {"adjacency": "replace"}, {"els": "no guarantee under replace"}),
    "two of three": (
        ["els", "uls", "local-label"],
        {"adjacency": "replace"},
        {"els": "no guarantee", "local-label": "no guarantee under replace, only under"},
    ),
    "data": (["uls:cohort=4000", "nonprivate"], {}, {"uls:cohort=4000": "more than the"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_all_that_is_refused_is_said_first_a_line_each(what, base, tmp_path, monkeypatch):
    strategies, settings, lines = REFUSED[what]
    monkeypatch.setattr(sweep, "execute", lambda *_, **__: pytest.fail("a run was begun"))
    with pytest.raises(InputError) as refused:
        compare(replace(base, **settings), strategies, [0.5, 1.0], 2, tmp_path)
    said = str(refused.value).splitlines()
    for name, why in lines.items():
        (line,) = [each.strip() for each in said if each.strip().startswith(f"{name}: ")]
        assert why in line
    assert list(tmp_path.iterdir()) == []


def test_what_all_are_refused_for_is_said_once(base, tmp_path):
    with pytest.raises(InputError, match=r"^[^\n]*nowhere.jsonl: no such file or folder$"):
        compare(
            replace(base, data=str(tmp_path / "nowhere.jsonl")),
            ["uls", "aup", "nonprivate"], [1.0], 1, tmp_path,
        )  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_an_epsilon_that_is_none_is_refused_beside_one_that_is(base, tmp_path, epsilon):
    with pytest.raises(InputError, match="epsilon"):
        compare(base, ["uls", "nonprivate"], [1.0, epsilon], 1, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_strategy_is_compared_once(base, tmp_path):
    with pytest.raises(InputError, match="twice"):
        compare(base, ["uls", "uls"], [1.0], 1, tmp_path)


def test_refusals_say_how_those_without_a_common_adjacency_are_compared(base, tmp_path):
    with pytest.raises(InputError) as refused:
        compare(base, ["els", "local-label"], [0.5, 1.0, 2.0], 1, tmp_path)
    assert str(refused.value).count("no guarantee") == 1
    assert "they share none" in str(refused.value)
    _, _, option = str(refused.value).rpartition("--strategies ")
    both = compare(base, option.split(","), [0.5], 1, tmp_path)
    assert [c.adjacency for c in both] == [ADD_REMOVE, LABELS]
    assert [c.results[0]["adjacency"] for c in both] == ["add-remove", "replace-labels"]


def test_refusals_name_an_adjacency_that_all_share(base, tmp_path):
    with pytest.raises(InputError, match="compare under --adjacency add-remove or zero-out;"):
        compare(replace(base, adjacency="replace"), ["els", "uls"], [0.5], 1, tmp_path)


def test_settings_of_one_strategy_are_its_own(base, tmp_path):
    names = ["uls", "uls:learning-rate=0.5:rounds=2", "aup:centred:rounds=2", "label-moment:"
             "adjacency=replace-labels"]  # fmt: skip
    cells = compare(base, names, [2.0], 1, tmp_path)
    assert [c.strategy for c in cells] == names
    assert [c.results[0]["rounds"] for c in cells] == [3, 2, 2, 1]
    first, second = (
        json.loads((tmp_path / "runs" / name / "config.json").read_text())
        for name in ("uls-epsilon2-seed0", "uls-learning-rate=0.5-rounds=2-epsilon2-seed0")
    )
    assert first["learning_rate"] != second["learning_rate"] == 0.5


def test_releasing_everything_costs_the_composition_of_the_ledgers(base, tmp_path):
    cells = compare(base, ["uls", "nonprivate"], [0.5], 2, tmp_path)
    sigma = cells[0].results[0]["noise_multiplier"]
    expected = accountant.epsilon(
        [(PoissonGaussian(10 / 50, sigma), 2 * base.rounds)],
        adjacency=Adjacency.ADD_REMOVE,
        delta=base.delta,
        interval=1e-3,
    )
    assert cells.composed_epsilon == pytest.approx(expected)


def test_what_is_written(tmp_path):
    made = of(
        tmp_path,
        cell("uls", 1.0, 0.6, 0.7),
        cell("uls", 3.0, 0.7, 0.7),
        cell("nonprivate", None, 0.75),
    )
    made.write()
    rows = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["rows"]
    assert rows == [each.row() for each in made]
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "ε = 4.2" in report
    assert "| uls | 1 | 0.6500 ± 0.0707 |" in report
    assert (tmp_path / "comparison.png").stat().st_size > 5000
    assert legend(made) == {"nonprivate: no privacy", "uls"}


def test_rows_of_different_promises_say_theirs(tmp_path):
    made = of(
        tmp_path,
        cell("els", 1.0, 0.6),
        cell("local-label", 1.0, 0.7, adjacency=LABELS),
        cell("nonprivate", None, 0.75),
        composed=math.nan,
    )
    headings, *lines = made.table()
    place = headings.index("adjacency")
    assert [line[place] for line in lines] == [
        "add-remove", "replace-labels", "–",
    ]  # fmt: skip
    assert "do not compare" in made.caption
    assert "under add-remove" not in made.caption
    assert made.to_json()["composed_epsilon"] is None
    assert "no ε is of all" in str(made).replace("\n", " ")
    panels = made.plot().axes
    assert [axes.get_xlabel() for axes in panels] == [
        "ε of a user under add-remove",
        "ε of a user under replace-labels",
    ]
    assert [len(axes.containers) for axes in panels] == [1, 1]


@pytest.mark.parametrize("accuracies", [(0.6,), (0.6, 0.7)])
def test_bars_are_the_intervals_of_the_table(tmp_path, accuracies):
    made = of(tmp_path, *(cell("uls", e, *accuracies, heldout_error=0.03) for e in (1.0, 3.0)))
    (bars,) = made.plot().axes[0].containers
    drawn = [segment[:, 1] for segment in bars[2][0].get_segments()]
    for ends, line in zip(drawn, made.table()[1:], strict=True):
        mean, error = map(float, line[2].split(" ± "))
        assert ends == pytest.approx([mean - error, mean + error], abs=1e-4)
    made.write()
    title = made.plot()._suptitle.get_text()
    for said in (title, (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert ("one seed" if len(accuracies) == 1 else "over 2 seeds") in said
        assert "δ = 0.001 under add-remove" in said


def test_what_learns_nothing_stands_beside(tmp_path):
    rules = {"heldout_chance": 0.5, "baselines": {"longer_wins": 0.59}}
    made = of(tmp_path, cell("uls", 1.0, 0.6, **rules))
    assert legend(made) == {"uls", "guessing", "the longer response"}
    heights = {line.get_ydata()[0] for line in made.plot().axes[0].lines}
    assert {0.5, 0.59} <= heights


def test_nothing_that_was_measured_is_drawn_all_the_same(tmp_path):
    made = of(tmp_path, cell("uls", 1.0, None), cell("nonprivate", None, None))
    made.write()
    assert "not measured" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_ticks_do_not_touch(tmp_path):
    def labels(*epsilons):
        figure = of(tmp_path, *(cell("uls", epsilon) for epsilon in epsilons)).plot()
        return [tick.get_text() for tick in figure.axes[0].get_xticklabels()]

    assert labels(1.0, 3.0, 8.0) == ["1", "3", "8"]
    assert labels(1.0, 1.05, 3.0, 7.9, 8.0) == ["1", "3", "8"]
    assert labels(2.0) == ["2"]
