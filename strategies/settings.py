"""The settings of a run: each is declared once, and all that is said and checked follows from that.

A declaration holds name, type, default, help, check, choices and panel. From it come the fields of
``strategies.config.RunConfig``, range checks, the options of ``murmuration run`` and their places
in ``--help``, the table in docs/reference/settings.md, and ``[tool.flwr.app.config]`` in
pyproject.toml (where Flower wants every key that may be overridden). ``Settings`` are those of
every run; what is of one strategy is declared with ``setting`` in a frozen dataclass of its own:
here for those that are here (``OF_STRATEGIES``), because options and help need declarations alone
and a strategy's file needs libraries that take long; in its file for another package's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar

from murmuration.preference.choices import (
    DTYPES,
    LENGTHS,
    OPTIMIZERS,
    QUANTISED,
    TASKS,
    TRAINED,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.schema import KINDS, LABELS, Schema
from murmuration.preference.models import LOSSES, MODELS, in_words
from murmuration.preference.policy_losses import (
    CLIPPED_LOSSES,
    DEFAULT,
    OBJECTIVES,
    POLICY_LOSSES,
    UNBIASED_LOSSES,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.extensions import Group

if TYPE_CHECKING:
    from murmuration.privacy.mechanisms.hold_out import HoldOut

Scalar = bool | int | float | str
Own = TypeVar("Own")

#: Panels of ``--help``, in their order. What is of single strategies stands behind them.
DATA, PROMISE, TRAINING = "Data", "Privacy", "Training"
MODEL, RUNTIME, OUTPUT = "Model", "Runtime", "Output"
PANELS = (DATA, PROMISE, TRAINING, MODEL, RUNTIME, OUTPUT)
OF_STRATEGY = "Only for"

#: Of strategies that other packages bring (``strategies.registry``).
ENTRY_POINTS = "murmuration.strategies"
NOISES = ("discrete", "gaussian", "distributed")
#: Where a strategy takes any number.
ROUNDS = 200


@dataclass(frozen=True)
class About:
    """What is known of a setting beside its name, type and default.

    Attributes:
        help: for whoever sets it, with what is done where nobody does.
        panel: of ``--help``.
        choices: names that it can be, besides the default.
        others: the group by which other packages bring more of them.
        good: whether a value could be used in some run.
        expected: says which ones can.
        steps: whether it is about steps and sampling, which strategies that solve have none of.
        base: whether it is about a language model.
        deployed: whether it is for deployments only, and no option of a simulation.
        changeable: whether a resumed run may have another: it decides neither result nor cost.
        common: whether most runs set it, so that plain ``--help`` shows it.
        former: the name it had until the last version, which is still read.
    """

    help: str
    panel: str = OF_STRATEGY
    choices: tuple[str, ...] = ()
    others: Group | None = None
    good: Callable[[Any], bool] = lambda value: True
    expected: str = ""
    steps: bool = False
    base: bool = False
    deployed: bool = False
    changeable: bool = False
    common: bool = False
    former: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """All choices that there are here; no package is imported for them."""
        return self.choices + (self.others.names() if self.others else ())


def setting(default: Scalar, help_: str, **about: Any) -> Any:
    """A field of a dataclass of settings; keywords as the attributes of ``About``."""
    return field(default=default, metadata={"about": About(help_, **about)})


def about(declared: "Field[Any]") -> About:
    """Return what was declared with ``setting``."""
    return declared.metadata["about"]


def option(name: str) -> str:
    """Return how a setting is called on a command line."""
    return "--" + name.replace("_", "-")


def positive(value: float) -> bool:
    """A finite number above 0."""
    return math.isfinite(value) and value > 0


def positive_or_default(value: float) -> bool:
    """As ``positive``, or 0, which stands for the default."""
    return value == 0 or positive(value)


def not_negative(value: float) -> bool:
    """At least 0, which stands for the default, where that is not the least itself."""
    return value >= 0


def a_share(value: float) -> bool:
    """0 to 1."""
    return 0.0 <= value <= 1.0


#: ``good`` and ``expected`` of whole numbers and lengths with a default of their own.
AT_LEAST_ONE: dict[str, Any] = {"good": not_negative, "expected": "at least 1"}
POSITIVE: dict[str, Any] = {"good": positive_or_default, "expected": "a positive number"}


#: The cohort where nobody chose one: a share of the users, between these two.
COHORT_SHARE, LEAST_COHORT, MOST_COHORT = 5, 100, 500


def usual_cohort(users: int) -> int:
    """A fifth of a public number of users, at least 100 (or all of them) and at most 500."""
    return max(1, min(users, max(LEAST_COHORT, min(MOST_COHORT, users // COHORT_SHARE))))


@dataclass(frozen=True)
class Settings:
    """What every run is set by. 0 or "" stand for a default that depends on others.

    All are public parameters but ``seed``. A dataclass of more settings extends this one.
    """

    data: str = setting(
        "murmuration.population:train",
        "The judgements (or other rows) to read. A .jsonl, .json, .csv, .parquet or .arrow file "
        "(also .gz), a folder of them, package.module:function, or a hub name; NAME#SPLIT for one "
        "split. Default: the embedded population.",
        panel=DATA,
        common=True,
    )
    test: str = setting(
        "",
        "Judgements of other users to measure accuracy on, declared public; named as --data is. "
        "Without it, a share of the users is held out.",
        panel=DATA,
        common=True,
    )
    columns: str = setting(
        "", "Columns of other names, as field=column: user_id=annotator,chosen=better,…", panel=DATA
    )
    on_bad_rows: str = setting(
        "refuse",
        "refuse (default) or skip: leave out rows that cannot be used.",
        panel=DATA,
        good=lambda value: value in ("refuse", "skip"),
        expected="refuse or skip",
    )
    kind: str = setting(
        "pairs",
        "What each judgement is: pairs, top-1 (the best of several), ranking, or thumbs (one "
        "response, liked or not). [default: pairs, which are also made of thumbs]",
        panel=DATA,
        common=True,
        choices=KINDS,
    )
    responses: int = setting(
        0, "Most responses of a judgement. top-1, ranking: 2 to 64.", panel=DATA
    )
    labels: str = setting(
        "true",
        "true, or randomized, if every row has its flip_probability. [default: true]",
        panel=DATA,
        choices=LABELS,
    )
    max_judgements: int = setting(
        Schema.max_judgements,
        f"Most judgements (or texts) of a user. [default: {Schema.max_judgements}]",
        panel=DATA,
        former="most_judgements",
    )
    max_characters: int = setting(
        Schema.max_characters,
        f"Most characters of a text. [default: {Schema.max_characters}]",
        panel=DATA,
        former="most_characters",
    )
    one_user_per_row: bool = setting(
        False,
        "There is no column of users: each row counts as a user of its own, and only single rows "
        "are protected.",
        panel=DATA,
    )
    scale: str = setting(
        "",
        "Labels that are numbers, as LOW..HIGH: thumbs are up above the middle (1..5), and of two "
        "responses the first won below it (-3..3). [default: recognised from all labels]",
        panel=DATA,
    )
    positive_from: str = setting(
        "", "Least number of a label that is a thumb up, as 4 of 1 to 5.", panel=DATA
    )
    no_prompt: bool = setting(
        False,
        "Pairs have no prompt. [default: recognised where no row has one; not at nodes]",
        panel=DATA,
    )
    heldout: float = setting(
        0.2,
        "Share of users held out when there is no --test. [default: 0.2]",
        panel=DATA,
        good=lambda value: 2.0**-11 <= value < 1.0,  # as ``privacy.mechanisms.hold_out`` can
        expected="a share from 0.0005 to below 1",
    )
    heldout_epsilon: float = setting(
        0.0,
        "Budget for the accuracy on held-out users. [default: half of --epsilon, which is part of "
        "it; under replace and replace-labels all of it, at no extra cost]",
        panel=PROMISE,
    )
    exact_heldout: bool = setting(
        False, "Report the exact accuracy on held-out users, OUTSIDE THE GUARANTEE.", panel=PROMISE
    )
    strategy: str = setting("uls", "Algorithm. [default: uls]", panel=TRAINING, common=True)
    model: str = setting(
        "btl",
        f"Model of preferences: {in_words()}. [default: btl]",
        panel=MODEL,
        common=True,
        choices=MODELS,
        others=LOSSES,
    )
    epsilon: float = setting(
        3.0,
        "Privacy budget. [default: 3]",
        panel=PROMISE,
        common=True,
        good=positive,
        expected="a positive number",
    )
    delta: float = setting(
        1e-5,
        "Delta of the promise. Well below 1 / users; or n^-1.1, of the number of users. "
        "[default: 1e-5]",
        panel=PROMISE,
        common=True,
        good=lambda value: 0.0 <= value < 1.0,
        expected="between 0 and 1, well below 1 / users, or n^-1.1",
    )
    adjacency: str = setting(
        "add-remove",
        "Which data sets are neighbours. [default: add-remove]",
        panel=PROMISE,
        common=True,
        choices=tuple(adjacency.value for adjacency in Adjacency),
    )
    rounds: int = setting(
        0,
        f"Rounds of training. [default: {ROUNDS}, or 1 if the strategy takes one round]",
        panel=TRAINING,
        common=True,
        good=lambda value: value >= 1,
        expected="at least 1",
    )
    cohort: int = setting(
        0,
        "Expected users in a round. [default: a fifth of --users, at least 100 (or all) and at "
        f"most {MOST_COHORT}; {MOST_COHORT} if their number is private and --users is left out]",
        panel=TRAINING,
        common=True,
        **AT_LEAST_ONE,
    )
    users: int = setting(
        0,
        "Number of users. To train on, as a nominal, round, public figure.",
        panel=PROMISE,
        common=True,
        good=not_negative,
        expected="a positive number",
    )
    clip_norm: float = setting(
        0.0,
        "Clip norm of a user's gradient. els, group: of one judgement's; aup: the radius. "
        "[default: the strategy's]",
        panel=TRAINING,
        common=True,
        former="clip",
        **POSITIVE,
    )
    group_size: int = setting(
        0,
        "Most judgements (or texts) of a user in a round. [default: the strategy's]",
        panel=TRAINING,
        common=True,
        steps=True,
        **AT_LEAST_ONE,
    )
    features: str = setting(
        "hashing",
        "hashing, minilm (a small encoder), auto (minilm where installed), or an encoder's path or "
        "hub name.",
        panel=MODEL,
        common=True,
    )
    length: str = setting(
        "bounded",
        "How a response's length counts among these features: bounded, so that padding soon pays "
        "nothing; none; or log, which pays for it without end, as earlier versions did. "
        "[default: bounded]",
        panel=MODEL,
        choices=LENGTHS,
    )
    base: str = setting(
        "",
        "The base: a folder, or a hub name. A language model to train: see --task.",
        panel=MODEL,
        common=True,
    )
    base_privacy: str = setting(
        "",
        "Privacy cost of training --base, or an encoder, where its folder does not record it: "
        "public, or the ledger.jsonl of the run that made it (of several, comma-separated). "
        "[default: as its folder records]",
        panel=PROMISE,
    )
    population: str = setting(
        "",
        "A name of your own for the people trained on. If --base, or an encoder, was trained on "
        "the same people, or on people without such a name, epsilons add up.",
        panel=PROMISE,
    )
    disjoint: bool = setting(
        False,
        "Declare that nobody in --population is among the people that --base, or an encoder, was "
        "trained on.",
        panel=PROMISE,
    )
    task: str = setting(
        "reward",
        "What is trained. reward: from judgements. text: the next token of users' own texts "
        "(user_id, text). sft: that of the responses in judgements. policy: a model that answers "
        "as people prefer. [default: reward]",
        panel=MODEL,
        common=True,
        choices=TASKS,
    )
    loss: str = setting(
        "",
        f"policy: {', '.join(name for name in POLICY_LOSSES if name not in UNBIASED_LOSSES)}; or "
        f"{', '.join(UNBIASED_LOSSES)}, which correct for randomized labels. [default: {DEFAULT}]",
        panel=MODEL,
        choices=POLICY_LOSSES,
        others=OBJECTIVES,
        base=True,
    )
    beta: float = setting(
        0.0,
        "policy: the reward that a log-ratio of one stands for. [default: 1]",
        panel=MODEL,
        base=True,
        **POSITIVE,
    )
    r_max: float = setting(
        0.0,
        f"policy: rewards' differences are clipped at twice this, by {', '.join(CLIPPED_LOSSES)}. "
        "[default: 2]",
        panel=MODEL,
        base=True,
        **POSITIVE,
    )
    as_published: bool = setting(
        False,
        "sft: train on chosen responses only, as published; that looks at labels.",
        panel=MODEL,
    )
    policies: str = setting(
        "",
        "policy: a class of policies to choose from, written by `murmuration policies commit`; "
        "--base is the reference.",
        panel=MODEL,
        base=True,
    )
    train: str = setting(
        "",
        "Which weights of --base are trained. [default: lora]",
        panel=MODEL,
        choices=TRAINED,
        base=True,
    )
    head_first: float = setting(
        0.3,
        "Share of the first rounds, in which only a reward's head learns. (While the head is "
        "zero, all gradients below it are zero, and layers there would get only noise.)",
        panel=MODEL,
        good=a_share,
        expected="in [0, 1]",
        base=True,
    )
    lora_rank: int = setting(
        0, "Rank of LoRA. [default: 16]", panel=MODEL, base=True, **AT_LEAST_ONE
    )
    lora_alpha: int = setting(
        0,
        "Alpha of LoRA, whose change is multiplied by alpha / rank. [default: the rank]",
        panel=MODEL,
        base=True,
        **AT_LEAST_ONE,
    )
    lora_targets: str = setting(
        "",
        "Layers that LoRA changes, comma-separated, or all-linear. [default: by architecture]",
        panel=MODEL,
        base=True,
    )
    max_tokens: int = setting(
        0,
        "Most tokens of prompt and response (longer prompts lose their beginning), or of a "
        "window of a text. [default: 256]",
        panel=MODEL,
        base=True,
        **AT_LEAST_ONE,
    )
    batch_tokens: int = setting(
        0,
        "Tokens of a user that are computed at a time. [default: as suits the device]",
        panel=MODEL,
        base=True,
        **AT_LEAST_ONE,
    )
    dtype: str = setting(
        "",
        "What --base computes in: float32, bfloat16, float16, or auto. What is trained, and users' "
        "gradients, stay float32. [default: auto, which is bfloat16 if the run begins on a "
        "machine with a GPU that has it, else float32]",
        panel=MODEL,
        good=lambda value: value in ("", *DTYPES),
        expected=f"one of {', '.join(DTYPES)}",
        base=True,
    )
    quantise: str = setting(
        "",
        "Keep frozen linear layers of --base in fewer bits (bitsandbytes), with --train lora or "
        "head: 8bit, or 4bit (nf4). [default: none]",
        panel=MODEL,
        choices=QUANTISED,
        base=True,
    )
    checkpointing: bool = setting(
        False,
        "Compute activations of --base once more instead of keeping them: less memory, a third "
        "more computing.",
        panel=MODEL,
        base=True,
    )
    tf32: bool = setting(
        False,
        "Let a GPU round factors of float32 products of --base to TF32; never in users' gradients.",
        panel=MODEL,
        base=True,
    )
    batch_users: bool = setting(
        False,
        "Let nodes compute several users at once (language models; a GPU). That no user moves "
        "the others' vectors is then only measured, not proven.",
        panel=MODEL,
        steps=True,
    )
    user_memory: int = setting(
        0,
        "--batch-users: MiB for the gradients of single users, at a time. [default: 512]",
        panel=MODEL,
        base=True,
        **AT_LEAST_ONE,
    )
    optimizer: str = setting(
        "",
        "Optimizer. sgd, adam or adafactor. [default: the strategy's]",
        panel=TRAINING,
        good=lambda value: value in ("", *OPTIMIZERS),
        expected=f"one of {', '.join(OPTIMIZERS)}",
        steps=True,
    )
    learning_rate: float = setting(
        0.0,
        "Learning rate. [default: limited by the noise]",
        panel=TRAINING,
        common=True,
        steps=True,
        **POSITIVE,
    )
    momentum: float = setting(
        0.9,
        "Momentum. [default: 0.9]",
        panel=TRAINING,
        good=lambda value: 0.0 <= value < 1.0,
        expected="at least 0 and below 1",
    )
    warmup: float = setting(
        0.05,
        "Share of the first rounds, in which the step size rises. [default: 0.05]",
        panel=TRAINING,
        good=a_share,
        expected="a share of the rounds, 0 to 1",
    )
    averaging: float = setting(
        0.25,
        "Share of the last rounds, whose models are averaged. [default: 0.25]",
        panel=TRAINING,
        good=a_share,
        expected="a share of the rounds, 0 to 1",
    )
    keep_last: int = setting(
        0,
        "Keep the parameters after each of the last N rounds, for `align --pessimism`. They are "
        "covered by the same epsilon. [default: none]",
        panel=TRAINING,
        good=lambda value: value >= 0,
        expected="a whole number that is not negative",
        base=True,
        steps=True,
    )
    seed: int = setting(
        -1,
        "Seed. It repeats a simulation exactly. [default: randomness from the operating system]",
        panel=RUNTIME,
        common=True,
        good=lambda value: value >= -1,
        expected="a non-negative integer, or left out",
        changeable=True,
    )
    out: str = setting(
        "",
        "Where to write. Folder for the run. [default: runs/<time>]",
        panel=OUTPUT,
        common=True,
        changeable=True,
    )
    resume: bool = setting(
        False, "Continue the run in --out.", panel=OUTPUT, common=True, changeable=True
    )
    accept_ledger_loss: bool = setting(
        False,
        "With --resume: continue although the ledger lost charges; its plan is charged again.",
        panel=OUTPUT,
        changeable=True,
    )
    noise: str = setting(
        "",
        "discrete (exact whole numbers), gaussian (floating point), or distributed (added by the "
        "nodes, in shares, under masks). [default: discrete if there is no seed and OpenDP is "
        "installed]",
        panel=PROMISE,
        choices=NOISES,
    )
    honest_nodes: int = setting(
        0,
        "--noise distributed: the least number of nodes that add their shares of noise honestly "
        "and do not drop out. [default: more than two thirds of those registered]",
        panel=PROMISE,
        good=lambda value: value == 0 or value >= 2,
        expected="at least 2",
    )
    secure_aggregation: bool = setting(
        False,
        "Let nodes mask their sums: the server sees only the sum over the cohort.",
        panel=PROMISE,
    )
    timeout: float = setting(
        0.0,
        "Seconds to wait for the nodes of a round. [default: 20 times a trial on made-up users, "
        "at least 600]",
        panel=RUNTIME,
        good=positive_or_default,
        expected="a positive number of seconds",
        changeable=True,
    )
    min_nodes: float = setting(
        0.5,
        "Nodes that must be online before a round's cohort is drawn: a number, or a share.",
        panel=RUNTIME,
        good=lambda value: 0.0 <= value < 1.0 or (value > 0.0 and value % 1.0 == 0.0),
        expected="a number of nodes, or a share of them below 1",
        deployed=True,
        changeable=True,
        former="least_nodes",
    )
    registration: str = setting(
        "",
        "File that says which users deployed nodes may host. [default: one user each]",
        panel=RUNTIME,
        deployed=True,
        changeable=True,
    )
    refresh: int = setting(
        0,
        "Rounds after which nodes are asked again whom they host. [default: never]",
        panel=RUNTIME,
        good=not_negative,
        expected="at least 0",
        deployed=True,
    )

    def check_values(self) -> None:
        """InputError, naming the option, for the first value that no run could use."""
        for declared in fields(self):
            value, told = getattr(self, declared.name), about(declared)
            named = not told.choices or value in (declared.default, *told.choices)
            if not (named or value in told.names) or not told.good(value):
                expected = told.expected or f"one of {', '.join(told.names)}"
                raise InputError(f"{option(declared.name)} must be {expected}; got {value!r}")

    def of(self, own: type[Own]) -> Own:
        """The settings of one strategy, as its own dataclass declares them."""
        return own(**{declared.name: getattr(self, declared.name) for declared in fields(own)})  # type: ignore[arg-type]

    @property
    def schema(self) -> Schema:
        """Return what the data are declared to hold."""
        return Schema.of(self.to_run_config())

    def to_run_config(self) -> dict[str, Scalar]:
        """As Flower's flat run config: names with dashes."""
        return {key.replace("_", "-"): value for key, value in asdict(self).items()}

    @property
    def private(self) -> bool:
        """Return whether anything is promised: by every strategy but one."""
        return self.strategy != "nonprivate"

    def cohort_of(self, registered: int) -> int:
        """The expected number of users in a round: as given, else by ``usual_cohort``.

        Under ``add-remove`` how many registered is private: it decides nothing here.
        """
        if self.cohort:
            return self.cohort
        if self.private and not self.users and self.adjacency == Adjacency.ADD_REMOVE.value:
            return MOST_COHORT
        return usual_cohort(self.trained_on(registered))

    def trained_on(self, registered: int) -> int:
        """The nominal number of users to train on: a public constant.

        Where users are held out it is not how many were left, which the coins decide, but the
        share of those who registered.
        """
        if self.users:
            return self.users
        return registered if self.test else round((1.0 - self.heldout) * registered)

    def measured_on(self, registered: int) -> int:
        """The nominal number of users held out where there is no test, as ``trained_on``."""
        among = self.users / (1.0 - self.heldout) if self.users else registered
        return round(self.heldout * among)

    @property
    def hold_out(self) -> "HoldOut | None":
        """Return how users are held out; None if nobody is, or nothing said of them is protected.

        See ``privacy.mechanisms.hold_out``.
        """
        from murmuration.privacy.mechanisms import hold_out

        if self.test or self.exact_heldout or not self.private:
            return None
        adjacency = Adjacency(self.adjacency)
        return hold_out.usual(self.heldout, self.epsilon, adjacency, self.heldout_epsilon)


