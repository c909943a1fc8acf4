"""``murmuration tune``: which settings for my users, chosen privately and paid for."""

from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import JSON, WHERE, add_parameters, print_json
from murmuration.cli.setting_options import RunCommand, setting_parameters
from murmuration.preference.data.errors import InputError
from murmuration.privacy.promise import epsilon_text
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.declaration import OUTPUT, RUNTIME, TRAINING
from murmuration.terminal.terminal import print_finished


def tune(
    *,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="A setting and the values to choose from, as clip_norm=0.05,0.1,0.2; once for "
            "each setting. All combinations are candidates.",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    expected_runs: Annotated[
        float | None,
        typer.Option(
            help=r"How many candidates are run on average; how many are is secret. \[default: 10]",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    eta: Annotated[
        float | None,
        typer.Option(
            help="Shape of the number of candidates: 0 logarithmic, 1 geometric. Less costs less, "
            r"and runs few candidates more often. \[default: 0]",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help=f"{WHERE} Of each candidate; local: this process. ray: "
            "candidates side by side, here or on the cluster at RAY_ADDRESS.",
            rich_help_panel=RUNTIME,
        ),
    ] = Runtime.LOCAL,
    cpus_per_run: Annotated[
        int,
        typer.Option(help="ray: processors of one run.", min=1, rich_help_panel=RUNTIME),
    ] = 1,
    as_json: Annotated[
        bool,
        typer.Option("--json", help=JSON, rich_help_panel=OUTPUT),
    ] = False,
    user_column: about_data.UserColumn = None,
    **given: Any,
) -> None:
    """Choose settings privately, within one epsilon.

    A secret random number of candidates is trained, each with a setting drawn from --grid, and
    scored by its noisy held-out accuracy. The best one's model is released and nothing of the
    others: --epsilon covers all of it. A search that was interrupted continues with
    --resume --out FOLDER, and no other settings.
    """
    from murmuration.reporting.live.live_view import summary
    from murmuration.tuning.grid import parsed
    from murmuration.tuning.tune import tune as search

    given = {name: value for name, value in given.items() if value is not None}
    if user_column is not None:
        given["user_column"] = user_column
    data = given.pop("data", None)
    if given.get("resume") and (grid or expected_runs or eta is not None or data is not None):
        raise InputError("--resume: give --out, and no settings: they are those of the search")
    finished = search(
        data,
        grid=parsed(grid) if grid else None,
        expected_runs=10.0 if expected_runs is None else expected_runs,
        eta=0.0 if eta is None else eta,
        runtime=runtime,
        cpus_per_run=cpus_per_run,
        progress=True,
        **given,
    )
    if as_json:
        print_json(finished.result)
        return
    figures = finished.result["outcome"]["search"]
    print_finished(summary(finished.result), highlight=False)
    chosen = "\n".join(f"  {name} = {value}" for name, value in figures["chosen"].items())
    alone, every = figures["candidate_epsilon"], figures["every_setting_once_epsilon"]
    print_finished(
        f"chosen:\n{chosen}\n"
        f"privacy: ε = {epsilon_text(figures['epsilon'])} for the whole search. Claimed as if "
        f"tuning were free it would be ε = {epsilon_text(alone)}, which is false; to look at every "
        f"setting once would cost ε = {epsilon_text(every)}.",
        soft_wrap=True,
        highlight=False,
    )


class TuneCommand(RunCommand):
    """A command like ``murmuration run``, whose help depends on strategy and task, with the
    grid.
    """

    COMMON = RunCommand.COMMON | {"grid", "expected_runs", "eta"}


COMMAND = TuneCommand

add_parameters(tune, setting_parameters())
