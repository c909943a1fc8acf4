"""``murmuration personalize``: what users gain by rewards of their own, made of a trained one."""

from pathlib import Path
from typing import Annotated, Any

import click
import typer

from murmuration.api.personalizing import personalize as personalize_model
from murmuration.cli import about_data
from murmuration.cli.options import Json, add_parameters, help_of, meaning, print_json
from murmuration.preference.data.rows import InputError
from murmuration.privacy.adjacency import Adjacency
from murmuration.reporting.live.tables import console


def personalize(
    model: Annotated[str, typer.Argument(help="A model folder, as in RUN/model, or a run.")],
    *,
    data: Annotated[
        str | None,
        typer.Option(help=f"{meaning('data')} Pairs of users whom the model was not trained on."),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help=f"{meaning('epsilon')} Of this release; delta is 0.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help=f"{meaning('out')} A folder: ledger, figures and plot."),
    ] = None,
    step: Annotated[
        float | None,
        typer.Option(
            help="Step size of four epochs of SGD on half of a user's judgements, from the crowd's "
            r"reward. \[default: with tastes their basis instead, else 0.1]",
            show_default=False,
        ),
    ] = None,
    adjacency: Annotated[
        Adjacency, typer.Option(help="Which data sets are neighbours.")
    ] = Adjacency.ADD_REMOVE,
    base: Annotated[
        str,
        typer.Option(
            help=f"{meaning('base')} Here the encoder that the model was made on, where it is not "
            "found by itself."
        ),
    ] = "",
    split: about_data.Split = None,
    data_config: about_data.DataConfig = None,
    on_bad_rows: Annotated[
        str,
        typer.Option(help=help_of("on_bad_rows"), click_type=click.Choice(["refuse", "skip"])),
    ] = "refuse",
    as_json: Json = False,
    **rows: Any,
) -> None:
    """Measure what users gain by rewards of their own.

    Half of a user's judgements make their own reward, and the other half is predicted; then the
    other way round. How often the crowd's reward is right and what users gain, those who lose by it
    included, is one release, charged to a ledger of its own.
    """
    from murmuration.preference.data.loading import write_columns

    if data is None or epsilon is None or out is None:
        raise InputError("personalize needs --data, --epsilon and --out")
    result = personalize_model(
        model,
        about_data.located(data, split, data_config) or data,
        epsilon,
        out=out,
        step=step,
        adjacency=adjacency.value,
        base=base,
        columns=write_columns(rows.pop("columns"), rows.pop("user_column")),
        on_bad_rows="skip" if on_bad_rows == "skip" else "refuse",
        **rows,
    )
    if as_json:
        print_json(result.to_json())
    else:
        console().print(result)


_LEFT_OUT = ("labels", "kind", "responses", "one_user_per_row")
add_parameters(personalize, about_data.row_parameters(*_LEFT_OUT), before="split")
