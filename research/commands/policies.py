"""``murmuration policies``: classes of policies, of which a run chooses one."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.options import Json, print_json

policies = typer.Typer(
    help="Commit a class of policies, from which a run chooses one.", no_args_is_help=True
)


@policies.callback()
def _group() -> None:
    pass


@policies.command()
def commit(
    file: Annotated[Path, typer.Argument(help="The file to write: the class.")],
    models: Annotated[
        list[str], typer.Argument(help="Models: folders or hub names, or NAME=FOLDER.")
    ],
    public: Annotated[
        bool,
        typer.Option(
            "--declare-public",
            help="Declare that models whose folders name no run were made from nobody's data.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write down which policies a run may choose from, before it looks at any data.

    The file names each model's contents by their SHA-256 and the runs that it came from.
    `murmuration run --strategy exponential --policies FILE` chooses among these and no others.
    """
    from murmuration.privacy.figures import counted
    from murmuration.research.strategies.choice.lineage import commit as write

    digest, written = write(file, models, public)
    if as_json:
        print_json({"class": digest, "policies": [policy.name for policy in written]})
        return
    for policy in written:
        runs = (
            "declared public" if not policy.lineage else f"of {counted(len(policy.lineage), 'run')}"
        )
        print(f"{policy.name}  {policy.digest[:16]}…  {runs}")
    print(f"wrote a class of {len(written)} policies to {file}: {digest}")
