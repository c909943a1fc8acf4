"""How a run shows itself, and its bar."""

import json
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from murmuration import Run, train
from murmuration.reporting.live import live_view

SMALL = {"epsilon": 0.5, "delta": 1e-3, "rounds": 2, "cohort": 10, "seed": 1}


@pytest.fixture(scope="module")
def made(crowd, crowd_test, tmp_path_factory):
    """A run with its page and plots."""
    return train(crowd, test=crowd_test, out=tmp_path_factory.mktemp("runs") / "<b>&r", **SMALL)


@pytest.fixture
def run(made, tmp_path):
    return Run.load(shutil.copytree(made.path, tmp_path / made.path.name))


def test_a_run_in_a_line(run):
    assert repr(run).startswith(f"Run({str(run.path)!r}, accuracy 0.")
    assert str(run.promise) in repr(run)
    assert "\n" not in repr(run)


def test_a_run_in_a_notebook_is_escaped(run):
    shown = run._repr_html_()
    assert "&lt;b&gt;&amp;r" in shown
    assert "<b>" not in shown
    assert str(run.promise).replace("'", "&#x27;") in shown
    assert "data:image/png;base64," in shown
    odd = Run(run.path, {**run.result, "strategy": "<script>\x1b[2J"})
    assert "<script>" not in odd._repr_html_()
    assert "\x1b" not in odd._repr_html_()


def test_a_run_whose_files_do_not_fit_shows_that(run):
    ledger = run.path / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace("0.001", "0.002", 1))
    for shown in (repr(run), run._repr_html_()):
        assert "no promise" in shown or "No privacy guarantee" in shown


def test_a_run_has_a_page_and_a_figure(run):
    assert run.report.is_file()
    assert isinstance(run.plot(), Figure)
    assert [axes.get_ylabel() for axes in run.plot().axes][1:] == ["ε so far"]


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize(("progress", "lines"), [(None, False), (False, False), (True, True)])
def test_progress_is_shown_where_asked(crowd, tmp_path, capsys, progress, lines):
    train(crowd, out=tmp_path / "r", progress=progress, **SMALL)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("round 2 of 2" in err) == lines


def test_a_notebook_has_a_bar_where_it_has_widgets(monkeypatch):
    notebook = Console(force_jupyter=True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    monkeypatch.setattr(live_view, "find_spec", lambda name: None)
    assert not live_view._interactive(notebook)
    monkeypatch.setattr(live_view, "find_spec", lambda name: ModuleSpec(name, None))
    assert live_view._interactive(notebook)
    assert not live_view._interactive(Console(force_jupyter=False))


def test_results_are_json(run):
    assert json.loads((Path(run.path) / "result.json").read_text()) == run.result


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize(
    ("settings", "measured"),
    [
        ({"test": True}, True),
        ({"epsilon": 50.0}, True),  # of users held out, with noise
        ({"heldout": 0.0}, False),
        ({"epsilon": 0.05}, False),  # too few for the noise
        ({"strategy": "label-moment", "adjacency": "replace-labels", "epsilon": 9.0}, True),
        ({"strategy": "nonprivate"}, True),
        ({"strategy": "survey", "heldout": 0.0, "epsilon": 9.0}, False),
    ],
)
def test_the_last_line_of_metrics_has_the_accuracy_of_the_result(
    settings, measured, crowd, crowd_test, tmp_path
):
    own = {"rounds", "cohort"} if settings.get("strategy") in ("label-moment", "survey") else set()
    small = {name: value for name, value in SMALL.items() if name not in own}
    if "test" in settings:
        settings = {**settings, "test": crowd_test}
    run = train(crowd, out=tmp_path / "r", **{**small, **settings})
    assert all("heldout_accuracy" in line for line in run.metrics)
    last = run.metrics[-1]["heldout_accuracy"]
    assert last == run.result["heldout_accuracy"]
    assert (last is not None) == measured
