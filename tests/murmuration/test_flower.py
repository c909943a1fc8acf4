"""What an app of one's own may use: it is there, light, and does what its page shows."""

import doctest
import inspect
import os
import subprocess
import sys

import pytest
from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from rooms import ROOT

from murmuration import InputError, Run, flower
from murmuration.client.app import app
from murmuration.sims.runtimes.local import LocalGrid


def test_all_names_are_there():
    assert flower.__all__ == ["PldAccountant", "client_app", "run_local", "train"]
    assert set(flower.__all__) <= set(dir(flower))
    assert isinstance(flower.client_app, ClientApp)
    with pytest.raises(AttributeError, match="no attribute 'Ledger'"):
        _ = flower.Ledger


@pytest.mark.parametrize("name", ["train", "run_local"])
def test_docstrings_are_whole(name):
    function = getattr(flower, name)
    signature = inspect.signature(function)
    assert all(p.annotation is not p.empty for p in signature.parameters.values())
    text = inspect.getdoc(function) or ""
    assert all(parameter in text for parameter in signature.parameters)


def test_the_example_does_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder().find(flower.train, "train", globs={})
    result = doctest.DocTestRunner().run(example, clear_globs=True)
    assert result.attempted == 6
    assert result.failed == 0, capsys.readouterr().out


def test_a_clients_app_imports_little():
    """Flower starts a process for every message."""
    code = (
        "import sys; from murmuration import flower; flower.client_app; "
        "print([n for n in sys.modules if n.split('.')[0] in ('torch', 'scipy', 'sklearn')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "[]\n"


@pytest.fixture
def given(crowd, crowd_test, tmp_path):
    """A grid of two nodes, and the context of a ServerApp on it."""
    config = {
        "data": crowd, "test": crowd_test, "delta": 1e-3, "users": 40, "cohort": 10, "rounds": 2,
        "epsilon": 8.0, "out": str(tmp_path / "run"),
    }  # fmt: skip
    return LocalGrid(app, 2, config), Context(1, 0, {}, RecordDict(), config)


def test_settings_take_the_place_of_the_run_configs(given, tmp_path):
    lines = []
    run = flower.train(*given, on_round=lines.append, rounds=3, clip_norm=0.2)
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert lines[-1]["epsilon"] == run.result["epsilon"] <= 8.0
    assert Run.load(tmp_path / "run").result == run.result
    assert '"clip_norm": 0.2' in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.parametrize("settings", [{"epsylon": 3.0}, {"rounds": "many"}, {"epsilon": -1.0}])
def test_a_setting_that_is_none_is_refused_by_name(given, settings, tmp_path):
    (name,) = settings
    with pytest.raises(InputError, match=name):
        flower.train(*given, **settings)
    assert not (tmp_path / "run").exists()
