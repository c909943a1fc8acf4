"""``murmuration data``: a look at one's own judgements before a budget is spent."""

from pathlib import Path
from typing import Annotated

import typer

from murmuration.api.looking import data as look_at_data
from murmuration.api.looking import written_split
from murmuration.cli import about_data
from murmuration.cli.options import meaning
from murmuration.reporting.live.tables import console
from murmuration.strategies.settings.run import Settings


def data(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Judgements: a file, a folder, or whatever else `murmuration run --data` takes.",
        ),
    ],
    columns: about_data.Columns = None,
    user_column: about_data.UserColumn = None,
    format: about_data.Format = None,
    one_user_per_row: about_data.OneUserPerRow = None,
    split: about_data.Split = None,
    data_config: about_data.DataConfig = None,
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    labels: about_data.Labels = None,
    max_judgements: about_data.MaxJudgements = None,
    max_characters: about_data.MaxCharacters = None,
    scale: about_data.Scale = None,
    positive_from: about_data.PositiveFrom = None,
    no_prompt: about_data.NoPrompt = None,
    split_users: Annotated[
        float | None,
        typer.Option(help="Write the rows of this share of the users to a test file instead."),
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
) -> None:
    """Look at judgements before a budget is spent: what they hold, what a run would make of them.

    Everything goes to the terminal and nowhere else (--features keeps its texts' features, as a run
    does). It is exact, and for your eyes only. It ends
    with a `murmuration run` command.
    """
    source = about_data.located(source, split, data_config) or source
    columns = about_data.renamed(columns, user_column)
    if split_users is not None or out is not None:
        print(written_split(source, split_users, out, columns, format or ""))
        return
    summary = look_at_data(
        source,
        columns=columns,
        format=format,
        kind=kind,
        responses=responses,
        labels=labels,
        max_judgements=max_judgements,
        max_characters=max_characters,
        one_user_per_row=one_user_per_row,
        scale=scale,
        positive_from=positive_from,
        no_prompt=no_prompt,
        epsilon=epsilon,
        features=features,
    )
    console().print(summary)
    print(summary.command)  # in one piece, to be copied
