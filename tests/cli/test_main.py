"""The command line: whatever a user can mend is one line on stderr and a nonzero exit."""

import importlib
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from murmuration.api.quiet import LOOKING, SLEEPING, look_for_work_where_idle
from murmuration.cli import main
from murmuration.cli.commands import COMMANDS
from murmuration.preference.data.errors import InputError
from murmuration.privacy.plugins import brought
from murmuration.server.versions import version
from murmuration.strategies.protocol.availability import Reason, RunAborted

GOOD = ["--epsilon", 0.5, "--delta", 1e-3, "--rounds", 3, "--cohort", 10, "--seed", 1]


@pytest.fixture
def refused(cli, tmp_path):
    """A function: the one line with which a run is refused; it leaves no folder behind."""

    def call(*arguments, leaves=False):
        out = tmp_path / "out"
        code, stdout, lines = cli("run", "--out", out, *arguments)
        assert code == 2
        assert stdout == ""
        assert len(lines) == 1, lines
        assert lines[0].startswith("error: ")
        assert "Traceback" not in lines[0]
        assert leaves or not out.exists(), "a half-written folder"
        return lines[0]

    return call


def test_a_bad_file(refused, write_rows):
    row = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}
    path = write_rows([row, {**row, "user_id": "  "}], "data.jsonl")
    assert "data.jsonl:2: 'user_id' is empty" in refused("--data", path, *GOOD)
    path = write_rows([{**row, "tie": True}])
    assert "every judgement is a tie" in refused("--data", path, *GOOD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", 0], "--epsilon must be a positive number; got 0"),
        (["--cohort", 41, "--users", 40], "--cohort 41 is more than the 40 users"),
        (["--delta", "small"], "--delta"),
        (["--seed", -7], "--seed"),
        (["--users-per-node", 0], "--users-per-node must be at least 1; got 0"),
        (["--test", "missing.csv"], "missing.csv: no such file"),
        (["--columns", "who=x"], "'who' is not a field"),
        (["--features", "./nowhere"], "no such folder: ./nowhere"),
        (["--resume"], "--resume: there is no run in"),
    ],
)
def test_bad_options(refused, crowd, arguments, message):
    assert message in refused("--data", crowd, *GOOD, *arguments)


def test_a_run_that_is_there_already(refused, cli, crowd, tmp_path, quick_runs, monkeypatch):
    assert cli("run", "--data", crowd, *GOOD, "--out", tmp_path / "out")[0] == 0
    before = sorted(tmp_path.rglob("*"))
    assert "holds a run already; continue it with --resume" in refused(
        "--data", crowd, *GOOD, leaves=True
    )
    (tmp_path / "out" / "result.json").rename(tmp_path / "result.json")  # as of one that was killed
    before = sorted(tmp_path.rglob("*"))
    # Nothing is read, nor is it said so, before other settings are refused.
    reads = "murmuration.sims.runtimes.execute._nodes"
    monkeypatch.setattr(reads, lambda *_: pytest.fail("data were read"))
    for option, value in (("--rounds", 4), ("--seed", 2), ("--epsilon", 0.4)):
        found = refused("--resume", option, value, leaves=True)
        assert f"--resume with other settings: {option} was" in found
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("a [bold]b[/] [c]"), 2), (RunAborted(Reason.NO_ANSWERS, "[x] failed"), 1)],
)
def test_messages_are_shown_as_they_are(cli, monkeypatch, crowd, error, code):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("murmuration.sims.runtimes.execute.execute", fail)
    found, _, lines = cli("run", "--data", crowd)
    assert (found, lines) == (code, [f"error: {error}"])


def test_long_messages_stay_on_one_line(cli, tmp_path):
    name = tmp_path / ("x" * 200) / ("y" * 150 + ".jsonl")
    _, _, lines = cli("run", "--data", name)
    assert len(lines) == 1
    assert str(name) in lines[0]


def test_other_errors_are_not_hidden(cli, monkeypatch, crowd):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("murmuration.sims.runtimes.execute.execute", fail)
    with pytest.raises(ZeroDivisionError):
        cli("run", "--data", crowd)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_begins_with(name):
    command = main.imported(name)
    assert command.name == name
    assert command.help is not None
    assert COMMANDS[name] == command.help.split("\n")[0]


