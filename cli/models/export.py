"""``murmuration export``: a saved model as a folder that is meant to be passed on."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from murmuration.cli.options import AUDIT, Json, meaning, print_json
from murmuration.reporting.live.tables import console

Model = Annotated[Path, typer.Argument(help="A run's folder, or a model's, as in RUN/model.")]
Merge = Annotated[
    bool,
    typer.Option("--merge", help="Put LoRA's change into the weights of its base."),
]
Base = Annotated[
    str,
    typer.Option(
        help=f"{meaning('base')} That, or the encoder, which the model was made on: its name on a "
        "hub (owner/name), for the card; or its folder, where --merge does not find it.",
        show_default=False,
    ),
]
Licence = Annotated[
    str,
    typer.Option(
        "--license", help="For the card, as the hub lists them: apache-2.0.", show_default=False
    ),
]
Privacy = Annotated[
    str,
    typer.Option(
        help="Privacy cost of a model whose folder does not record it: `public`, or ledgers, "
        "comma-separated.",
        show_default=False,
    ),
]
WithoutPromise = Annotated[
    bool,
    typer.Option(
        "--without-promise",
        help="Go on although nothing says what the model's users were promised.",
    ),
]
Audit = Annotated[
    Path | None,
    typer.Option(help=f"{AUDIT} For the card."),
]


def export(
    model: Model,
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} A folder that is not there.")],
    merge: Merge = False,
    base: Base = "",
    licence: Licence = "",
    privacy: Privacy = "",
    without_promise: WithoutPromise = False,
    audit: Audit = None,
    as_json: Json = False,
) -> None:
    """Write a model to a folder that is meant to be shared.

    There are no private files in it, and no paths. transformers and peft load a language model from
    it; a reward over features is loaded by Murmuration, as its card shows.
    """
    from murmuration.sharing.export import Sharing
    from murmuration.sharing.export import export as exported

    how = Sharing(merge, base, licence, privacy, without_promise, audit)
    result = exported(model, out, how)
    if as_json:
        files, left = dict(result.files), list(result.left_out)
        print_json({"out": str(out), "files": files, "left_out": left})
        return
    tell(console(), dict(result.files), result.left_out)
    print(f"written to {out}")


def tell(to: Console, files: dict[str, int], left_out: tuple[str, ...]) -> None:
    """What is passed on, and what is not."""
    for name, size in files.items():
        to.print(f"{decimal(size):>10}  {name}", markup=False, highlight=False)
    if left_out:
        to.print(f"not shared: {', '.join(left_out)}", markup=False, highlight=False)
