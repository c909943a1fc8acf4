"""Options: one name has one meaning, former names are read and hidden, and help is short."""

import collections
import re

import click

from murmuration.cli import main
from murmuration.cli.options import RenamedOption

#: Of options whose type differs between commands: why.
TYPES_DIFFER = {
    "--delta": "a number; n^-1.1 too, where a command knows the number of users",
    "--judgements": "bench lm measures several numbers, comma-separated",
}
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
    for name in main.COMMANDS:
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


def renamed():
    """Each option that has former names: its command, and itself."""
    return [(command, option) for command, option in options() if isinstance(option, RenamedOption)]


def test_what_was_renamed():
    found = {(former, option.opts[0]) for _, option in renamed() for former in option.former.opts}
    assert found == {
        ("--all", "--all-runs"),
        ("--answers", "--num-generations"),
        ("--ball", "--max-norm"),
        ("--batch", "--batch-size"),
        ("--beta", "--kl-coef"),
        ("--clip", "--clip-norm"),
        ("--clip", "--clip-rewards"),
        ("--epsilon", "--epsilons"),
        ("--judgements", "--reward-data"),
        ("--kind", "--architecture"),
        ("--labels", "--label-draw"),
        ("--least-nodes", "--min-nodes"),
        ("--length", "--length-control"),
        ("--most-characters", "--max-characters"),
        ("--most-judgements", "--max-judgements"),
        ("--policy", "--generator"),
        ("--policy-privacy", "--generator-privacy"),
        ("--public", "--declare-public"),
        ("--rate", "--learning-rate"),
        ("--samples", "--num-generations"),
        ("--sft-batch", "--sft-batch-size"),
    }


def parsed(command, *arguments):
    """What an option's arguments come to, whatever else the command needs."""
    context = click.Context(command, resilient_parsing=True)
    command.parse_args(context, list(arguments))
    return context.params


def test_former_names_are_read_as_the_present_ones():
    for called, option in renamed():
        command = dict(commands(called.split()[0]))[called]
        value = [] if option.is_flag else [getattr(option.type, "choices", ["2"])[-1]]
        former, present = (
            parsed(command, name, *value)[option.name]
            for name in (
                (option.former.secondary_opts or option.former.opts)[0],
                (option.secondary_opts or option.opts)[0],  # what a flag is not by default
            )
        )
        assert former == present != parsed(command)[option.name], (called, option.opts)


def test_both_names_at_once_are_refused(cli):
    code, out, lines = cli("run", "--clip", 1, "--clip-norm", 1)
    assert (code, out) == (2, "")
    assert "--clip is the former name of --clip-norm: give one of them" in " ".join(lines)


def test_no_help_shows_a_former_name(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for called in dict.fromkeys(called for called, _ in renamed()):
        name = "--help-all" if called == "run" else "--help"
        code, out, _ = cli(*called.split(), name)
        assert code == 0
        own = [option for command, option in renamed() if command == called]
        for option in own:
            shown = re.findall(r"--[\w-]+", "\n".join(re.findall(r"│ \*?\s*(--\S.*)", out)))
            assert option.opts[0] in shown
            assert not {*option.former.opts} & {*shown}, called


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
    for option in ("--lora-rank", "--max-tokens", "--loss", "--keep-last"):
        assert option not in plain
        assert option in of_task
    assert "--sampling-probability" not in of_task
