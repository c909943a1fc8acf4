"""Commands that release one sum over all users, and train no model."""

import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer

from murmuration.cli.options import JSON, WHERE, add_parameters, print_json
from murmuration.cli.setting_options import setting_parameters
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.declaration import OUTPUT, RUNTIME
from murmuration.strategies.settings.from_python import of_strategy
from murmuration.terminal.terminal import print_finished, print_notes

Where = Annotated[
    Runtime,
    typer.Option(
        help=f"{WHERE} local: this process. ray: Ray actors, here or on the cluster at "
        "RAY_ADDRESS.",
        rich_help_panel=RUNTIME,
    ),
]
UsersPerNode = Annotated[
    int | None,
    typer.Option(
        help=r"Users on each simulated node. \[default: as suits the runtime]",
        show_default=False,
        rich_help_panel=RUNTIME,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help=JSON, rich_help_panel=OUTPUT)]

#: Settings that are about a model, or that somebody sets who writes a file of settings.
_UNUSED = {
    "base_privacy", "disjoint", "heldout", "heldout_epsilon",
    "honest_nodes", "labels", "note", "test", "timeout",
}  # fmt: skip


def add_settings(command: Callable[..., Any], strategy: str, *without: str) -> None:
    """Give a command the settings of a strategy, except some, as keywords."""
    names = {field.name for field in of_strategy(strategy)} - {*_UNUSED, *without}
    add_parameters(command, [each for each in setting_parameters() if each.name in names])


def print_asked(ask: Callable[..., Any], as_json: bool, given: dict[str, Any]) -> None:
    """Call a function of Python's with what was given, and print what it returns."""
    given = {name: value for name, value in given.items() if value is not None}
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        result = ask(**given, progress=True)
    print_notes(notes, result.run.result["warnings"])
    if as_json:
        print_json(result.to_json())
    else:
        print_finished(result, soft_wrap=True)  # a path stays in one piece
