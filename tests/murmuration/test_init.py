"""The names that ``murmuration`` itself has: what they do, refuse, and do not import."""

import ast
import dataclasses
import inspect
import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import murmuration
from murmuration import Run, compare, plan, train
from murmuration.planning.compare import Cell
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.ledger import LedgerError
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.plugins import brought
from murmuration.strategies.settings.from_python import in_python

SMALL = {"epsilon": 0.5, "delta": 1e-3, "rounds": 3, "cohort": 10, "seed": 1}


def test_every_name_is_there():
    assert sorted(murmuration.__all__) == murmuration.__all__
    for name in murmuration.__all__:
        assert inspect.getdoc(getattr(murmuration, name))
    assert set(murmuration.__all__) <= set(dir(murmuration))
    assert murmuration.RewardModel is RewardModel


def test_editors_are_told_of_each_name_and_where_it_is():
    tree = ast.parse(Path(murmuration.__file__).read_text(encoding="utf-8"))
    for block in (node for node in tree.body if isinstance(node, ast.If)):
        if ast.unparse(block.test) == "TYPE_CHECKING":
            stated = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    places = {name.asname: node.module for node in stated for name in node.names}
    there = {name: point.module for name, point in brought("murmuration.api").items()}
    assert places == murmuration._PLACES | there
    assert {*places, "__version__"} == set(murmuration.__all__)


def test_another_name_is_not():
    with pytest.raises(AttributeError, match=r"module 'murmuration' has no attribute 'trian'"):
        _ = murmuration.trian  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        from murmuration import trian  # noqa: F401  # type: ignore[attr-defined]


@pytest.mark.parametrize("code", ["import murmuration", "from murmuration import Run, plan, train"])
def test_names_alone_import_nothing_that_takes_long(code):
    code += "; import sys; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "transformers", "sklearn", "numba", "scipy", "dp_accounting", "flwr", "ray"}
    assert not heavy & set(found)


@pytest.fixture
def run(crowd, tmp_path, quick_runs):
    """A small run."""
    return train(data=crowd, out=tmp_path / "r", **SMALL)


def test_the_version_is_that_of_the_distribution():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert murmuration.__version__ == project["version"]


def test_what_should_be_known_is_a_warning_of_the_line_that_called(crowd, tmp_path, quick_runs):
    rows = [*map(json.loads, Path(crowd).read_text().splitlines()), {"user_id": "nobody"}]
    with pytest.warns(UserWarning) as warned:
        run = train(rows, out=tmp_path / "r", on_bad_rows="skip", **SMALL)
    texts = [str(each.message) for each in warned]
    assert {each.filename for each in warned} == {__file__}
    assert len(texts) == len(set(texts))
    assert set(map(in_python, run.result["warnings"])) < set(texts)
    assert "--" not in "".join(texts)
    assert any(text.startswith("SIMULATION, SEED KNOWN") for text in texts)
    assert any(text.startswith("operator only: 1 skipped row") for text in texts)


def test_what_should_be_known_of_data_is_a_warning_before_an_error(crowd, tmp_path):
    rows = [*map(json.loads, Path(crowd).read_text().splitlines()), {"user_id": "nobody"}]
    with pytest.warns(UserWarning, match="1 skipped row"), pytest.raises(InputError):
        train(rows, out=tmp_path / "r", on_bad_rows="skip", users_per_node=0, **SMALL)


def test_a_run_is_what_the_command_makes_of_the_same_settings(run, cli, crowd, tmp_path, capsys):
    assert capsys.readouterr() == ("", "")
    options = [text for name, value in SMALL.items() for text in (f"--{name}", value)]
    code, out, _ = cli("run", "--data", crowd, "--out", tmp_path / "c", *options, "--json")
    assert code == 0
    timed = {"ledger_head", "out", "seconds", "seconds_training", "users_per_second"}
    timed |= {"run", "promise"}  # two runs, of which each has an identity
    told = json.loads(out)
    for name in told.keys() - timed:
        assert run.result[name] == told[name], name
    same = Run.load(tmp_path / "c").model
    assert run.model.theta_D.tobytes() == same.theta_D.tobytes()


def test_what_a_run_holds(run, tmp_path):
    assert run.path == tmp_path / "r"
    assert Run.load(run.path) == run == Run.load(str(run.path))
    assert Counter(charge.covers for charge in run.ledger)["gradient sum"] == 3
    assert len(run.metrics) == 3
    assert isinstance(run.model, RewardModel)
    assert run.model is run.model
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.path = tmp_path  # type: ignore[misc]


def test_scores_of_many_are_those_of_each(run):
    prompts, responses = ["What now?"] * 3, ["Save it.", "Bet on it.", "Keep the old one."]
    one_by_one = [run.model.score(*pair) for pair in zip(prompts, responses, strict=True)]
    assert np.array_equal(run.model.score(prompts, responses), one_by_one)


def test_a_ledger_that_was_changed_is_not_read(run):
    path = run.path / "ledger.jsonl"
    path.write_text(path.read_text(encoding="utf-8").replace("0.001", "0.002", 1))
    with pytest.raises(LedgerError):
        _ = run.ledger