# Settings that several strategies have, each with the same meaning in all of them.


def user_isolation(batch_users: bool) -> str:
    """Why one user's data moves no other's vector: by how it is computed, or as far as measured."""
    return "empirical" if batch_users else "by construction"


@dataclass(frozen=True)
class Retained:
    """Of strategies that sample users, round by round."""

    retain: int = setting(
        0, "Most judgements of a user in the whole run. [default: all]", **AT_LEAST_ONE
    )


@dataclass(frozen=True)
class Normalized:
    """Of strategies whose clip norm is fixed."""

    normalized: bool = setting(
        False, "Divide by the clip norm, so that step sizes do not depend on it."
    )


@dataclass(frozen=True)
class Quantile:
    """Of strategies whose bound follows a quantile."""

    quantile: float = setting(
        0.0,
        "Share of users within the radius. [default: 0.15]",
        good=lambda value: 0.0 <= value < 1.0,
        expected="between 0 and 1",
    )


@dataclass(frozen=True)
class Leveled:
    """Of strategies that can protect each judgement by itself."""

    level: str = setting(
        "",
        "user: epsilon is for all labels of a user together. item: for each label. (exponential: "
        "for all judgements of a user, or for each.) [default: user]",
        choices=("user", "item"),
        expected="user or item",
    )


