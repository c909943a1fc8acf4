"""``murmuration compare``: which strategy for my users?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.api.comparing import compare as compare_strategies
from murmuration.cli import about_data
from murmuration.cli.options import WHERE, Json, add_parameters, help_of, meaning, print_json
from murmuration.cli.setting_options import parameters_of
from murmuration.preference.data.errors import InputError
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.catalogue import DECLARED
from murmuration.terminal.terminal import Terminal

#: Of each run, beside those of its strategy.
_SETTINGS = ("model", "adjacency", "rounds", "cohort", "users", "features", "length")


def compare(
    *,
    out: Annotated[
        Path, typer.Option(help=f"{meaning('out')} Folder for all runs, the table and the plot.")
    ],
    data: Annotated[str | None, typer.Option(help=help_of("data"), show_default=False)] = None,
    test: Annotated[str | None, typer.Option(help=help_of("test"), show_default=False)] = None,
    strategies: Annotated[
        str,
        typer.Option(
            help="Strategies, comma-separated. Behind each, with colons, a variant or settings of "
            "its own: aup:published,uls:learning-rate=0.5:rounds=100,els:adjacency=zero-out."
        ),
    ] = "uls,nonprivate",
    epsilon: Annotated[
        str, typer.Option("--epsilons", help="Epsilons, comma-separated.")
    ] = "1,3,8",
    delta: Annotated[float, typer.Option(help=meaning("delta"))] = 1e-5,
    seeds: Annotated[int, typer.Option(help="Seeds, each a repetition.")] = 3,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help=f"{WHERE} local: one run after the other. ray: side by side, here or on the "
            "cluster at RAY_ADDRESS; all its machines must then see --out and the files."
        ),
    ] = Runtime.LOCAL,
    cpus_per_run: Annotated[int, typer.Option(help="ray: processors of one run.", min=1)] = 1,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Run strategies at equal privacy: a table and a plot.

    Equal are epsilon, delta and adjacency. All are checked before any is run: what cannot be
    compared so is refused, a line for each. If it is interrupted, the same command continues it.
    Runs have public seeds: compare on public or synthetic data.
    """
    try:
        budgets = [float(value) for value in epsilon.split(",")]
    except ValueError:
        raise InputError(f"--epsilons {epsilon!r}: numbers separated by commas") from None
    comparison = compare_strategies(
        [name.strip() for name in strategies.split(",") if name.strip()],
        budgets,
        out=out,
        data=data,
        test=test,
        seeds=seeds,
        runtime=runtime.value,
        cpus_per_run=cpus_per_run,
        progress=True,
        delta=delta,
        **settings,
    )
    Terminal(stderr=as_json).print(comparison)
    if as_json:
        print_json(comparison.to_json())
    if failed := next((cell.failed for cell in comparison if cell.failed), None):
        errors = Terminal(stderr=True, highlight=False)
        errors.print(f"error: some runs failed, the first: {failed}", style="red")
        raise typer.Exit(1)


add_parameters(compare, about_data.row_parameters(), before="delta")
add_parameters(compare, parameters_of(DECLARED[name] for name in _SETTINGS), before="seeds")
