"""`murmuration init`: Flower takes the app that it writes, builds it, and runs it."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from flwr.cli.app_cmd.publish import (
    _collect_file_paths,
    _validate_app_name,
    _validate_description,
    _validate_files,
)
from flwr.cli.build import build_fab_from_files
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import collect_files

from murmuration import InputError, Run
from murmuration.research.bench.flower_runs import run_flower
from murmuration.server.record.run_files import settings_of
from murmuration.server.versions import version
from murmuration.sharing.flower_app import write_app
from murmuration.sims.runtimes.local import run_local
from murmuration.strategies.config import RunConfig

ROOT = Path(__file__).parents[3]
PARTS = ("client_app", "server_app", "task")


@pytest.fixture
def app(tmp_path):
    write_app(tmp_path / "my-app")
    return tmp_path / "my-app"


def test_flower_takes_it(app):
    config, warnings = load_and_validate(app / "pyproject.toml", check_module=False)
    assert not warnings
    _, about = build_fab_from_files(collect_files(app))
    assert about.fab_format_version == 1
    assert about.flwr_version_min == about.flwr_version_target
    assert config["project"]["name"] == "my-app"
    requirements = config["project"]["dependencies"]
    assert requirements[0] == f"murmuration-rlhf=={version()}"


def test_flower_hub_takes_it(app):
    files = _collect_file_paths(app)
    _validate_files(files)
    _validate_description(config_of(app)["project"]["description"])
    sent = {str(file.relative_to(app)) for file in files}
    assert {"README.md", "LICENSE", *(f"my_app/{name}.py" for name in PARTS)} <= sent
    _validate_app_name(app.name, "the folder")
    assert config_of(app)["project"]["license"] == {"file": "LICENSE"}


def test_flwr_builds_it(app, tmp_path):
    """`flwr build`, and what the bundle holds."""
    done = subprocess.run(
        [Path(sys.executable).parent / "flwr", "build", "--app", app],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "FLWR_HOME": str(tmp_path / "flwr"), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (bundle,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(bundle) as files:
        assert {f"my_app/{name}.py" for name in PARTS} <= set(files.namelist())


def test_it_is_as_small_as_flowers_own(app):
    """Three files to be changed, each read at a glance, and few settings, all of which exist."""
    assert {file.stem for file in (app / "my_app").glob("*.py")} == {*PARTS, "__init__"}
    assert all(len((app / "my_app" / f"{name}.py").read_text().split("\n")) < 45 for name in PARTS)
    settings = config_of(app)["tool"]["flwr"]["app"]["config"]
    assert len(settings) <= 10
    RunConfig.from_run_config({**settings_of(settings), "out": "x"})


def test_it_learns_in_this_process(app, tmp_path, monkeypatch, capsys):
    """Its own main, over ten nodes: what three in four people like, which is the most there is."""
    monkeypatch.syspath_prepend(str(app))
    for name in ("my_app", *(f"my_app.{name}" for name in PARTS)):
        monkeypatch.setitem(sys.modules, name, None)  # is gone again afterwards
        del sys.modules[name]
    settings = config_of(app)["tool"]["flwr"]["app"]["config"]
    from my_app import client_app, server_app

    run_local(
        {**settings, "rounds": 20, "out": str(tmp_path / "run"), "settings": "seed = 1"},
        nodes=10, server_app=server_app.app, client_app=client_app.app,
    )  # fmt: skip
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("round 10: epsilon")]
    assert printed[-1] == f"accuracy 75.0%; all of the run is in {tmp_path / 'run'}"
    run = Run.load(tmp_path / "run")
    assert f"{run.promise}" in printed and run.promise.epsilon <= 3.0


def config_of(app):
    return tomllib.loads((app / "pyproject.toml").read_text())


def test_all_is_filled_in(app):
    for file in app.rglob("*"):
        assert file.is_dir() or not re.search("@[A-Z]+@", file.read_text(encoding="utf-8"))


@pytest.mark.flower
@pytest.mark.slow
def test_it_runs_in_simulation(app, tmp_path):
    settings = config_of(app)["tool"]["flwr"]["app"]
    small = {"rounds": 2, "delta": 1e-3, "epsilon": 8.0, "out": str(tmp_path / "run")}
    run_flower(
        {**settings["config"], **small},
        nodes=2,
        log=tmp_path / "log",
        app_dir=app,
        **settings["components"],
    )
    assert Run.load(tmp_path / "run").result["rounds"] == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My-App", "begins with a small letter"),
        ("a" * 33, "at most 32"),
        ("9lives", "begins with a small letter"),
        ("json", "a package json is there already"),
        ("murmuration", "a package murmuration is there already"),
    ],
)
def test_names_that_no_app_may_have(name, message, tmp_path):
    with pytest.raises(InputError, match=message):
        write_app(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_something_stays_as_it_is(tmp_path):
    (tmp_path / "my-app").mkdir()
    (tmp_path / "my-app" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="holds something already"):
        write_app(tmp_path / "my-app")
    assert [file.name for file in (tmp_path / "my-app").iterdir()] == ["notes.txt"]
    (tmp_path / "a-file").write_text("mine")
    with pytest.raises(InputError, match="holds something already"):
        write_app(tmp_path / "a-file")
    with pytest.raises(InputError, match="--publisher"):
        write_app(tmp_path / "other", publisher="no one")


def test_the_command_says_what_it_wrote(cli, tmp_path):
    code, out, _ = cli("init", "app", tmp_path / "my-app", "--publisher", "ada")
    assert code == 0
    *names, last = out.splitlines()
    assert all(Path(name).is_file() for name in names)
    assert "README.md says how to run it" in last
    assert 'publisher = "ada"' in (tmp_path / "my-app" / "pyproject.toml").read_text()
