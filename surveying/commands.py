"""``murmuration survey``: what a crowd's judgements are like, asked privately."""

import warnings
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import JSON, WHERE, add_parameters, print_json
from murmuration.cli.setting_options import setting_parameters
from murmuration.reporting.live.terminal import print_finished, print_notes
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.strategies.settings.declaration import OUTPUT, RUNTIME

#: Settings of a run that a survey has.
_SETTINGS = frozenset(
    {
        "adjacency",
        "chosen_from_data",
        "columns",
        "data",
        "delta",
        "epsilon",
        "format",
        "ids",
        "kind",
        "no_prompt",
        "noise",
        "on_bad_rows",
        "one_user_per_row",
        "out",
        "population",
        "positive_from",
        "responses",
        "resume",
        "scale",
        "secure_aggregation",
        "seed",
        "topics",
        "users",
    }
)


def survey(
    *,
    user_column: about_data.UserColumn = None,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help=f"{WHERE} local: this process. ray: Ray actors, here or on the cluster at "
            "RAY_ADDRESS.",
            rich_help_panel=RUNTIME,
        ),
    ] = Runtime.LOCAL,
    users_per_node: Annotated[
        int | None,
        typer.Option(
            help=r"Users on each simulated node. \[default: as suits the runtime]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON, rich_help_panel=OUTPUT)] = False,
    **given: Any,
) -> None:
    """Ask a crowd privately what its judgements are like.

    Users, judgements per user, ties, lengths, languages, topics by --topics, and how often the
    longest response is preferred. Everybody takes part once. One noisy sum is released, and charged
    to the ledger; `murmuration plan --survey` takes what it needs from it. Without --data the
    embedded population is asked.
    """
    from murmuration.surveying import api

    given = {name: value for name, value in given.items() if value is not None}
    if user_column is not None:
        given["user_column"] = user_column
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", UserWarning)
        result = api.survey(
            given.pop("data", None),
            runtime=runtime,
            users_per_node=users_per_node,
            progress=True,
            **given,
        )
    print_notes(notes, result.run.result["warnings"])
    if as_json:
        print_json(result.to_json())
    else:
        print_finished(result, soft_wrap=True)  # a path stays in one piece


add_parameters(survey, [each for each in setting_parameters() if each.name in _SETTINGS])