@dataclass(frozen=True)
class Solved:
    """Of strategies that solve for the model."""

    ridge: float = setting(
        0.0,
        "Ridge penalty added to the likelihood. [default: from noise and public features]",
        **POSITIVE,
    )
    max_norm: float = setting(
        0.0, "Largest norm of the weights. [default: the strategy's]", former="ball", **POSITIVE
    )


#: Of one user at item level, where ``judgement_cap`` is left out.
DEFAULT_JUDGEMENT_CAP = 16


@dataclass(frozen=True)
class UlsSettings(Retained, Normalized):
    """Settings of uls."""


@dataclass(frozen=True)
class FedAvgSettings(Retained, Normalized):
    """Settings of dp-fedavg."""

    local_steps: int = setting(0, "Local steps of each user. [default: 4]", **AT_LEAST_ONE)
    local_rate: float = setting(
        0.0, "Step size of the local steps; with --task policy give 0.1. [default: 1]", **POSITIVE
    )


@dataclass(frozen=True)
class ElsSettings(Normalized):
    """Settings of els and group."""

    sampling_probability: float = setting(
        0.0,
        "Probability of each kept judgement to be in a round. [default: as much computing as "
        "uls with --cohort]",
        good=a_share,
        expected="between 0 and 1",
    )


@dataclass(frozen=True)
class AdaptiveSettings(Retained, Quantile):
    """Settings of adaptive."""


