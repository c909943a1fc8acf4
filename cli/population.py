"""``murmuration population``: write the embedded population to files."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.options import meaning
from murmuration.preference.data.judgements import InputError
from murmuration.sims.population.arena import Arena, write_arena
from murmuration.sims.population.population import Population, write


def population(
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} Folder for the files.")],
    users: Annotated[int, typer.Option(help=f"{meaning('users')} In the training split.")] = 2500,
    seed: Annotated[int, typer.Option(help=f"{meaning('seed')} Which population.")] = 0,
    arena: Annotated[
        bool,
        typer.Option("--arena", help="Votes between items of known strengths, to be ranked."),
    ] = False,
    arena_items: Annotated[
        int | None, typer.Option(help="How many items --arena has; 20 if it is not given.")
    ] = None,
) -> None:
    """Write train, test and unseen-topic judgements of a synthetic population, and its truth.

    With --arena: votes.jsonl, items.txt (for rank --items), and truth.json with the strengths.
    """
    if arena_items is not None and not arena:
        raise InputError("--arena-items is for --arena")
    try:
        if arena:
            write_arena(
                out,
                Arena(voters=users, seed=seed, items=20 if arena_items is None else arena_items),
            )
        else:
            write(out, Population(users=users, seed=seed))
    except (ValueError, OSError) as error:
        raise InputError(f"--out {out}: {error}") from None
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} to {out}")
