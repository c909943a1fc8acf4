"""Rivals are measured where they can be installed, and left out with a reason where they cannot."""

import json
import subprocess
import sys

import pytest

from murmuration.research.bench import rivals
from murmuration.research.bench.rivals import NoRival, pfl_environment, pfl_users_per_second
from murmuration.research.bench.setting import Setting

TINY = Setting(dimension=8, cohort=5, users=20, each=3)


def done(code, out="", err=""):
    return subprocess.CompletedProcess([], code, out, err)


def test_an_environment_is_made_once(tmp_path, monkeypatch):
    ran = []

    def run(command, **_):
        ran.append(command)
        (tmp_path / "env").mkdir(exist_ok=True)
        return done(0)

    monkeypatch.setattr(rivals.subprocess, "run", run)
    first = pfl_environment(tmp_path / "env")
    assert len(ran) == 3
    assert ran[-1][-2] == "pfl==0.6.0"
    assert "+" not in ran[-1][-1], "a local version label cannot be installed"
    assert pfl_environment(tmp_path / "env") == first
    assert len(ran) == 3


def test_what_cannot_be_installed_is_said_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(rivals.subprocess, "run", lambda *_, **__: done(1, err="a\nno pfl"))
    for _ in range(2):
        with pytest.raises(NoRival, match="no pfl"):
            pfl_environment(tmp_path / "env")


def test_the_rate_is_the_last_line_of_its_output(tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command)
        return done(0, "Metrics …\n" + json.dumps({"users_per_second": 12.5}) + "\n")

    monkeypatch.setattr(rivals.subprocess, "run", run)
    assert pfl_users_per_second(tmp_path / "python", TINY) == 12.5
    assert asked[0][2:6] == ["8", "5", "20", "3"]


def test_a_rival_that_fails_is_no_figure(tmp_path):
    # This interpreter has no pfl: the script ends with an ImportError.
    with pytest.raises(NoRival, match=r"pfl-research failed: .*pfl"):
        pfl_users_per_second(sys.executable, TINY)


def test_flowers_failure_is_no_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def execute(*_, **__):
        raise RuntimeError("no SuperLink")

    monkeypatch.setattr(rivals.flower_runs, "execute", execute)
    with pytest.raises(NoRival, match="no SuperLink"):
        rivals.flower_users_per_second(TINY, 1)
    assert not list(tmp_path.iterdir())