def test_no_command_is_left_out():
    """What a room brings is listed; a command's file has its name."""
    assert set(brought("murmuration.commands")) == set(COMMANDS)


def test_the_first_screen_has_each_command_in_a_group_on_a_line(cli):
    code, out, _ = cli("--help")
    assert code == 0
    lines = [line.strip("│ ").split(maxsplit=1) for line in out.splitlines()]
    first = {group: about for group, about in main.GROUPS.items() if group != main.IN_A_CHECKOUT}
    assert sum(map(len, first.values())) <= 20
    assert f"{main.IN_A_CHECKOUT}: {', '.join(main.GROUPS[main.IN_A_CHECKOUT])}." in out
    for group, commands in first.items():
        assert f"─ {group} ─" in out
        for name, about in commands.items():
            assert [name, about] in [[part.strip() for part in line] for line in lines]


def test_train_is_run(cli, crowd, tmp_path, quick_runs):
    code, out, _ = cli("train", "--strategy", "els", "--help")
    assert code == 0 and "train [OPTIONS]" in out and "--group-size" in out
    out = tmp_path / "out"
    assert cli("train", "--data", crowd, *GOOD, "--out", out)[0] == 0
    assert (out / "result.json").exists()


@pytest.mark.parametrize("name", ["bench", "deploy"])
def test_commands_with_commands_of_their_own(cli, name):
    code, out, _ = cli(name, "--help")
    assert code == 0
    assert f"{name} [OPTIONS] COMMAND" in out
    code, out, lines = cli(name, "nothing-such")
    assert (code, out) == (2, "")
    assert any("No such command 'nothing-such'" in line for line in lines)


def test_a_command_that_is_not_there(cli):
    code, out, lines = cli("plna")
    assert (code, out) == (2, "")
    assert any("No such command 'plna'" in line and "'plan'" in line for line in lines)


def test_version(cli):
    assert cli("--version") == (0, f"murmuration {version()}\n", [])


def test_what_can_be_mended_is_where_it_is_looked_for():
    for module, name, _ in main._MENDABLE:
        kind = getattr(importlib.import_module(module), name)
        assert (kind.__module__, kind.__name__) == (module, name)


def test_flower_says_errors_only(caplog, cli):
    """Also where it is imported afterwards, which sets the level of its log."""
    cli("--version")
    log = logging.getLogger("flwr")
    log.setLevel(logging.DEBUG)
    log.addHandler(caplog.handler)
    try:
        log.warning("a round has begun")
        log.error("a node is lost")
    finally:
        log.removeHandler(caplog.handler)
    assert "a round has begun" not in caplog.text
    assert "a node is lost" in caplog.text


