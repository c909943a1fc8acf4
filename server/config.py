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

from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.schema import Schema
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import hold_out
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.server.config_checks import check
from murmuration.strategies.settings import FEW_ROUNDS

Scalar = bool | int | float | str

_ROUNDS = 200
#: The named choice ``--delta n^-1.1``: always below 1 / users.
DELTA_EXPONENT = -1.1


@dataclass(frozen=True)
class RunConfig:
    """The settings of one run. 0 or "" stand for "choose for me" where the comment says so.

    Raises InputError, naming the option, for a value that no run could use.
    """

    data: str = "murmuration.population:train"
    test: str = ""  # public judgements of other users; empty: hold out a share of the users
    columns: str = ""  # field=column,…
    on_bad_rows: str = "refuse"
    kind: str = "pairs"  # of judgements, declared: pairs, top-1 or ranking
    responses: int = 0  # the most of a judgement, declared; 0: the two of a pair
    labels: str = "true"  # declared: true, or randomized where every row has its flip probability
    most_judgements: int = Schema.most_judgements  # of one user that a node keeps
    most_characters: int = Schema.most_characters  # of a text
    heldout: float = 0.2  # share of users held out when there is no test
    heldout_epsilon: float = 0.0  # what is said of them may cost; 0: by adjacency, see hold_out
    exact_heldout: bool = False  # say it without noise, outside the guarantee
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
    base: str = ""  # a language model to learn with; empty: a linear head on features
    task: str = "reward"  # what is learnt: reward, text or sft
    as_published: bool = False  # sft: from preferred responses only
    train: str = ""  # of the base: head, lora or full; empty: lora
    lora_rank: int = 0  # 0: 16
    lora_targets: str = ""  # layers that LoRA changes, comma-separated; empty: by architecture
    max_tokens: int = 0  # of prompt and response together; 0: 256
    batch_tokens: int = 0  # computed at a time; 0: as suits the device
    batch_users: bool = False  # nodes may compute several users at once: empirical isolation
    user_memory: int = 0  # MiB for single users' gradients, with batch_users; 0: 512
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
    learning_rate: float = 0.0  # 0: limited by noise, see murmuration.strategies.optimizers
    momentum: float = 0.9
    warmup: float = 0.05
    averaging: float = 0.25
    seed: int = -1  # -1: from the operating system
    out: str = ""  # "": ~/murmuration-runs/<time>
    resume: bool = False
    accept_ledger_loss: bool = False  # go on with a damaged ledger: the plan is charged again
    noise: str = ""  # discrete, gaussian or distributed; empty: see murmuration.strategies.noise
    honest_nodes: int = 0  # of distributed noise: how many add theirs and stay; 0: by the protocol
    secure_aggregation: bool = False  # the server sees the cohort's sum only
    timeout: float = 0.0  # seconds to wait for the nodes of a round; 0: as a probe says
    least_nodes: float = 0.5  # online before a round's coins are drawn: a number or (< 1) a share
    registration: str = ""  # file of whom deployed nodes may host; empty: one user each
    refresh: int = 0  # rounds after which nodes are asked again whom they host; 0: never

    def __post_init__(self) -> None:
        if self.rounds == 0:
            few = FEW_ROUNDS.get(self.strategy)
            object.__setattr__(self, "rounds", few[0] if few else _ROUNDS)
        check(self)

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

    @property
    def schema(self) -> Schema:
        """What the data are declared to hold."""
        return Schema.of(self.to_run_config())

    def to_run_config(self) -> dict[str, Scalar]:
        """As Flower's flat run config."""
        return {key.replace("_", "-"): value for key, value in dataclasses.asdict(self).items()}

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
    def hold_out(self) -> HoldOut | None:
        """How users are held out; None if nobody is, or nothing said of them is protected.

        See ``privacy.mechanisms.hold_out``.
        """
        if self.test or self.exact_heldout or self.strategy == "nonprivate":
            return None
        adjacency = Adjacency(self.adjacency)
        return hold_out.usual(self.heldout, self.epsilon, adjacency, self.heldout_epsilon)

    def settled(self, registered: int) -> "RunConfig":
        """With what depends on how many users registered: delta, if it is n^-1.1, and the cohort,
        if everybody takes part.

        n is the nominal number of users, a public constant. (Charles et al. 2024, App. F, take the
        number of examples, which is private under most adjacencies.)
        """
        users = self.trained_on(registered)
        delta = self.delta or users**DELTA_EXPONENT
        cohort = users if self.strategy in FEW_ROUNDS else self.cohort
        return replace(self, delta=delta, cohort=cohort)

    def promise(self) -> dict[str, Scalar]:
        """What a resumed run may not change: everything that decides the result or its cost."""
        free = {
            "out",
            "resume",
            "accept_ledger_loss",
            "timeout",
            "seed",
            "least_nodes",
            "registration",
        }
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
