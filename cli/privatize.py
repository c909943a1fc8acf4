"""``murmuration privatize``: randomized labels in a file, with their channel recorded."""

from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.table import Table
from rich.text import Text

from murmuration.api.privatizing import labels_released
from murmuration.api.privatizing import privatize as privatize_labels
from murmuration.cli import about_data
from murmuration.cli.options import Json, add_parameters, help_of, meaning, print_json
from murmuration.preference.data.errors import InputError
from murmuration.privacy.disclosure import OperatorOnly, on_terminal
from murmuration.terminal.tables import console


def privatize(
    *,
    data: Annotated[
        str | None, typer.Option(help=f"{meaning('data')} As for `murmuration run --data`.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help=f"{meaning('epsilon')} Of all labels of a user together."),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(
            help="Most labels of a user that are ever released, now and later. \\[default: as many "
            "as they have now]",
            show_default=False,
            min=1,
        ),
    ] = None,
    delta: Annotated[
        float,
        typer.Option(help=f"{meaning('delta')} It allows a larger epsilon for each label."),
    ] = 0.0,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Where state is kept. The file that remembers which labels were released; keep "
            "it, and keep it private."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"{meaning('out')} A .jsonl or .jsonl.gz file.")
    ] = None,
    on_bad_rows: Annotated[
        str,
        typer.Option(help=help_of("on_bad_rows"), click_type=click.Choice(["refuse", "skip"])),
    ] = "refuse",
    show_state: Annotated[
        Path | None, typer.Option(help="Show what each user has spent, by a state file.")
    ] = None,
    as_json: Json = False,
    **rows: Any,
) -> None:
    """Randomize the labels of judgements, once and for all.

    The file can be trained on like any other, as `murmuration run --labels randomized`: losses take
    the flip probabilities from it. Running this again with the same state gives the same answers.
    """
    if show_state is not None:
        _show(show_state, as_json)
        return
    if data is None or epsilon is None or state is None or out is None:
        raise InputError("privatize needs --data, --epsilon, --state and --out (or --show-state)")
    written = privatize_labels(
        data,
        epsilon,
        state=state,
        out=out,
        cap=cap,
        delta=delta,
        on_bad_rows="skip" if on_bad_rows == "skip" else "refuse",
        **{**rows, "columns": rows["columns"] or ""},
    )
    for note in written.notes:
        console(stderr=as_json).print(on_terminal(OperatorOnly(note)), markup=False, soft_wrap=True)
    if as_json:
        print_json(written.to_json())
    else:
        console().print(written)


add_parameters(privatize, about_data.row_parameters("labels"), before="on_bad_rows")


def _show(path: Path, as_json: bool) -> None:
    spends = labels_released(path)
    if as_json:
        print_json({"state": str(path), "users": [spend.to_json() for spend in spends]})
        return
    table = Table(
        "user", "spent", "promise", "told", "may tell", "each label", box=None, pad_edge=False
    )
    for spend in spends:
        table.add_row(
            Text(spend.user_id),
            f"epsilon {spend.epsilon:.4g}",
            str(spend.promise),
            str(len(spend.items)),
            str(spend.labels),
            f"epsilon {spend.per_label:.4g}",
        )
    console().print(table)
