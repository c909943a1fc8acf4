"""``murmuration run``: one training run in simulation, from judgements to a reward model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import JSON, ReportTo, add_parameters, print_json
from murmuration.cli.setting_options import RunCommand, setting_parameters
from murmuration.cli.whole_crowd import UsersPerNode, Where
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.declaration import OUTPUT, RUNTIME
from murmuration.terminal.terminal import print_finished


def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings from a file: TOML with options' names, or the config.json of a run. "
            "Options override it.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    users_per_node: UsersPerNode = None,
    runtime: Where = Runtime.LOCAL,
    workers: Annotated[
        int,
        typer.Option(
            help=r"ray: how many workers share the users. \[default: as there is room for]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = 0,
    cpus_per_worker: Annotated[
        int, typer.Option(help="ray: processors of a worker.", rich_help_panel=RUNTIME)
    ] = 1,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            help="ray: GPUs of a worker; 0.25 for a quarter. "
            r"\[default: 1 with --base where the cluster has any, else 0]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help=JSON, rich_help_panel=OUTPUT),
    ] = False,
    user_column: about_data.UserColumn = None,
    report_to: ReportTo = None,
    **given: Any,
) -> None:
    """Train a private reward model, or a language model with --task.

    Trains in simulation, and writes a folder with config, ledger, metrics, model, plots and report.
    A run that was interrupted continues with --resume --out FOLDER; other options need not be
    repeated. `murmuration train` is the same command.

    Shown are the options that most runs need. `--strategy NAME --help` or `--task NAME --help`
    adds those of a strategy or task, `--help-all` all there are.
    """
    from murmuration.api.config import make_config, with_file
    from murmuration.api.rows import with_columns
    from murmuration.api.training import train_config
    from murmuration.reporting.live.live_view import summary
    from murmuration.sims.runtimes.ray_cluster import Workers

    given = {name: value for name, value in given.items() if value is not None}
    given = with_file(config, given) if config else given
    if user_column is not None:
        given["user_column"] = user_column
    shares = {} if gpus_per_worker is None else {"gpus": gpus_per_worker}
    finished = train_config(
        make_config(with_columns(given)),
        runtime=runtime,
        users_per_node=users_per_node,
        workers=Workers(workers, cpus_per_worker, **shares),
        progress=True,
        report_to=report_to,
    )
    if as_json:
        print_json(finished.result)
    else:
        print_finished(summary(finished.result))


#: Its class, whose help depends on the strategy and the task that are named.
COMMAND = RunCommand

add_parameters(run, setting_parameters())