def test_in_a_process_of_its_own(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-m", "murmuration", "run", "--data", "missing.jsonl", "--out", "o"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: missing.jsonl: no such file or folder\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "told"), [("run", "passive 4"), ("bench", "None None")])
@pytest.mark.slow
def test_rivals_keep_their_threads_as_they_come(command, told):
    """Idle threads are told to sleep, but not where others are measured beside us."""
    code = (
        f"import sys; sys.argv = ['murmuration', {command!r}]; import os, murmuration.cli.main; "
        f"print(*(os.environ.get(name) for name in {[*SLEEPING]}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for name in (*SLEEPING, *LOOKING):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == told


@pytest.mark.parametrize(
    ("percent", "cores", "variables", "looks"),
    [
        (20.0, 2, {}, True),
        (30.0, 2, {}, False),  # more than half a core is in use
        (2.0, 16, {}, True),
        (10.0, 16, {}, False),
        (0.0, 2, {"OMP_WAIT_POLICY": "passive"}, False),
        (0.0, 2, {"GOMP_SPINCOUNT": "7"}, False),
    ],
)
def test_idle_threads_look_for_work_where_nobody_else_uses_the_cores(
    monkeypatch, percent, cores, variables, looks
):
    others = {k: v for k, v in os.environ.items() if k not in {*SLEEPING, *LOOKING}}
    monkeypatch.setattr(os, "environ", others | variables)
    monkeypatch.setattr("psutil.cpu_percent", lambda interval: percent)
    monkeypatch.setattr("psutil.cpu_count", lambda: cores)
    look_for_work_where_idle()
    expected = {**variables, **LOOKING} if looks else variables
    assert {k: v for k, v in os.environ.items() if k in {*SLEEPING, *LOOKING}} == expected


def _parameters(command):
    for below in getattr(command, "commands", {}).values():
        yield from _parameters(below)
    yield from command.params


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_that_help_tells_are_shown(name):
    """A bracket without a backslash is markup, and what it holds is shown to nobody."""
    for parameter in _parameters(main.imported(name)):
        told = getattr(parameter, "help", None) or ""
        assert not re.search(r"(?<!\\)\[default", told), parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_that_can_be_given_is_explained(name):
    for parameter in _parameters(main.imported(name)):
        assert (getattr(parameter, "help", None) or "").strip(), parameter.name


# What the command line imports: of many libraries that take seconds, those that are needed.


#: What learns, draws or serves: of no use to whoever only plans, or reads help.
OF_RUNS = {"torch", "transformers", "sklearn", "numba", "pyarrow", "matplotlib", "ray", "fastapi"}
OF_RUNS |= {"pandas", "datasets", "safetensors", "jinja2", "joblib", "randomgen"}
#: Each takes as long as solving for the noise.
OF_OTHER_PLANS = {"dp_accounting", "scipy.stats", "scipy.signal", "scipy.optimize", "scipy.fft"}
HEAVY = {*OF_RUNS, "scipy", "dp_accounting", "flwr"}


def imported_by(code: str) -> set[str]:
    """What is imported in a process of its own when it has run."""
    code = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
{code}
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def imported_for(line: str) -> set[str]:
    """What is imported by a command line."""
    words = ["murmuration", *line.split()]
    return imported_by(f"sys.argv = {words}\nimport murmuration.__main__ as m\nm.main()")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_that_takes_long(option):
    found = imported_for(option)
    assert "murmuration.cli.main" in found
    assert not HEAVY & found
    assert {name for name in found if name.startswith("murmuration.cli.")} == {
        "murmuration.cli.commands",
        "murmuration.cli.main",
        "murmuration.cli.plugin",
    }


@pytest.mark.parametrize(
    "more",
    [
        "--rounds 200 --cohort 500",
        "--rounds 200 --cohort 500 --json",
        "--rounds 200 --cohort 500 --heldout 0.2",
        "--rounds 200 --cohort 500 --strategy aup",
        "--rounds 200 --sampling-probability 0.1 --group-size 8 --strategy els",
        "--rounds 1 --adjacency replace-labels --strategy label-moment",
    ],
)
def test_a_plan_imports_nothing_that_runs_need(more):
    found = imported_for(f"plan --epsilon 3 --delta 1e-5 --users 4800 {more}")
    assert "murmuration.cli.planning.plan" in found
    assert not OF_RUNS & found
    if "--strategy" not in more:
        assert not OF_OTHER_PLANS & found


def test_help_of_a_run_imports_nothing_that_runs_need():
    found = imported_for("run --help")
    assert "murmuration.cli.run" in found
    assert not {*HEAVY, "numpy"} & found
    of_strategies = {name for name in found if name.startswith("murmuration.strategies.")}
    declarations = {name for name in of_strategies if ".strategies.settings" in name}
    assert "murmuration.strategies.settings.catalogue" in declarations
    assert of_strategies == declarations


def test_an_option_of_other_libraries_names_what_stands_for_it(cli):
    code, _, lines = cli("run", "--device", "cpu")
    message = " ".join(" ".join(lines).replace("│", " ").split())
    assert code == 2
    assert "a language model runs on a GPU if torch finds one" in message
    assert "--level" not in message


def test_only_options_that_are_spelled_alike_are_meant(cli):
    code, _, lines = cli("run", "--epsilno", "3")
    assert code == 2 and "--epsilon" in " ".join(lines)
    code, _, lines = cli("run", "--vice", "3")
    assert code == 2 and "Did you mean" not in " ".join(lines)
