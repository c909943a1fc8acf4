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
from privacy.adjacency import Adjacency
from strategies import support
from strategies.optimizer import KINDS

Scalar = bool | int | float | str

STRATEGIES = ("uls", "dp-fedavg", "els", "group", "adaptive", "aup", "nonprivate")
VARIANTS = ("centred", "corrected", "published")
SCHEDULES = ("constant", "theorem-4")
ADAPTATIONS = ("quantile", "above-threshold")
#: The named choice ``--delta n^-1.1``: always below 1 / users.
DELTA_EXPONENT = -1.1
_ONLY_FOR = {
    "--sampling-probability": ("els", "group"),
    "--normalized": ("uls", "dp-fedavg", "els", "group"),
    "--local-steps": ("dp-fedavg",),
    "--local-rate": ("dp-fedavg",),
    "--phases": ("aup",),
    "--quantile": ("adaptive", "aup"),
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
    epsilon: float = 3.0
    delta: float = 1e-5  # 0: users^-1.1
    adjacency: str = "add-remove"
    rounds: int = 200
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
    variant: str = "centred"  # of aup
    adaptation: str = "quantile"  # of aup centred: how the radius adapts
    quantile: float = 0.0  # of adaptive and aup centred; 0: the default
    phases: int = 0  # of aup published; 0: one
    schedule: str = "constant"  # of aup published; or theorem-4
    optimizer: str = ""  # sgd, adam or adafactor; empty: the strategy's default
    learning_rate: float = 0.0  # 0: limited by noise, see strategies.optimizer
    momentum: float = 0.9
    warmup: float = 0.05
    averaging: float = 0.25
    seed: int = -1  # -1: from the operating system
    out: str = ""  # "": ~/murmuration-runs/<time>
    resume: bool = False
    timeout: float = 600.0  # seconds to wait for the nodes of a round

    def __post_init__(self) -> None:
        checks = [
            (self.strategy in STRATEGIES, "--strategy", f"one of {', '.join(STRATEGIES)}"),
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
            (_positive(self.timeout), "--timeout", "a positive number of seconds"),
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
        try:
            support.check(self.strategy, Adjacency(self.adjacency))
        except ValueError as error:
            raise InputError(str(error)) from None

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
        """With what depends on the number of users trained on: delta, if it is n^-1.1.

        n is the nominal number of users, a public constant. (Charles et al. 2024, App. F, take the
        number of examples, which is private under most adjacencies.)
        """
        return replace(self, delta=self.delta or (self.users or users) ** DELTA_EXPONENT)

    def promise(self) -> dict[str, Scalar]:
        """What a resumed run may not change: everything that decides the result or its cost."""
        free = {"out", "resume", "timeout", "seed"}
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
