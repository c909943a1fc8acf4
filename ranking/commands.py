"""``murmuration rank``: a board of items from people's votes; and votes to try it with."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import JSON, WHERE, add_parameters, meaning, print_json
from murmuration.cli.setting_options import setting_parameters
from murmuration.preference.data.errors import InputError
from murmuration.reporting.live.terminal import print_finished, print_notes
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.strategies.settings.declaration import DATA, OUTPUT, RUNTIME

#: Settings of a run that a board has.
_SETTINGS = frozenset(
    {
        "adjacency",
        "categories",
        "chosen_from_data",
        "columns",
        "data",
        "delta",
        "epsilon",
        "format",
        "items",
        "kind",
        "max_characters",
        "max_judgements",
        "max_votes",
        "noise",
        "on_bad_rows",
        "one_user_per_row",
        "out",
        "pairing",
        "responses",
        "resume",
        "secure_aggregation",
        "seed",
        "users",
    }
)


def rank(
    *,
    items_public: Annotated[
        bool,
        typer.Option(
            "--items-public",
            help="Declare that all models that votes name in model_a and model_b are public, "
            "whoever voted on them: they are the items, and --items is left out.",
            rich_help_panel=DATA,
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            help="Column that says the category of a vote: a board for each of --categories.",
            show_default=False,
            rich_help_panel=DATA,
        ),
    ] = None,
    user_column: about_data.UserColumn = None,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help=f"{WHERE} local: this process. ray: Ray actors, here or on the cluster at "
            "RAY_ADDRESS.",
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
    """Rank items by people's votes, with privacy for each voter.

    Items (and categories) are public lists; responses of votes are items. Everybody takes part
    once. One noisy sum is released, from which the board, its intervals and its page are computed.
    Without --data and --items the embedded arena is ranked.
    """
    from murmuration.ranking import api

    given = {name: value for name, value in given.items() if value is not None}
    if user_column is not None:
        given["user_column"] = user_column
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        where = {"runtime": runtime, "users_per_node": users_per_node, "progress": True}
        data, items = given.pop("data", None), given.pop("items", None)
        given |= {"items_public": items_public, "by": by}
        ranking = api.rank(data, items, **where, **given)
    print_notes(notes, ranking.run.result["warnings"])
    if as_json:
        print_json(ranking.to_json())
    else:
        print_finished(ranking, soft_wrap=True)  # a path stays in one piece


add_parameters(rank, [each for each in setting_parameters() if each.name in _SETTINGS])


def arena(
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} Folder for the files.")],
    items: Annotated[int, typer.Option(help="How many items there are to vote on.")] = 20,
    users: Annotated[int, typer.Option(help=f"{meaning('users')} They vote.")] = 2500,
    seed: Annotated[int, typer.Option(help=f"{meaning('seed')} Which arena.")] = 0,
) -> None:
    """Write votes between items of known strengths, to be ranked, and their truth.

    Files: votes.jsonl, items.txt (for rank --items), and truth.json with the strengths.
    """
    from murmuration.ranking.arena import Arena, write_arena

    try:
        write_arena(out, Arena(voters=users, seed=seed, items=items))
    except (ValueError, OSError) as error:
        raise InputError(f"--out {out}: {error}") from None
    print(f"wrote items.txt, truth.json, votes.jsonl to {out}")
