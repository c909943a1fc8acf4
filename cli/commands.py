"""The commands that there are: their names, what lists say of them, and how one is imported."""

from importlib import import_module
from typing import get_args, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

from murmuration.preference.data.errors import InputError
from murmuration.privacy.plugins import brought

#: Commands that the first screen names in one line.
IN_A_CHECKOUT = "Research, in a checkout"
#: The commands by what they are for, as ``murmuration --help`` has them, and what it says of each:
#: what its own help begins with, in one line.
_LISTED = {
    "Train with privacy": {
        "run": "Train a private reward model, or a language model with --task.",
        "tune": "Choose settings privately, within one epsilon.",
        "rank": "Rank items by people's votes, with privacy for each voter.",
        "survey": "Release private statistics of users' judgements.",
    },
    "Look ahead": {
        "data": "Look at judgements before a budget is spent.",
        "plan": "Solve for epsilon, noise, rounds, cohort, users or delta.",
        "compare": "Run strategies at equal privacy: a table and a plot.",
    },
    "Use a model": {
        "score": "Score responses to a prompt: the higher, the better liked.",
        "respond": "Write responses to prompts with a causal language model.",
        "align": "Align a language model with a private reward.",
        "winrate": "Compare models' answers: how often each wins, by a judge.",
    },
    "Check and share": {
        "report": "Write the report of a run again, or compare runs.",
        "ledger": "Show a ledger, verify it, and compute the privacy spent.",
        "audit": "Attack mechanisms: lower bounds on epsilon, beside the claim.",
        "export": "Write a model to a folder to be shared, or to a hub.",
    },
    "Between machines": {
        "deploy": "Deploy on separate machines: keys, commands, clients.",
        "agent": "Answer a node's requests, within its owner's policy.",
        "init": "Write something to begin with: an app, a population, a base.",
        "privatize": "Randomize the labels of judgements, once and for all.",
    },
    IN_A_CHECKOUT: {
        "reproduce": "Rerun a figure or table of the papers, or one of our own.",
        "bounds": "Evaluate the papers' bounds on the error of a reward model.",
        "policies": "Commit a class of policies, from which a run chooses one.",
        "bench": "Measure speed on this machine, beside what limits it.",
    },
}
#: Those that are there: a room brings its commands, and what research has is named without it, too.
GROUPS = {
    group: {
        name: about
        for name, about in commands.items()
        if name in brought("murmuration.commands") or group == IN_A_CHECKOUT
    }
    for group, commands in _LISTED.items()
}
COMMANDS = {name: about for commands in GROUPS.values() for name, about in commands.items()}
#: Other names of commands.
ALIASES = {"train": "run"}
#: Those that load what files name.
_LOADING = frozenset(
    {"align", "export", "rank", "respond", "run", "score", "survey", "tune", "winrate"}
)


def imported(name: str) -> click.Command:
    """The command of a name: a function, or a ``typer.Typer`` of several commands."""
    place = brought("murmuration.commands").get(name)
    if place is None:
        raise InputError(
            f"murmuration {name} needs a checkout of the repository: what it runs is not installed"
        )
    file, result = import_module(place.module), place.load()
    holder = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    if isinstance(result, typer.Typer):
        holder.add_typer(result, name=name)
    else:
        holder.command(name, cls=getattr(file, "COMMAND", TyperCommand))(result)
    made = _finished(typer.main.get_group(holder).commands[name])
    if name in _LOADING:
        made.params.append(_online_option())
    return made


def _online_option() -> click.Option:
    """`--online`, the same for all commands that load what a file names."""

    def say(ctx: click.Context, _: click.Parameter, said: bool) -> None:
        from murmuration.preference.online import online

        if said:
            ctx.with_resource(online())

    told = (
        "Ask the hub for a base or encoder that a file names, without a token. Otherwise only this "
        "machine's cache is looked at. What you name yourself is asked for anyway."
    )
    return TyperOption(
        param_decls=["--online"],
        callback=say,
        help=told,
        default=False,
        is_flag=True,
        is_eager=True,
        expose_value=False,
    )


def _finished(command: click.Command) -> click.Command:
    """The command with the help of its arguments, which Typer 0.20 loses under Click 8.5.

    Flower takes no later Typer.
    """
    for below in getattr(command, "commands", {}).values():
        _finished(below)
    declared = get_type_hints(command.callback, include_extras=True) if command.callback else {}
    for parameter in command.params:
        if isinstance(parameter, TyperArgument) and parameter.help is None:
            told = [each.help for each in get_args(declared[parameter.name or ""])
                    if isinstance(each, typer.models.ArgumentInfo)]  # fmt: skip
            parameter.help = told[0]
    return command
