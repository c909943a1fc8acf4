"""``murmuration data``: a look at one's own judgements before a budget is spent."""

from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.api.looking import data as look_at_data
from murmuration.api.looking import written_conversion, written_split
from murmuration.cli import about_data
from murmuration.cli.options import add_parameters, meaning
from murmuration.strategies.settings.run import Settings
from murmuration.terminal.tables import console


def data(
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Judgements: a file, a folder, or whatever else `murmuration run --data` takes.",
        ),
    ],
    split_users: Annotated[
        float | None,
        typer.Option(help="Write the rows of this share of the users to a test file instead."),
    ] = None,
    convert: Annotated[
        Path | None,
        typer.Option(
            help="Write the rows of --format in our form to this .jsonl file instead.",
            metavar="FILE.jsonl",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help=f"{meaning('out')} The folder for both files.")
    ] = None,
    epsilon: Annotated[
        float, typer.Option(help=f"{meaning('epsilon')} The one that you have in mind.", min=0.0)
    ] = Settings.epsilon,
    features: Annotated[
        str,
        typer.Option(
            help=f"{meaning('features')} How long they take for these texts is measured on a few.",
            show_default=False,
        ),
    ] = "",
    items: Annotated[str, typer.Option(help=meaning("items"), show_default=False)] = "",
    data_public: Annotated[
        bool,
        typer.Option(
            "--data-public",
            help="The file is public: a run need not say that its settings were chosen from it.",
        ),
    ] = False,
    **rows: Any,
) -> None:
    """Look at judgements before a budget is spent.

    It finds the declaration that a run needs. All rows are looked at, which no run does. What is
    printed is exact, for your eyes only, and kept nowhere (--features keeps its texts' features, as
    a run does). It ends with a `murmuration run` command.
    """
    from murmuration.preference.data.columns import write_columns

    rows["columns"] = write_columns(rows["columns"], rows.pop("user_column"))
    if split_users is not None or out is not None:
        columns, format = (rows[each] or "" for each in ("columns", "format"))
        print(written_split(source, split_users, out, columns, format))
        return
    if convert is not None:
        alone = bool(rows["one_user_per_row"])
        print(written_conversion(source, convert, rows["columns"], rows["format"] or "", alone))
        return
    summary = look_at_data(
        source, epsilon=epsilon, features=features, items=items, data_public=data_public, **rows
    )
    console().print(summary)
    print(summary.command)  # in one piece, to be copied


add_parameters(data, about_data.row_parameters(), before="split_users")
