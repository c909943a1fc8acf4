"""What a function hears of a run: the numbers of ``metrics.jsonl``, each once, and nothing else."""

import json
import math
import time

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes import tracking
from murmuration.sims.runtimes.tracking import tracked


def numbers_of(folder, step="round"):
    """By step, the numbers of a folder's ``metrics.jsonl``."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {
        line[step]: {
            name: value
            for name, value in line.items()
            if name != step and type(value) in (int, float)
        }
        for line in lines
    }


def add(folder, *rounds, **more):
    folder.mkdir(exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        for round_ in rounds:
            file.write(json.dumps({"round": round_, "epsilon": round_ / 10, **more}) + "\n")


class Heard(list):
    """What a function was called with."""

    def __call__(self, step, figures):
        self.append((step, figures))


def test_a_private_value_is_never_told(tmp_path):
    run, heard = tmp_path / "run", Heard()
    with tracked(run, heard):
        (run / "private").mkdir(parents=True)
        for name in ("log.jsonl", "metrics.jsonl"):
            secret = {"round": 1, "cohort": 31337, "epsilon": 31337.0}
            (run / "private" / name).write_text(json.dumps(secret) + "\n")
        (run / "log.jsonl").write_text('{"round": 1, "cohort": 31337}\n')
        add(run, 1, 2, told="text", shown=True, none=None, inner={"a": 31337}, endless=math.inf)
    assert heard == [(1, {"epsilon": 0.1}), (2, {"epsilon": 0.2})]


def test_what_was_there_before_is_not_told_again(tmp_path):
    run, heard = tmp_path / "run", Heard()
    add(run, 1, 2, 3)
    with pytest.raises(KeyError), tracked(run, heard):
        kept = (run / "metrics.jsonl").read_text().splitlines()[:2]
        (run / "metrics.jsonl").unlink()  # as a resumed run does, which repeats the third
        (run / "metrics.jsonl").write_text("".join(line + "\n" for line in kept))
        add(run, 3, 4, other=1)
        raise KeyError
    assert heard == [(4, {"epsilon": 0.4, "other": 1.0})]


def test_a_run_in_simulation_is_told_to_a_function_of_a_file(
    cli, crowd, crowd_test, tmp_path, quick_runs, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heard_here.py").write_text(
        "heard = {}\ndef report(step, figures):\n    heard[step] = figures\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "run"
    given = ("run", "--data", crowd, "--test", crowd_test, "--users", 40, "--cohort", 30)
    given += ("--seed", 3, "--rounds", 4, "--out", out, "--report-to", "heard_here:report")
    assert cli(*given, "--json")[0] == 0
    import heard_here  # pyright: ignore[reportMissingImports]

    assert heard_here.heard == numbers_of(out)
    assert len(heard_here.heard) == 4
    heard_here.heard.clear()
    code, _, lines = cli(*given)  # it is there already, and another's lines are not told
    assert (code, len(lines)) == (2, 1)
    assert not heard_here.heard
    settings = json.loads((out / "config.json").read_text())
    assert not [name for name in settings if "report" in name]


@pytest.mark.parametrize("error", [ConnectionError("no\nroute"), SystemExit(3)])
def test_a_function_that_fails_harms_nothing(tmp_path, capsys, error):
    def fail(step, figures):
        raise error

    with tracked(tmp_path / "run", fail):
        add(tmp_path / "run", 1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert "--report-to failed, the run goes on without it" in line


@pytest.mark.parametrize("name", ["nowhere_at_all:f", "json:nothing", "json", "json:__doc__"])
def test_a_function_that_is_not_there_is_one_line(name, cli, crowd, tmp_path):
    code, _, lines = cli("run", "--data", crowd, "--report-to", name, "--out", tmp_path / "run")
    assert (code, len(lines)) == (2, 1)
    assert f"--report-to {name}: " in lines[0]
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="--report-to"), tracked(tmp_path / "run", name):
        pass


def test_a_function_that_hangs_is_left_behind(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tracking, "SECONDS_TO_END", 0.2)
    with tracked(tmp_path / "run", lambda step, figures: time.sleep(5)):
        add(tmp_path / "run", 1)
    assert "has not answered" in capsys.readouterr().err
