"""`murmuration init`: Flower takes the app that it writes, and runs it; its own test passes."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from flwr.cli.app_cmd.publish import _collect_file_paths, _validate_description, _validate_files
from flwr.cli.build import build_fab_from_files
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import collect_files

from murmuration import InputError, Run
from murmuration.research.bench.flower_runs import run_flower
from murmuration.server.versions import version
from murmuration.sharing.flower_app import write_app

ROOT = Path(__file__).parents[3]


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
    _validate_description(
        tomllib.loads((app / "pyproject.toml").read_text())["project"]["description"]
    )
    assert {"README.md", "LICENSE", "data.py", "test_app.py"} <= {file.name for file in files}


def test_all_is_filled_in(app):
    for file in app.rglob("*"):
        assert file.is_dir() or "@" not in file.read_text(encoding="utf-8")


def python(folder, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_own_test_passes(app):
    assert "2 passed" in python(app, "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.flower
@pytest.mark.slow
def test_it_runs_in_simulation(app, tmp_path):
    settings = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
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
