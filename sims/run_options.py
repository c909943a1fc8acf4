"""Options of ``murmuration run``: what is learnt from, under which promise, by which steps, where.

None means: not given. Those of single strategies and of language models have files of their own.
"""

from typing import Annotated, Any

import click
import typer

from preference.models import MODELS
from privacy.adjacency import Adjacency as _Adjacency
from server.choices import STRATEGIES
from server.config import parse_delta
from server.noise import NOISES
from sims.execution import Runtime as _Runtime


def option(help_: str, *names: str, **more: Any) -> Any:
    """An option whose default the help tells by itself."""
    plain = help_.replace("[", r"\[")  # brackets are markup to who prints it
    return typer.Option(*names, help=plain, show_default=False, **more)


Data = Annotated[
    str | None,
    option(
        "Judgements (or texts) to train on: a .jsonl, .csv or .parquet file (also .gz), a folder "
        "of them, package.module:function, or a hub name. Default: the embedded population."
    ),
]
Test = Annotated[
    str | None,
    option("As --data, of other users, declared public. Without it, a share of users is held out."),
]
Strategy = Annotated[
    str | None, option("Algorithm. [default: uls]", click_type=click.Choice(STRATEGIES))
]
Model = Annotated[
    str | None,
    option(
        "Model of preferences: btl or thurstone for pairs, plackett-luce for the best of "
        "several or rankings. [default: btl]",
        click_type=click.Choice(MODELS),
    ),
]
Epsilon = Annotated[float | None, option("Privacy budget. [default: 3]")]
Delta = Annotated[
    float | None,
    option(
        "Delta, well below 1 / users; or n^-1.1, of the number of users. [default: 1e-5]",
        parser=parse_delta,
    ),
]
Adjacency = Annotated[
    _Adjacency | None, option("Which data sets are neighbours. [default: add-remove]")
]
Rounds = Annotated[
    int | None,
    option("Rounds of training. [default: 200, or 1 where the model is solved for]"),
]
Cohort = Annotated[int | None, option("Expected users in a round. [default: 500]")]
Users = Annotated[int | None, option("Nominal number of users, if their number is not public.")]
Clip = Annotated[float | None, option("Clip norm of a user's gradient. [default: the strategy's]")]
GroupSize = Annotated[
    int | None, option("Most judgements (or texts) of a user in a round. [default: the strategy's]")
]
Retain = Annotated[
    int | None,
    option("Most judgements of a user in the whole run (uls, dp-fedavg). [default: all]"),
]
Features = Annotated[str | None, option("hashing, or a transformer encoder's path or hub name.")]
Columns = Annotated[str | None, option("Renamed columns: user_id=annotator,chosen=better,…")]
OnBadRows = Annotated[
    str | None, option("refuse (default) or skip: set aside rows that cannot be used.")
]
Heldout = Annotated[
    float | None, option("Share of users held out when there is no --test. [default: 0.2]")
]
HeldoutEpsilon = Annotated[
    float | None,
    option(
        "What the accuracy on users held out may cost. [default: half of --epsilon; all of it "
        "where users are replaced, which is free]"
    ),
]
ExactHeldout = Annotated[
    bool | None,
    option(
        "Tell the exact accuracy on users held out, OUTSIDE THE GUARANTEE.",
        "--exact-heldout",
    ),
]
Optimizer = Annotated[str | None, option("sgd, adam or adafactor. [default: the strategy's]")]
LearningRate = Annotated[float | None, option("Step size. [default: limited by the noise]")]
Momentum = Annotated[float | None, option("Momentum. [default: 0.9]")]
Warmup = Annotated[float | None, option("Share of rounds of warm-up. [default: 0.05]")]
Averaging = Annotated[
    float | None, option("Share of last rounds that are averaged. [default: 0.25]")
]
Noise = Annotated[
    str | None,
    option(
        "discrete (exact whole numbers), gaussian (floating point), or distributed (added by the "
        "nodes, in shares, under masks). [default: discrete where there is no seed and OpenDP is "
        "installed]",
        click_type=click.Choice(NOISES),
    ),
]
HonestNodes = Annotated[
    int | None,
    option(
        "Of --noise distributed: how many nodes at least add their shares and stay. [default: more "
        "than two thirds of those registered]"
    ),
]
SecureAggregation = Annotated[
    bool | None,
    option(
        "Let nodes mask their sums: the server sees the cohort's sum only.",
        "--secure-aggregation",
    ),
]
Seed = Annotated[
    int | None, option("Repeat a simulation exactly. Without: from the operating system.")
]
Timeout = Annotated[
    float | None,
    option(
        "Seconds to wait for the nodes of a round. [default: 20 times what a probe takes, at "
        "least 600]"
    ),
]
UsersPerNode = Annotated[
    int | None, option("Users on each simulated node. [default: as suits the runtime]")
]
Runtime = Annotated[
    _Runtime,
    typer.Option(
        help="local: this process. flower: flwr run, own SuperLink. ray: Ray actors, here or "
        "on the cluster at RAY_ADDRESS."
    ),
]
Workers = Annotated[
    int, option("ray: how many workers share the users. [default: as there is room for]")
]
CpusPerWorker = Annotated[int, option("ray: processors of a worker. [default: 1]")]
GpusPerWorker = Annotated[float, option("ray: GPUs of a worker, 0.25 for a quarter. [default: 0]")]
Out = Annotated[str | None, option("Folder for the run. [default: runs/<time>]")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")]
AcceptLedgerLoss = Annotated[
    bool,
    typer.Option(
        "--accept-ledger-loss",
        help="With --resume: go on though the ledger lost charges; the plan is charged again.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON line.")]
