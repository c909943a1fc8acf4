"""``murmuration bench``: how fast it is, as ratios within one run on the machine at hand."""

import json
from datetime import date
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sims.bench import SETTINGS, machine, measure

bench = typer.Typer(
    help="Measure speed on this machine, beside what bounds it.", no_args_is_help=True
)


@bench.callback()
def _commands() -> None:
    """Keeps ``users`` a command of its own."""


@bench.command()
def users(
    as_json: Annotated[
        bool, typer.Option("--json", help="End with the figures as one JSON line.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few repetitions: to see that it works.")
    ] = False,
) -> None:
    """Users a second in a node beside the plain tensor limit, and what a round costs on top."""
    about, console = machine(), Console(stderr=as_json)
    console.print(_machine_line(about), highlight=False, soft_wrap=True)
    if about["load"] > about["cores"] / 2:
        console.print("others are using this machine: repeat when it is quiet", style="yellow")
    rows = []
    for setting in SETTINGS:
        with console.status(f"d = {setting.dimension:,}, cohort {setting.cohort:,}"):
            rows.append(measure(setting, repetitions=5 if quick else 40))
    console.print(_table(rows))
    if as_json:
        today = date.today().isoformat()
        print(json.dumps({"name": "users", "machine": about, "date": today, "rows": rows}))


def _machine_line(about: dict) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return (
        f"{date.today().isoformat()}, {about['cpu']}, {about['cores']} cores, "
        f"load {about['load']:.1f}; {versions}"
    )


def _table(rows: list[dict]) -> Table:
    table = Table(title="users a second, medians", title_justify="left")
    columns = ("d", "cohort", "local runtime", "node", "tensor limit", "node / limit")
    for column in (*columns, "overhead of a round"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['d']:,}",
            f"{row['cohort']:,}",
            f"{row['users_per_second']:,.0f}",
            f"{row['node_users_per_second']:,.0f}",
            f"{row['limit_users_per_second']:,.0f}",
            f"{row['node_share_of_limit']:.0%}",
            f"{row['overhead_ms']:.1f} ms",
        )
    return table
