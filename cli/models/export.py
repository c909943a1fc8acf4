"""``murmuration export``: a saved model as a folder that is meant to be passed on, or on a hub."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from murmuration.cli.options import AUDIT, Json, meaning, print_json
from murmuration.preference.data.errors import InputError
from murmuration.terminal.tables import console


def export(
    *,
    model: Annotated[Path, typer.Argument(help="A run's folder, or a model's, as in RUN/model.")],
    out: Annotated[
        Path | None,
        typer.Option(help=f"{meaning('out')} A folder that is not there.", show_default=False),
    ] = None,
    push: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="Send it to this repository of a hub, made if it is not there. The token is that "
            "of HF_TOKEN or of `hf auth login`; HF_ENDPOINT names another hub.",
            show_default=False,
        ),
    ] = "",
    private: Annotated[
        bool, typer.Option("--private", help="--push: a repository that is made is private.")
    ] = False,
    revision: Annotated[
        str, typer.Option(help=r"--push: a branch. \[default: the main one]", show_default=False)
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="--push: list what would be sent, and send nothing.")
    ] = False,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Put LoRA's change into the weights of its base."),
    ] = False,
    base: Annotated[
        str,
        typer.Option(
            help=f"{meaning('base')} That, or the encoder, which the model was made on: its name "
            "on a hub (owner/name), for the card; or its folder, where --merge does not find it.",
            show_default=False,
        ),
    ] = "",
    licence: Annotated[
        str,
        typer.Option(
            "--license",
            help="For the card, as the hub lists them: apache-2.0.",
            show_default=False,
        ),
    ] = "",
    privacy: Annotated[
        str,
        typer.Option(
            help="Privacy cost of a model whose folder does not record it: `public`, or ledgers, "
            "comma-separated.",
            show_default=False,
        ),
    ] = "",
    without_promise: Annotated[
        bool,
        typer.Option(
            "--without-promise",
            help="Go on although nothing says what the model's users were promised.",
        ),
    ] = False,
    audit: Annotated[Path | None, typer.Option(help=f"{AUDIT} For the card.")] = None,
    as_json: Json = False,
) -> None:
    """Write a model to a folder to be shared, or to a hub.

    There are no private files in it, and no paths. transformers and peft load a language model from
    it; a reward over features is loaded by Murmuration, as its card shows.
    """
    from murmuration.reporting.export import Sharing
    from murmuration.reporting.export import export as exported
    from murmuration.reporting.hub import check_repository
    from murmuration.reporting.hub import push as pushed

    if out is None and not push:
        raise InputError("--out names the folder to write, --push a repository of a hub: give one")
    if push and not dry_run:
        check_repository(push)
    how = Sharing(
        merge=merge,
        base=base,
        licence=licence,
        privacy=privacy,
        without_promise=without_promise,
        audit=audit,
    )
    with tempfile.TemporaryDirectory(prefix="murmuration-push-") as place:
        folder = out or Path(place) / "model"
        result = exported(model, folder, how)
        url = ""
        if push and not dry_run:
            url = pushed(folder, push, private=private, revision=revision)
    answer: dict[str, object] = {"files": dict(result.files), "left_out": list(result.left_out)}
    if out is not None:
        answer["out"] = str(out)
    if push:
        sent = {"to": push, "revision": revision or "main", "sent": not dry_run, "url": url}
        answer["push"] = sent
    if as_json:
        print_json(answer)
        return
    _tell(console(), dict(result.files), result.left_out)
    if out is not None:
        print(f"written to {out}")
    if push:
        print(f"sent to {push}: {url}" if url else f"nothing was sent to {push} (--dry-run)")


def _tell(to: Console, files: dict[str, int], left_out: tuple[str, ...]) -> None:
    for name, size in files.items():
        to.print(f"{decimal(size):>10}  {name}", markup=False, highlight=False)
    if left_out:
        to.print(f"not shared: {', '.join(left_out)}", markup=False, highlight=False)
