"""From options to settings: defaults, paths, and what a resumed run had."""

import os
from pathlib import Path

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.sims.cli import run
from murmuration.sims.cli.run import settings


@pytest.fixture
def executed(monkeypatch):
    """What a command line asks for: (config, more), instead of running it."""
    asked = []

    def execute(config, **more):
        asked.append((config, more))
        return {"out": config.out}

    monkeypatch.setattr(run, "summary", lambda result: result["out"])
    monkeypatch.setattr(run, "execute", execute)
    return asked


def test_own_data_has_no_embedded_test(cli, executed, crowd):
    cli("run", "--data", crowd)
    assert executed[0][0].test == ""


def test_paths_become_absolute(cli, executed, crowd, crowd_test, monkeypatch):
    monkeypatch.chdir(Path(crowd).parent)
    test = os.path.relpath(crowd_test, Path(crowd).parent)
    cli("run", "--data", "crowd.jsonl", "--test", test, "--out", "o")
    config = executed[0][0]
    assert config.data == crowd
    assert Path(config.test).is_absolute()
    assert Path(config.test).samefile(crowd_test)
    assert config.out == str(Path(crowd).parent / "o")


def test_resume_needs_a_place(cli):
    code, _, lines = cli("run", "--resume")
    assert (code, lines) == (2, ["error: --resume needs --out: which run is to be continued?"])


@pytest.mark.parametrize(
    ("config", "seed"),
    [("{", '{"seed": 1}'), ("[]", '{"seed": 1}'), ('{"lr": 1}', '{"seed": 1}'), ("{}", "{}"),
     ('{"rounds": "many"}', '{"seed": 1}'), ("{}", "[1]")],
)  # fmt: skip
def test_damaged_runs_are_not_resumed(cli, tmp_path, config, seed):
    (tmp_path / "private").mkdir()
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "private" / "seed.json").write_text(seed)
    code, _, lines = cli("run", "--resume", "--out", tmp_path)
    assert code == 2
    assert len(lines) == 1


def test_each_task_has_its_embedded_population(tmp_path):
    found = {}
    for task in (None, "reward", "text", "sft"):
        base = {} if task in (None, "reward") else {"base": str(tmp_path)}
        config = settings({"task": task, **base, "out": str(tmp_path / "o")})
        found[task] = (config.data, config.test)
    assert found[None] == found["reward"] == found["sft"]
    assert found["text"] == (
        "murmuration.population:texts_train",
        "murmuration.population:texts_test",
    )
    with pytest.raises(InputError, match="--task must be one of"):
        settings({"task": "write", "out": str(tmp_path / "o")})