def test_a_run_that_is_there_is_continued_only_if_asked(run, crowd):
    with pytest.raises(InputError, match="holds a run already"):
        train(data=crowd, out=run.path, **SMALL)
    assert train(out=run.path, resume=True) == run


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "missing.jsonl"}, "missing.jsonl: no such file"),
        ({"epsilon": 0}, "epsilon must be a positive number; got 0"),
        ({"epsilon": "3"}, "setting 'epsilon' must be a float; got '3'"),
        ({"epsilom": 3}, "unknown setting 'epsilom'; did you mean 'epsilon'"),
        ({"user_col": "voter"}, "did you mean 'user_column'"),
        ({"zzzz": 1}, "unknown setting 'zzzz'; known: data, "),
        ({"as_json": True}, "unknown setting 'as_json'"),
        ({"runtime": "moon"}, "runtime must be one of local, ray; got 'moon'"),
        ({"min_nodes": 0.5}, "unknown setting 'min_nodes'"),
        ({"adjacency": "add"}, "adjacency must be one of add-remove, "),
        ({"strategy": "ulss"}, "strategy must be one of"),
        ({"delta": "n^2"}, "delta must be a number between 0 and 1"),
        ({"users_per_node": 0}, "users_per_node must be at least 1"),
        ({"data": 3}, "data"),
        ({"features": 3}, "features"),
        ({"adjacency": 3}, "adjacency"),
        ({"rounds": 1.5}, "rounds"),
    ],
)
def test_settings_that_cannot_be_used(crowd, tmp_path, settings, message):
    with pytest.raises(InputError) as refused:
        train(**{"data": crowd, "out": tmp_path / "r", **settings})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("what", ["nothing", "half", "list"])
def test_folders_without_a_run(tmp_path, what):
    if what != "nothing":
        (tmp_path / "result.json").write_text("[]" if what == "list" else "{")
    with pytest.raises(InputError) as refused:
        Run.load(tmp_path)
    assert "\n" not in str(refused.value)


NUMBERS = {"epsilon": 3.0, "delta": 1e-5, "rounds": 20, "cohort": 50, "users": 480}


@pytest.mark.parametrize("adjacency", ["add-remove", Adjacency.REPLACE])
def test_a_plan_is_what_the_command_prints(cli, adjacency, capsys):
    options = [text for name, value in NUMBERS.items() for text in (f"--{name}", value)]
    _, out, _ = cli("plan", *options, "--adjacency", adjacency, "--json")
    assert plan(**NUMBERS, adjacency=adjacency) == json.loads(out)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({}, "leave out exactly one of"),
        ({**NUMBERS, "noise_multiplier": 1.0}, "leave out exactly one of"),
        ({**NUMBERS, "cohort": 481}, "cohort=481 is more than users=480"),
        ({**NUMBERS, "strategy": "nonprivate"}, "there is nothing to plan"),
        ({**NUMBERS, "users": -5}, "users must be a positive number; got -5"),
        ({**NUMBERS, "rounds": 0}, "rounds must be positive; got 0"),
        ({**NUMBERS, "rounds": 2.5}, "rounds"),
        ({**NUMBERS, "epsilon": "3"}, "epsilon"),
        ({**NUMBERS, "delta": 0}, "delta"),
        ({**NUMBERS, "adjacency": 3}, "adjacency"),
        ({**NUMBERS, "variant": "publishd", "strategy": "aup"}, "variant"),
        ({**NUMBERS, "variant": "published"}, "variant"),
        ({**NUMBERS, "noises": 1.0}, "unknown setting 'noises'"),
        ({**NUMBERS, "as_json": 1.0}, "unknown setting 'as_json'"),
        (
            {**NUMBERS, "sampling": "all", "users": None},
            "states a round, public number",
        ),
        (
            {**NUMBERS, "sampling": "all", "users": None, "adjacency": "zero-out"},
            'sampling="all" needs users',
        ),
        ({**NUMBERS, "sampling": "all", "cohort": 20}, 'sampling="all" has all users in each'),
        ({**NUMBERS, "sampling": "banded", "adjacency": "replace"}, "has no guarantee"),
    ],
)
def test_numbers_that_are_no_plan(numbers, message):
    with pytest.raises(InputError) as refused:
        plan(**numbers)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_strategies_side_by_side(crowd, crowd_test, tmp_path, quick_runs):
    settings = {name: SMALL[name] for name in ("delta", "rounds", "cohort")}
    given = {"data": crowd, "test": crowd_test, "out": tmp_path, "seeds": 1, **settings}
    cells = compare(epsilon=[0.5, 1.0], **given)
    assert list(compare("uls", 0.5, **given)) == [cells[0]]
    assert repr(cells) == f"StrategyComparison({str(tmp_path)!r}, 3 cells)"
    assert isinstance(cells.plot(), Figure)
    assert "<td>uls</td><td>0.5</td>" in cells._repr_html_()
    assert [(cell.strategy, cell.epsilon) for cell in cells] == [
        ("uls", 0.5),
        ("uls", 1.0),
        ("nonprivate", None),
    ]
    assert all(isinstance(cell, Cell) and len(cell.results) == 1 for cell in cells)
    assert {Path(cell.results[0]["out"]).parent for cell in cells} == {tmp_path / "runs"}
    assert Run.load(cells[0].results[0]["out"]).result == cells[0].results[0]


@pytest.mark.parametrize(
    "wrong", [{"seeds": 0}, {"strategies": []}, {"epsilon": []}, {"strategies": ["ulss"]}]
)
def test_comparisons_of_nothing(crowd, tmp_path, wrong):
    given = {"strategies": ["uls"], "epsilon": [1.0], "seeds": 1, **wrong}
    with pytest.raises(InputError):
        compare(data=crowd, out=tmp_path, **given)
