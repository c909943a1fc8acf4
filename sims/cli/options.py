"""Options of ``murmuration run``: what is learnt from, under which promise, by which steps, where.

None means: not given. Those of single strategies and of language models have files of their own.
"""

from typing import Annotated, Any

import click
import typer

from murmuration.preference.data.loading import TASKS
from murmuration.preference.data.schema import KINDS, LABELS, Schema
from murmuration.preference.language.base_model import TRAINED
from murmuration.preference.models import MODELS
from murmuration.privacy.adjacency import Adjacency as _Adjacency
from murmuration.server.config import parse_delta
from murmuration.sims.runtimes.execute import Runtime as _Runtime
from murmuration.strategies.noise import NOISES
from murmuration.strategies.settings import (
    ADAPTATIONS,
    CALIBRATIONS,
    ESTIMATORS,
    LABEL_WEIGHTS,
    LEVELS,
    SCHEDULES,
    SGD_STEPS,
    STRATEGIES,
    VARIANTS,
)


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


# Options of ``murmuration run`` that are about one strategy or a few.

SamplingProbability = Annotated[
    float | None,
    option(
        "els, group: how likely each kept judgement is in a round. [default: as much work as "
        "uls with --cohort]"
    ),
]
Normalized = Annotated[
    bool | None,
    option("Divide by the clip norm, so that step sizes do not depend on it.", "--normalized"),
]
LocalSteps = Annotated[
    int | None, option("dp-fedavg: steps a user takes on their own. [default: 4]")
]
LocalRate = Annotated[float | None, option("dp-fedavg: length of these steps. [default: 1]")]
Variant = Annotated[
    str | None,
    option("aup: which form of it. [default: centred]", click_type=click.Choice(VARIANTS)),
]
Phases = Annotated[
    int | None, option("aup, published: phases on disjoint halves of the users. [default: 1]")
]
Schedule = Annotated[
    str | None,
    option(
        "aup, published: phases, steps and radii as given, or by the paper's theorem. "
        "[default: constant]",
        click_type=click.Choice(SCHEDULES),
    ),
]
Adaptation = Annotated[
    str | None,
    option(
        "aup, centred: how the radius adapts. [default: quantile]",
        click_type=click.Choice(ADAPTATIONS),
    ),
]
Quantile = Annotated[
    float | None, option("adaptive, aup: share of users within the radius. [default: 0.15]")
]
Ridge = Annotated[
    float | None,
    option(
        "label-moment, objective-perturbation, local-label: curvature added to the likelihood. "
        "[default: by the noise and public features]"
    ),
]
Ball = Annotated[
    float | None,
    option("As --ridge: the most that the weights' length may be."),
]
Estimator = Annotated[
    str | None,
    option(
        "local-label: how the model is fitted to randomized labels. [default: debiased]",
        click_type=click.Choice(ESTIMATORS),
    ),
]
Level = Annotated[
    str | None,
    option(
        "local-label: epsilon is for all labels of a user together, or for each item's. "
        "[default: user]",
        click_type=click.Choice(LEVELS),
    ),
]
LabelCap = Annotated[
    int | None, option("local-label: most labels a user ever tells. [default: all they have]")
]
LabelDelta = Annotated[
    float | None,
    option("local-label, user level: the part of delta that labels are told with."),
]
LabelWeights = Annotated[
    str | None,
    option(
        "local-label: judgements count by what their labels tell, or all the same. "
        "[default: information]",
        click_type=click.Choice(LABEL_WEIGHTS),
    ),
]
SgdSteps = Annotated[
    str | None,
    option(
        "local-label, sgd: falling steps and averages, or as published. [default: decaying]",
        click_type=click.Choice(SGD_STEPS),
    ),
]
SumZero = Annotated[
    bool | None, option("local-label: only weights that sum to zero.", "--sum-zero")
]
Calibration = Annotated[
    str | None,
    option(
        "objective-perturbation: the accountant's noise, or the paper's. [default: analytic]",
        click_type=click.Choice(CALIBRATIONS),
    ),
]


# Options of ``murmuration run`` that are about a language model.

Base = Annotated[
    str | None,
    option("A language model to train (see --task): a folder, or a hub name."),
]
Train = Annotated[
    str | None,
    option("What of --base is trained. [default: lora]", click_type=click.Choice(TRAINED)),
]
LoraRank = Annotated[int | None, option("Rank of LoRA. [default: 16]")]
LoraTargets = Annotated[
    str | None,
    option("Layers that LoRA changes, comma-separated. [default: by architecture]"),
]
MaxTokens = Annotated[
    int | None,
    option(
        "Most tokens of prompt and response, where prompts are cut in front, or of a window of a "
        "text. [default: 256]"
    ),
]
BatchTokens = Annotated[
    int | None,
    option("Tokens of a user that are computed at a time. [default: as suits the device]"),
]
BatchUsers = Annotated[
    bool | None,
    option(
        "Let nodes compute several users at once (language models; a GPU). That no user moves "
        "the others' vectors is then measured, not so by construction.",
        "--batch-users",
    ),
]
UserMemory = Annotated[
    int | None,
    option("--batch-users: MiB for the gradients of single users, at a time. [default: 512]"),
]
Task = Annotated[
    str | None,
    option(
        "reward: from judgements. text: the next token of users' own texts (user_id, text). sft: "
        "that of the responses in judgements. [default: reward]",
        click_type=click.Choice(TASKS),
    ),
]
AsPublished = Annotated[
    bool | None,
    option("sft: learn chosen responses only. Looks at labels.", "--as-published"),
]


# Options that declare what judgements are; see `preference.data.schema`. None means: not given.

Kind = Annotated[
    str | None,
    option(
        "What each judgement is: pairs, top-1 (the best of several) or ranking. [default: pairs]",
        click_type=click.Choice(KINDS),
    ),
]
Responses = Annotated[
    int | None, option("top-1, ranking: the most responses of a judgement, 2 to 64.")
]
Labels = Annotated[
    str | None,
    option(
        "true, or randomized where every row has its flip_probability. [default: true]",
        click_type=click.Choice(LABELS),
    ),
]
MostJudgements = Annotated[
    int | None,
    option(f"Most judgements (or texts) of a user. [default: {Schema.most_judgements}]"),
]
MostCharacters = Annotated[
    int | None, option(f"Most characters of a text. [default: {Schema.most_characters}]")
]


def schema(
    kind: str | None,
    responses: int | None,
    most_judgements: int | None,
    most_characters: int | None,
    labels: str | None = None,
) -> Schema:
    """The schema that options declare; InputError if they make no sense."""
    given = {
        "kind": kind,
        "responses": responses,
        "most-judgements": most_judgements,
        "most-characters": most_characters,
        "labels": labels,
    }
    return Schema.of({name: value for name, value in given.items() if value is not None})
