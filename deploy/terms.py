"""One set of numbers for a deployment: what its runs are, and what its clients are asked to allow.

``murmuration deploy init`` writes from it

    server/run.toml             the defaults of ``deploy run``
    clients/NAME/run.toml       the same, for the owner: ``deploy client --check`` compares
    clients/NAME/policy.toml    rules that allow one run by these numbers, and no second

so that a run by default is answered by policies as they were handed out. A policy is its owner's to
edit. The server states the real request of a run when it begins, whatever these files contain.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tomli_w

from murmuration.client.agent.policy import Policy
from murmuration.deploy.commands import template
from murmuration.preference.data.errors import InputError
from murmuration.privacy.regular_files import read_regular
from murmuration.strategies.config import SETTINGS, RunConfig, by_field
from murmuration.strategies.settings.sampling import usual_cohort
from murmuration.strategies.settings.toml_text import parse_toml
from murmuration.strategies.settings.varied import value_of
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE
from murmuration.strategies.uls import DEFAULT_CLIP

#: The file of a run's numbers, in the server's folder and in each client's.
RUN = "run.toml"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The numbers of a deployment's usual run.

    Attributes:
        users: the nominal number of users to train on, a public constant.
        cohort: how many of them take part in a round on average; 0: by
            ``usual_cohort``.
        epsilon: of one run, which is all that a policy pays for.
        delta: of the run, and at which the policy counts.
        rounds: of one run.
        clip_norm: the length of one user's part of a round.
        group_size: the most judgements of a user that count in a round.
        repeats: how often a round, or the accuracy at the end, is answered where a server crashed.

    Raises InputError, naming the option, for numbers of which there is no run or no policy.
    """

    users: int
    cohort: int = 0
    epsilon: float = 3.0
    delta: float = 1e-6
    rounds: int = 200
    clip_norm: float = DEFAULT_CLIP
    group_size: int = DEFAULT_GROUP_SIZE
    repeats: int = 2

    def __post_init__(self) -> None:
        if not self.cohort:
            object.__setattr__(self, "cohort", usual_cohort(self.users))
        for name in ("users", "rounds", "group_size", "repeats"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"--{name.replace('_', '-')} must be at least 1; got {getattr(self, name)}"
                )
        if self.cohort > self.users:
            raise InputError(f"--cohort {self.cohort} is more than --users {self.users}")
        if not self.clip_norm > 0.0:
            raise InputError(f"--clip-norm must be above 0; got {self.clip_norm}")
        _ = self.run, self.policy

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a run by these numbers, by their names in ``RunConfig``."""
        chosen = {field.name: getattr(self, field.name) for field in fields(self)}
        del chosen["repeats"]
        return {"strategy": "uls", "adjacency": Policy().adjacency, **chosen}

    @property
    def run(self) -> RunConfig:
        """A run by these numbers: its users, and how often it is right about some held out."""
        return usual_run(self.settings)

    @property
    def policy(self) -> Policy:
        """The rules that one such run fits, with or without users held out."""
        return Policy(
            strategies=(self.run.strategy,),
            adjacency=self.run.adjacency,
            max_epsilon=self.epsilon,
            delta=self.delta,
            max_clip=self.clip_norm,
            max_group_size=self.group_size,
            max_rounds=self.rounds * self.repeats,
            max_repeats=self.repeats,
            max_evaluations=self.repeats if self.run.hold_out else 0,
        )

    def run_text(self) -> str:
        """``run.toml``."""
        return template("run.toml") + tomli_w.dumps(self.settings)

    def policy_text(self) -> str:
        """``policy.toml``: the rules with what each of them means."""
        return template("policy.toml").format(
            **{**asdict(self.policy), "strategy": self.policy.strategies[0]}
        )


def usual_run(settings: dict[str, Any]) -> RunConfig:
    """A run with these settings, others by default; its nodes have data of their own.

    InputError for settings that are none.
    """
    return RunConfig.from_run_config({"data": "", **settings})


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a ``run.toml``, checked.

    Raises:
        InputError: it cannot be read, or there is no run with them.
    """
    try:
        settings = by_field(parse_toml(read_regular(path).decode()))
        usual_run(settings)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be used: {error}") from None
    return settings


def with_usual(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return ``settings``, and for the others those of the deployment, in its ``run.toml``.

    Of another strategy than the deployment's only who is there and what it may cost.
    """
    usual = read_settings(path)
    if settings.get("strategy", usual.get("strategy")) != usual.get("strategy"):
        shared = ("users", "cohort", "epsilon", "delta", "adjacency")
        usual = {name: usual[name] for name in shared if name in usual}
    return {**usual, **settings}


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """Return ``name=value`` texts as settings of a run.

    Raises:
        InputError: a name is no setting's, or a value none of its.
    """
    result: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        field = SETTINGS.get(name.strip().replace("-", "_"))
        if not separator or field is None:
            raise InputError(f"--set {text}: use NAME=VALUE with one of {', '.join(SETTINGS)}")
        result[field.name] = value_of(field.name, value, f"--set {text}")
    return result
