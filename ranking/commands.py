"""``murmuration rank``: a leaderboard of items from people's votes; and votes to try it with."""

from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli.about_data import UserColumn
from murmuration.cli.options import meaning
from murmuration.cli.whole_crowd import AsJson, UsersPerNode, Where, add_settings, print_asked
from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.declaration import DATA


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
    user_column: UserColumn = None,
    runtime: Where = Runtime.LOCAL,
    users_per_node: UsersPerNode = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Rank items by people's votes, with privacy for each voter.

    Items (and categories) are public lists; responses of votes are items. Each user takes part
    once, with at most 10 votes (or --group-size), drawn at random. One noisy sum is released, from
    which the leaderboard, its intervals and its page are computed. Without --data and --items the
    embedded arena is ranked.
    """
    from murmuration.ranking import api

    given |= {"items_public": items_public, "by": by, "user_column": user_column}
    given |= {"runtime": runtime, "users_per_node": users_per_node}
    print_asked(api.rank, as_json, given)


add_settings(rank, "ranking", "no_prompt", "population", "positive_from", "scale")


def arena(
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} Folder for the files.")],
    count: Annotated[int, typer.Option(help="How many items there are to vote on.")] = 20,
    users: Annotated[int, typer.Option(help=f"{meaning('users')} They vote.")] = 2500,
    seed: Annotated[int, typer.Option(help=f"{meaning('seed')} Which arena.")] = 0,
) -> None:
    """Write votes between items of known strengths, to be ranked, and their truth.

    Files: votes.jsonl, items.txt (for rank --items), and truth.json with the strengths.
    """
    from murmuration.ranking.arena import Arena, write_arena

    try:
        write_arena(out, Arena(voters=users, seed=seed, items=count))
    except (ValueError, OSError) as error:
        raise InputError(f"--out {out}: {error}") from None
    print(f"wrote items.txt, truth.json, votes.jsonl to {out}")