@dataclass(frozen=True)
class AupSettings(Retained, Quantile):
    """Settings of aup."""

    variant: str = setting(
        "centred",
        "Which form of it. [default: centred]",
        choices=("centred", "corrected", "published"),
    )
    adaptation: str = setting(
        "quantile",
        "centred: how the radius adapts. [default: quantile]",
        choices=("quantile", "above-threshold"),
    )
    phases: int = setting(
        0, "published: phases on disjoint halves of the users. [default: 1]", **AT_LEAST_ONE
    )
    schedule: str = setting(
        "constant",
        "published: phases, steps and radii as given, or by the paper's theorem. "
        "[default: constant]",
        choices=("constant", "theorem-4"),
    )


@dataclass(frozen=True)
class ObjectiveSettings(Solved):
    """Settings of objective-perturbation."""

    calibration: str = setting(
        "",
        "The accountant's noise, or the paper's. [default: analytic]",
        choices=("analytic", "paper"),
    )


@dataclass(frozen=True)
class LocalLabelSettings(Solved, Leveled):
    """Settings of local-label."""

    estimator: str = setting(
        "",
        "How the model is fitted to randomized labels. [default: debiased]",
        choices=("debiased", "mle", "sgd", "square"),
    )
    label_cap: int = setting(
        0, "Most labels that a user ever releases. [default: all they have]", **AT_LEAST_ONE
    )
    label_delta: float = setting(
        0.0,
        "User level: the part of delta that is spent on labels.",
        good=not_negative,
        expected="between 0 and --delta, which it is part of",
    )
    label_weights: str = setting(
        "",
        "Weight judgements by the information in their labels, or equally. [default: information]",
        choices=("information", "equal"),
    )
    sgd_steps: str = setting(
        "",
        "sgd: decaying steps and averages, or as published. [default: decaying]",
        choices=("decaying", "published"),
    )
    sum_zero: bool = setting(False, "Only allow weights that sum to zero.")
    epochs: int = setting(
        0, "Passes over the data. policy: over all labels. [default: 1]", **AT_LEAST_ONE
    )
    batch_size: int = setting(
        0, "Batch size of a step. policy: in labels. [default: 64]", former="batch", **AT_LEAST_ONE
    )


