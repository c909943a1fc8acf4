"""What a run is asked to do: one frozen object, from the command line or from Flower's run config.

Every field is a public parameter except ``seed``. Names in the run config are the field names with
dashes; the same keys stand in pyproject.toml, because Flower refuses an override of a key that does
not exist there.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from preference.judgements import InputError
from preference.language_base import TRAINED
from preference.models import MODELS
from privacy.adjacency import Adjacency
from server import noise
from strategies import secure_rounds, support
from strategies.optimizer import KINDS

Scalar = bool | int | float | str

STRATEGIES = (
    "uls",
    "dp-fedavg",
    "els",
    "group",
    "adaptive",
    "aup",
    "label-moment",
    "objective-perturbation",
    "local-label",
    "nonprivate",
)
VARIANTS = ("centred", "corrected", "published")
SCHEDULES = ("constant", "theorem-4")
ADAPTATIONS = ("quantile", "above-threshold")
CALIBRATIONS = ("analytic", "paper")
ESTIMATORS = ("debiased", "mle", "sgd", "square")
LEVELS = ("user", "item")
LABEL_WEIGHTS = ("information", "equal")
SGD_STEPS = ("decaying", "published")
#: Strategies that solve for the model, and how many rounds they may take; everybody takes part.
FEW_ROUNDS: dict[str, tuple[int, ...]] = {
    "label-moment": (1, 2),
    "objective-perturbation": (1,),
    "local-label": (1,),
}
#: Options about steps and sampling, which have no meaning there.
_ABOUT_STEPS = ("--learning-rate", "--optimizer", "--group-size")
_ROUNDS = 200
#: Options about a language model.
_WITH_BASE = (
    "--train",
    "--lora-rank",
    "--lora-targets",
    "--max-tokens",
    "--batch-tokens",
    "--user-memory",
)
#: The named choice ``--delta n^-1.1``: always below 1 / users.
DELTA_EXPONENT = -1.1
_ONLY_FOR = {
    "--sampling-probability": ("els", "group"),
    "--normalized": ("uls", "dp-fedavg", "els", "group"),
    "--local-steps": ("dp-fedavg",),
    "--local-rate": ("dp-fedavg",),
    "--phases": ("aup",),
    "--quantile": ("adaptive", "aup"),
    "--ridge": ("label-moment", "objective-perturbation", "local-label"),
    "--ball": ("label-moment", "objective-perturbation", "local-label"),
    "--estimator": ("local-label",),
    "--level": ("local-label",),
    "--label-weights": ("local-label",),
    "--sgd-steps": ("local-label",),
    "--label-cap": ("local-label",),
    "--label-delta": ("local-label",),
    "--sum-zero": ("local-label",),
    "--calibration": ("objective-perturbation",),
    "--retain": ("uls", "dp-fedavg", "adaptive", "aup", "nonprivate"),
}


@dataclass(frozen=True)
class RunConfig:
    """The settings of one run. 0 or "" stand for "choose for me" where the comment says so.

    Raises InputError, naming the option, for a value that no run could use.
    """

    data: str = "sims.population:train"
    test: str = ""  # public judgements of other users; empty: hold out a share of the users
    columns: str = ""  # field=column,…
    on_bad_rows: str = "refuse"
    heldout: float = 0.2  # share of users held out when there is no test
    strategy: str = "uls"
    model: str = "btl"  # of preferences
    epsilon: float = 3.0
    delta: float = 1e-5  # 0: users^-1.1
    adjacency: str = "add-remove"
    rounds: int = 0  # 0: 200, or one where the strategy takes one or two
    cohort: int = 500
    users: int = 0  # nominal number of users to train on; 0: as many as register
    clip: float = 0.0  # 0: the strategy's default
    group_size: int = 0  # 0: the strategy's default
    retain: int = 0  # most judgements of a user in the whole run; 0: any number
    sampling_probability: float = 0.0  # of a judgement (els, group); 0: as much work as the cohort
    normalized: bool = False  # divide by the clip norm
    local_steps: int = 0  # of dp-fedavg; 0: its default
    local_rate: float = 0.0  # of dp-fedavg; 0: its default
    features: str = "hashing"
    base: str = ""  # a language model to learn the reward with; empty: a linear head on features
    train: str = ""  # of the base: head, lora or full; empty: lora
    lora_rank: int = 0  # 0: 16
    lora_targets: str = ""  # layers that LoRA changes, comma-separated; empty: by architecture
    max_tokens: int = 0  # of prompt and response together; 0: 256
    batch_tokens: int = 0  # computed at a time; 0: as suits the device
    user_memory: int = 0  # MiB for single users' gradients, at a time; 0: 512
    variant: str = "centred"  # of aup
    adaptation: str = "quantile"  # of aup centred: how the radius adapts
    quantile: float = 0.0  # of adaptive and aup centred; 0: the default
    phases: int = 0  # of aup published; 0: one
    schedule: str = "constant"  # of aup published; or theorem-4
    ridge: float = 0.0  # of what is solved for; 0: by public features and noise
    ball: float = 0.0  # the most that the length of weights solved for may be; 0: any
    estimator: str = ""  # of local-label; empty: debiased
    level: str = ""  # of local-label: user, or item for an epsilon per label; empty: user
    label_cap: int = 0  # of local-label: most labels a user ever tells; 0: all they have
    label_delta: float = 0.0  # of local-label: how much of delta user-level labels are told with
    label_weights: str = ""  # of local-label: information or equal; empty: information
    sgd_steps: str = ""  # of local-label --estimator sgd: decaying or published; empty: decaying
    sum_zero: bool = False  # of local-label: weights sum to zero
    calibration: str = ""  # of objective-perturbation: analytic or paper; empty: analytic
    optimizer: str = ""  # sgd, adam or adafactor; empty: the strategy's default
    learning_rate: float = 0.0  # 0: limited by noise, see strategies.optimizer
    momentum: float = 0.9
    warmup: float = 0.05
    averaging: float = 0.25
    seed: int = -1  # -1: from the operating system
    out: str = ""  # "": ~/murmuration-runs/<time>
    resume: bool = False
    noise: str = ""  # discrete or gaussian; empty: discrete where it can be, see server.noise
    secure_aggregation: bool = False  # the server sees the cohort's sum only
    timeout: float = 600.0  # seconds to wait for the nodes of a round
    least_nodes: int = 0  # wait for so many nodes before the first round; 0: for none
    refresh: int = 0  # rounds after which nodes are asked again whom they host; 0: never

    def __post_init__(self) -> None:
        if self.rounds == 0:
            few = FEW_ROUNDS.get(self.strategy)
            object.__setattr__(self, "rounds", few[0] if few else _ROUNDS)
        checks = [
            (self.strategy in STRATEGIES, "--strategy", f"one of {', '.join(STRATEGIES)}"),
            (self.model in MODELS, "--model", f"one of {', '.join(MODELS)}"),
            (_positive(self.epsilon), "--epsilon", "a positive number"),
            (
                0.0 <= self.delta < 1.0,
                "--delta",
                "between 0 and 1, well below 1 / users, or n^-1.1",
            ),
            (self.adjacency in set(Adjacency), "--adjacency", f"one of {', '.join(Adjacency)}"),
            (self.rounds >= 1, "--rounds", "at least 1"),
            (self.cohort >= 1, "--cohort", "at least 1"),
            (self.users >= 0, "--users", "a positive number"),
            (self.clip == 0 or _positive(self.clip), "--clip", "a positive number"),
            (self.group_size >= 0, "--group-size", "at least 1"),
            (0.0 < self.heldout < 1.0, "--heldout", "a share between 0 and 1"),
            (self.on_bad_rows in ("refuse", "skip"), "--on-bad-rows", "refuse or skip"),
            (self.optimizer in ("", *KINDS), "--optimizer", f"one of {', '.join(KINDS)}"),
            (self.retain >= 0, "--retain", "at least 1"),
            (
                0.0 <= self.sampling_probability <= 1.0,
                "--sampling-probability",
                "between 0 and 1",
            ),
            (self.variant in VARIANTS, "--variant", f"one of {', '.join(VARIANTS)}"),
            (self.phases >= 0, "--phases", "at least 1"),
            (self.schedule in SCHEDULES, "--schedule", f"one of {', '.join(SCHEDULES)}"),
            (self.local_steps >= 0, "--local-steps", "at least 1"),
            (
                self.local_rate == 0 or _positive(self.local_rate),
                "--local-rate",
                "a positive number",
            ),
            (self.ridge == 0 or _positive(self.ridge), "--ridge", "a positive number"),
            (self.ball == 0 or _positive(self.ball), "--ball", "a positive number"),
            (self.estimator in ("", *ESTIMATORS), "--estimator", f"one of {', '.join(ESTIMATORS)}"),
            (self.level in ("", *LEVELS), "--level", "user or item"),
            (self.label_cap >= 0, "--label-cap", "at least 1"),
            (
                0.0 <= self.label_delta <= (self.delta or self.label_delta),
                "--label-delta",
                "between 0 and --delta, which it is part of",
            ),
            (
                self.label_weights in ("", *LABEL_WEIGHTS),
                "--label-weights",
                f"one of {', '.join(LABEL_WEIGHTS)}",
            ),
            (self.sgd_steps in ("", *SGD_STEPS), "--sgd-steps", f"one of {', '.join(SGD_STEPS)}"),
            (
                self.calibration in ("", *CALIBRATIONS),
                "--calibration",
                f"one of {', '.join(CALIBRATIONS)}",
            ),
            (self.adaptation in ADAPTATIONS, "--adaptation", f"one of {', '.join(ADAPTATIONS)}"),
            (0.0 <= self.quantile < 1.0, "--quantile", "between 0 and 1"),
            (
                self.learning_rate == 0 or _positive(self.learning_rate),
                "--learning-rate",
                "a positive number",
            ),
            (0.0 <= self.momentum < 1.0, "--momentum", "at least 0 and below 1"),
            (0.0 <= self.warmup <= 1.0, "--warmup", "a share of the rounds, 0 to 1"),
            (0.0 <= self.averaging <= 1.0, "--averaging", "a share of the rounds, 0 to 1"),
            (self.seed >= -1, "--seed", "a non-negative integer, or left out"),
            (self.noise in ("", *noise.NOISES), "--noise", f"one of {', '.join(noise.NOISES)}"),
            (_positive(self.timeout), "--timeout", "a positive number of seconds"),
            (self.least_nodes >= 0, "--least-nodes", "at least 0"),
            (self.refresh >= 0, "--refresh", "at least 0"),
            (self.train in ("", *TRAINED), "--train", f"one of {', '.join(TRAINED)}"),
            (self.lora_rank >= 0, "--lora-rank", "at least 1"),
            (self.max_tokens >= 0, "--max-tokens", "at least 1"),
            (self.batch_tokens >= 0, "--batch-tokens", "at least 1"),
            (self.user_memory >= 0, "--user-memory", "at least 1"),
        ]
        for good, option, expected in checks:
            if not good:
                value = getattr(self, option[2:].replace("-", "_"))
                raise InputError(f"{option} must be {expected}; got {value!r}")
        for option, strategies in _ONLY_FOR.items():
            value = getattr(self, option[2:].replace("-", "_"))
            if value and self.strategy not in strategies:
                raise InputError(
                    f"{option} is for --strategy {' and '.join(strategies)}, not {self.strategy}"
                )
        for option in _WITH_BASE if not self.base else ():
            if getattr(self, option[2:].replace("-", "_")):
                raise InputError(f"{option} is about a language model: name one with --base")
        if few := FEW_ROUNDS.get(self.strategy):
            self._check_few(few)
        if self.refresh and not self.users:
            raise InputError(
                "--refresh lets users come and go; state their nominal number with --users, which "
                "fixes the sampling probability for the whole run"
            )
        try:
            support.check(self.strategy, Adjacency(self.adjacency))
            noise.check(self)
            if self.secure_aggregation:
                secure_rounds.check(self.strategy, self.variant, Adjacency(self.adjacency))
        except ValueError as error:
            raise InputError(str(error)) from None

    def _check_few(self, few: tuple[int, ...]) -> None:
        """Refuse what has no meaning where the model is solved for."""
        if self.rounds not in few:
            raise InputError(
                f"--strategy {self.strategy} solves for the model in {' or '.join(map(str, few))} "
                f"rounds, not {self.rounds}; leave out --rounds, or set it to {few[0]}"
            )
        if self.refresh:
            raise InputError(
                f"--refresh has no meaning for --strategy {self.strategy}, whose users are fixed "
                "when it starts; leave it out"
            )
        for option in _ABOUT_STEPS:
            if getattr(self, option[2:].replace("-", "_")):
                raise InputError(
                    f"{option} has no meaning for --strategy {self.strategy}, which solves for the "
                    "model from all judgements at once; leave it out"
                )

    @classmethod
    def from_run_config(cls, run_config: Mapping[str, Scalar]) -> "RunConfig":
        """From Flower's flat run config; unknown keys and wrong types raise InputError."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in run_config.items():
            name = key.replace("-", "_")
            if name not in fields:
                raise InputError(f"unknown setting {key!r}; known: {', '.join(sorted(fields))}")
            default = fields[name].default
            if isinstance(default, float) and type(value) is int:
                value = float(value)
            if type(value) is not type(default):
                raise InputError(
                    f"setting {key!r} must be a {type(default).__name__}; got {value!r}"
                )
            values[name] = value
        return cls(**values)

    def to_run_config(self) -> dict[str, Scalar]:
        """As Flower's flat run config."""
        return {key.replace("_", "-"): value for key, value in dataclasses.asdict(self).items()}

    def settled(self, users: int) -> "RunConfig":
        """With what depends on the number of users trained on: delta, if it is n^-1.1, and the
        cohort, if everybody takes part.

        n is the nominal number of users, a public constant. (Charles et al. 2024, App. F, take the
        number of examples, which is private under most adjacencies.)
        """
        delta = self.delta or (self.users or users) ** DELTA_EXPONENT
        cohort = users if self.strategy in FEW_ROUNDS else self.cohort
        return replace(self, delta=delta, cohort=cohort)

    def promise(self) -> dict[str, Scalar]:
        """What a resumed run may not change: everything that decides the result or its cost."""
        free = {"out", "resume", "timeout", "seed", "least_nodes"}
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in free}


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


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
