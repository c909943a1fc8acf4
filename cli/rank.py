"""``murmuration rank``: a board of items from people's votes."""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import JSON, WHERE, add_parameters
from murmuration.cli.setting_options import setting_parameters
from murmuration.reporting.live.terminal import Terminal
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.strategies.settings.declaration import DATA, OUTPUT, RUNTIME

#: Settings of a run that a board has.
_SETTINGS = frozenset(
    {
        "adjacency",
        "categories",
        "columns",
        "data",
        "delta",
        "epsilon",
        "format",
        "items",
        "kind",
        "max_votes",
        "noise",
        "on_bad_rows",
        "one_user_per_row",
        "out",
        "pairing",
        "releases",
        "responses",
        "resume",
        "secure_aggregation",
        "seed",
        "users",
    }
)


def rank(
    *,
    by: Annotated[
        str | None,
        typer.Option(
            help="Column that says the category of a vote: a board for each of --categories.",
            show_default=False,
            rich_help_panel=DATA,
        ),
    ] = None,
    continued: Annotated[
        Path | None,
        typer.Option(
            "--continue",
            help="Folder of a board with --releases left: release it again, with the votes of "
            "--data, which came since, and all settings that it was begun with.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    user_column: about_data.UserColumn = None,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help=f"{WHERE} local: this process. flower: flwr run, own SuperLink.",
            rich_help_panel=RUNTIME,
        ),
    ] = Runtime.LOCAL,
    users_per_node: Annotated[
        int | None,
        typer.Option(
            help=r"Users on each simulated node. \[default: as suits the runtime]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON, rich_help_panel=OUTPUT)] = False,
    **given: Any,
) -> None:
    """Rank items by people's votes, so that no voter can be read out of the board.

    Items (and categories) are public lists; responses of votes are items. Everybody takes part
    once. One noisy sum is released, from which the board, its intervals and its page are computed.
    Without --data and --items the embedded arena is ranked.
    """
    from murmuration.api.ranking import rank as rank_items

    given = {name: value for name, value in given.items() if value is not None}
    if user_column is not None:
        given["columns"] = about_data.renamed(given.get("columns"), user_column)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        ranking = rank_items(
            given.pop("data", None),
            given.pop("items", None),
            by=by,
            continued=continued,
            runtime=runtime,
            users_per_node=users_per_node,
            progress=True,
            **given,
        )
    for note in {str(each.message): None for each in notes if each.category is UserWarning}:
        if note not in ranking.run.result["warnings"]:  # which the board itself says
            Terminal(stderr=True).print(f"note: {note}", markup=False)
    if as_json:
        print(json.dumps(ranking.to_json()))
    else:
        Terminal().print(ranking, soft_wrap=True)  # a path stays in one piece


add_parameters(rank, [each for each in setting_parameters() if each.name in _SETTINGS])
