"""``murmuration init population``: write the embedded population to files."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.options import meaning
from murmuration.preference.data.errors import InputError
from murmuration.sims.population.population import Population, write


def population(
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} Folder for the files.")],
    users: Annotated[int, typer.Option(help=f"{meaning('users')} In the training split.")] = 2500,
    seed: Annotated[int, typer.Option(help=f"{meaning('seed')} Which population.")] = 0,
) -> None:
    """Write judgements of a synthetic population, and its truth.

    Files: train, test and unseen topics.
    """
    try:
        write(out, Population(users=users, seed=seed))
    except (ValueError, OSError) as error:
        raise InputError(f"--out {out}: {error}") from None
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} to {out}")
