"""The command line: ``murmuration COMMAND``.

Commands live in files of their own. Whatever a user can mend ends in one line on stderr and a
nonzero exit; results go to stdout, progress to stderr.
"""

import logging
import os
import sys

import typer
from rich.console import Console

# Quiet libraries that are good neighbours and need no network, unless the user has said otherwise.
for _name, _value in {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_usage_stats_enabled": "0",
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(_name, _value)
# Idle threads that spin take the cores from those that work, where others use the machine too. What
# a benchmark compares with is measured as it comes, and is faster so on a quiet machine.
if sys.argv[1:2] != ["bench"]:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from murmuration.preference.data.judgements import InputError  # noqa: E402
from murmuration.sims.cli import (  # noqa: E402
    agent,
    audit,
    base,
    bounds,
    compare,
    ledger,
    plan,
    population,
    privatize,
    reproduce,
    run,
    score,
)
from murmuration.sims.cli.bench import bench  # noqa: E402
from murmuration.sims.cli.deploy import deploy  # noqa: E402
from murmuration.sims.runtimes.flower import FlowerRunFailed  # noqa: E402
from murmuration.strategies.protocol.availability import RunAborted  # noqa: E402
from murmuration.strategies.protocol.node_texts import escaped  # noqa: E402

app = typer.Typer(
    name="murmuration",
    help="Learn what a crowd prefers without learning what anyone in it prefers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("score")(score.score)
app.command("compare")(compare.compare_command)
app.command("reproduce")(reproduce.reproduce)
app.command("privatize")(privatize.privatize)
app.command("bounds")(bounds.bounds)
app.command("agent")(agent.agent)
app.command("ledger")(ledger.ledger)
app.command("base")(base.base)
app.command("population")(population.population)
app.command("audit")(audit.audit)
app.add_typer(bench, name="bench")
app.add_typer(deploy, name="deploy")


def main() -> None:
    """Entry point of the console script."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    errors = Console(stderr=True, highlight=False)
    try:
        app()
    except InputError as error:
        errors.print(f"[bold red]error:[/] {_plain(error)}", soft_wrap=True)
        sys.exit(2)
    except (FlowerRunFailed, RunAborted) as error:
        errors.print(f"[bold red]error:[/] {_plain(error)}", soft_wrap=True)
        sys.exit(1)


def _plain(error: BaseException) -> str:
    """A text that may quote files, nodes and servers, for a terminal."""
    lines = [escaped(line) for line in str(error).split("\n")]
    return "\n".join(lines).replace("[", r"\[")


if __name__ == "__main__":
    main()
