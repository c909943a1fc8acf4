"""Options: one name has one meaning, one option one name, and help is short."""

import collections
import inspect
import json
import math
import re
import sys

import click
import pytest

from murmuration.cli import main
from murmuration.cli.commands import COMMANDS
from murmuration.cli.options import print_json

#: Of options whose type differs between commands: why.
TYPES_DIFFER = {
    "--delta": "a number; n^-1.1 too, where a command knows the number of users",
    "--judgements": "bench lm measures several numbers, comma-separated",
}
#: Commands that print JSON, each by ``print_json`` alone; the fixture ``cli`` parses it strictly.
PRINT_JSON = {
    "align", "audit", "bench accounting", "bench align", "bench board", "bench features",
    "bench gpu", "bench lm", "bench memory", "bench rounds", "bench states", "bench users",
    "bench where", "bench writing", "bounds", "compare", "export", "init base", "ledger", "plan",
    "policies commit", "privatize", "rank", "report", "reproduce", "run", "score", "survey",
    "tune", "winrate",
}  # fmt: skip
#: What types of click's stand for: text with choices or of a path, numbers with limits.
KINDS = {"choice": "text", "path": "text", "integer range": "integer", "float range": "float"}


def commands(name):
    """A command's own name and that of those below it, each with what click has of it."""

    def below(called, command):
        if isinstance(command, click.Group):
            for last, inner in command.commands.items():
                yield from below(f"{called} {last}", inner)
        else:
            yield called, command

    return list(below(name, main.imported(name)))


def options():
    for name in COMMANDS:
        for called, command in commands(name):
            for parameter in command.params:
                if isinstance(parameter, click.Option):
                    yield called, parameter


def beginning(option):
    """The first sentence of an option's help."""
    return re.split(r"\. |\s*\\\[default", option.help)[0].rstrip(".").casefold()


def test_one_name_has_one_meaning_and_one_type():
    meanings, kinds = collections.defaultdict(dict), collections.defaultdict(dict)
    for command, option in options():
        for name in option.opts:
            meanings[name].setdefault(beginning(option), command)
            kind = KINDS.get(option.type.name, option.type.name)
            kinds[name].setdefault(kind, command)
    assert {name: told for name, told in meanings.items() if len(told) > 1} == {}
    assert {name for name, told in kinds.items() if len(told) > 1} == set(TYPES_DIFFER)


def test_an_option_has_one_name():
    several = {(command, *option.opts) for command, option in options() if len(option.opts) > 1}
    assert not several


def test_help_of_a_run_takes_two_screens(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = cli("run", "--help")
    assert code == 0
    assert len(out.splitlines()) <= 100
    for option in ("--data", "--epsilon", "--delta", "--rounds", "--strategy", "--out", "--resume"):
        assert f" {option} " in out
    for word in ("--help-all", "--strategy NAME --help", "--task NAME --help"):
        assert word in out


def test_help_all_shows_every_option(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = cli("run", "--help-all")
    assert code == 0
    for parameter in main.imported("run").params:
        assert f" {parameter.opts[0]} " in out


def test_help_of_a_task_shows_what_is_about_language_models(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, plain, _ = cli("run", "--help")
    _, of_task, _ = cli("run", "--task", "policy", "--help")
    for option in ("--lora-rank", "--max-tokens", "--loss", "--lora-targets"):
        assert option not in plain
        assert option in of_task
    assert "--sampling-probability" not in of_task


def test_what_is_printed_as_json_is_json(cli, capsys):
    def strict(text):
        return json.loads(text, parse_constant=pytest.fail)

    assert {command for command, option in options() if "--json" in option.opts} == PRINT_JSON
    for name in {command.partition(" ")[0] for command in PRINT_JSON}:
        command = next(found for called, found in commands(name) if called in PRINT_JSON)
        code = inspect.getsource(sys.modules[inspect.unwrap(command.callback).__module__])
        assert "print_json(" in code or "print_asked(" in code, name
        assert "json.dumps" not in code, name
    print_json({"a": math.inf})
    assert strict(capsys.readouterr().out) == {"a": "infinite"}
    six = {"rounds": 200, "cohort": 540, "users": 2700, "delta": 1e-5, "noise-multiplier": 1e-4}
    given = [part for name, value in six.items() for part in (f"--{name}", value)]
    code, out, _ = cli("plan", *given, "--json")
    assert code == 0 and strict(out)["epsilon"] == "infinite"