@dataclass(frozen=True)
class ExponentialSettings(Leveled):
    """Settings of exponential."""

    judgement_cap: int = setting(
        0,
        "Item level: most judgements of a user that count (the first ones). "
        f"[default: {DEFAULT_JUDGEMENT_CAP}]",
        **AT_LEAST_ONE,
    )


#: The settings of each strategy that is here, by its name, in the order in which they are offered.
OF_STRATEGIES: dict[str, type] = {
    "uls": UlsSettings,
    "dp-fedavg": FedAvgSettings,
    "els": ElsSettings,
    "group": ElsSettings,
    "adaptive": AdaptiveSettings,
    "aup": AupSettings,
    "label-moment": Solved,
    "objective-perturbation": ObjectiveSettings,
    "local-label": LocalLabelSettings,
    "exponential": ExponentialSettings,
    "nonprivate": Retained,
}


def by_setting(
    of_strategies: Mapping[str, type],
) -> dict[str, tuple["Field[Any]", tuple[str, ...]]]:
    """Return what single strategies declare: by name the field, and which strategies have it."""
    declared: dict[str, tuple[Field[Any], tuple[str, ...]]] = {}
    for strategy, own in of_strategies.items():
        for each in fields(own):
            first, names = declared.get(each.name, (each, ()))
            declared[each.name] = first, (*names, strategy)
    return declared


def parse_delta(text: str) -> float:
    """The delta that ``--delta`` names: a number, or n^-1.1, which is 0 in a ``RunConfig``.

    Raises:
        InputError: it is neither, or not between 0 and 1.
    """
    if text.replace(" ", "").replace("−", "-") in ("n^-1.1", "n**-1.1"):
        return 0.0
    try:
        delta = float(text)
    except ValueError:
        delta = math.nan
    if not 0.0 < delta < 1.0:
        raise InputError(f"--delta must be a number between 0 and 1, or n^-1.1; got {text!r}")
    return delta
