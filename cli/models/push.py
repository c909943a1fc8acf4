"""``murmuration push``: a saved model to a hub, with its card and what its users were promised."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from murmuration.cli.models.export import (
    Audit,
    Base,
    Licence,
    Privacy,
    WithoutPromise,
    tell,
)
from murmuration.cli.options import Json, print_json
from murmuration.reporting.live.tables import console


def push(
    folder: Annotated[
        Path,
        typer.Argument(help="A model's folder, as in RUN/model, or what `export` wrote; no run."),
    ],
    to: Annotated[
        str, typer.Argument(metavar="NAMESPACE/NAME", help="Repository, made if it is not there.")
    ],
    private: Annotated[
        bool, typer.Option("--private", help="A repository that is made is private.")
    ] = False,
    revision: Annotated[
        str, typer.Option(help="A branch. \\[default: the main one]", show_default=False)
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be sent, and send nothing.")
    ] = False,
    base: Base = "",
    licence: Licence = "",
    privacy: Privacy = "",
    without_promise: WithoutPromise = False,
    audit: Audit = None,
    as_json: Json = False,
) -> None:
    """Send what `murmuration export` writes to a hub.

    The token is that of HF_TOKEN or of `hf auth login`; HF_ENDPOINT names another hub.
    """
    from murmuration.sharing.export import Sharing, check_no_run, export
    from murmuration.sharing.hub import check_repository
    from murmuration.sharing.hub import push as pushed

    check_no_run(folder)
    if not dry_run:
        check_repository(to)
    how = Sharing(False, base, licence, privacy, without_promise, audit)
    with tempfile.TemporaryDirectory(prefix="murmuration-push-") as place:
        sent = Path(place) / "model"
        result = export(folder, sent, how)
        tell(console(stderr=True), dict(result.files), result.left_out)
        url = "" if dry_run else pushed(sent, to, private=private, revision=revision)
    if as_json:
        told = {"to": to, "revision": revision or "main", "files": dict(result.files)}
        print_json({**told, "sent": not dry_run, "url": url})
    else:
        print(f"sent to {to}: {url}" if url else f"nothing was sent to {to} (--dry-run)")
