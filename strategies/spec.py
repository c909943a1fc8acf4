"""The definition of a strategy: one object, from which everything else about strategies derives.

A strategy's file holds its plan, its settings, its server half, its node half, and at its end one
``Strategy`` that says what it supports and why not more. ``strategies.registry`` lists them.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from flwr.serverapp import Grid

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.disclosure import Released
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.promise import Promise
from murmuration.privacy.theorems import Mechanism, Status, Theorem, Unit, listed
from murmuration.strategies.base import CohortStrategy, Participants, PrivateLog
from murmuration.strategies.noise.choice import NoiseChoice, choose_noise
from murmuration.strategies.planning import Solve, not_planned
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.declaration import about, declared, option
from murmuration.strategies.settings.own import NoSettings
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.steps.optimizers import ServerOptimizer, SolvedModel
from murmuration.strategies.steps.step_size import steps_of
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE, CohortPlan, SumPlan

if TYPE_CHECKING:
    from murmuration.preference.language.base.settings import BaseSettings

#: What a release can give: JSON.
Value = TypeVar("Value", int, list[int])

#: Gives a number of a request by name, or what stands for one that is missing.
Number = Callable[[str, float], float]


def clip_norm(number: Number) -> float:
    """The bound on one user's part of a sum of clipped vectors."""
    return number("clip-norm", math.inf)


def clip_norm_of_each(number: Number) -> float:
    """The bound on one user's part of a sum of clipped examples."""
    return number("clip-norm", math.inf) * number("group-size", math.inf)


def grid_of_clip(number: Number) -> Mapping[str, float]:
    """The grid of a sum of clipped vectors; ValueError where there is none for this clip norm."""
    return {"sum": grid.step_for(number("clip-norm", math.inf))}


def grid_and_count(number: Number) -> Mapping[str, float]:
    """The same, and the grid step of the number of users within a radius, less "middle" for
    each.
    """
    if number("middle", math.nan) % grid.COUNT_STEP != 0.0:  # also of what is no number
        raise ValueError("counts less this middle are on no grid")
    return {**grid_of_clip(number), "within": grid.COUNT_STEP}


def no_grid(number: Number) -> Mapping[str, float]:
    """Sums in floating point."""
    return {}


@dataclass(frozen=True)
class NodeHalf:
    """A node's computation, and the bound on one user's part of it.

    Attributes:
        client_update: a pure function from examples, the request, the users' random names and the
            source of draws to named sums.
        length: from a request's numbers, the bound on the length of one user's part. None: there is
            no bound, and no owner's policy allows it.
        steps: from a request's numbers, the grid step of each discrete sum by name. Only this
            defines a sum's grid: no request names one.
        whole: whether all judgements of a user count, whatever group size a request names.
        model: whether it uses the model at all.
    """

    client_update: Callable[[Any, TrainRequest, np.ndarray, Randomness], Mapping[str, np.ndarray]]
    length: Callable[[Number], float] | None
    steps: Callable[[Number], Mapping[str, float]] = no_grid
    whole: bool = False
    model: bool = True

    @property
    def of_examples(self) -> bool:
        """True if the clip norm is that of a single example."""
        return self.length is clip_norm_of_each

    @property
    def counts(self) -> bool:
        """True if it also returns the number of users within a radius."""
        return self.steps is grid_and_count


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """A strategy, with everything that the rest of the project needs of it.

    Attributes:
        name: of ``--strategy``.
        help: one line.
        build: from a run's settings to the strategy and its description for the report; spends only
            the cost of choosing parameters.
        node_halves: the nodes' computations, by their names in requests. The first is what an
            owner's policy means by ``name``.
        settings: a frozen dataclass of those that are its own.
        theorems: those about the release of a round, one for each noise and sampling. All else
            is refused.
        applies: whether a theorem is about a run with these settings of its own.
        rounds: the possible numbers, if it solves for the model with all users; empty: any.
        everybody: whether all users are in each of its steps, so that there is no cohort to choose.
        rules: about its own settings.
        check: InputError, naming the option, for numbers that do not go together.
        solve: for ``murmuration plan``.
        fits_policies: of one that solves, whether that can be a policy.
        true_labels: whether labels that were randomized before are of no use to it: a node with
            such is left out, unless all have them.
        trains: whether it trains a model; False: it chooses an existing one.
        lineage: from the config of the model, and settings, to the runs behind models that it names
            beside its base; None if it names none.
        features: from settings to the config of features of its own, for
            ``preference.bases.base_of``; None if it uses those of --base or --features.
    """

    name: str
    help: str
    build: "Callable[[RunContext, Ledger], BuiltStrategy]"
    node_halves: Mapping[str, NodeHalf] = field(default_factory=dict)
    settings: type = NoSettings
    theorems: tuple[Theorem, ...] = ()
    applies: Callable[[Any, Theorem], bool] = lambda own, theorem: True
    rounds: tuple[int, ...] = ()
    everybody: bool = False
    rules: tuple[Rule, ...] = ()
    check: Callable[[Settings], None] = lambda settings: None
    solve: Solve = not_planned
    fits_policies: bool = False
    true_labels: bool = False
    trains: bool = True
    lineage: Callable[[Mapping[str, Any], Settings], Promise | None] | None = None
    features: Callable[[Settings], dict[str, Any] | None] | None = None

    def theorems_of(self, own: object) -> tuple[Theorem, ...]:
        """The theorems about a run with these settings of its own."""
        return tuple(row for row in self.theorems if self.applies(own, row))

    def adds(self, mechanism: Mechanism, own: object) -> bool:
        """True where a theorem is about a run with such noise."""
        return any(row.mechanism is mechanism for row in self.theorems_of(own))

    def masks(self, own: object) -> bool:
        """True where its sums are on a grid, so that nodes can mask them."""
        grids = any(half.steps is not no_grid for half in self.node_halves.values())
        return grids and any(row.unit.sums for row in self.theorems_of(own))

    def is_proven(self, own: object) -> bool:
        """True where its guarantee is proven, and not only claimed."""
        theorems = self.theorems_of(own)
        return bool(theorems) and all(row.status is not Status.CLAIMED for row in theorems)

    @property
    def adjacencies(self) -> frozenset[Adjacency]:
        """Those under which there is a guarantee, with the settings that it needs."""
        return _under(self.theorems)

    def as_set(self, own: object) -> str:
        """The strategy with those of its own settings that are not defaults, as options."""
        given = [f"--strategy {self.name}"]
        for each in declared(self.settings):
            if (value := getattr(own, each.name)) != each.default:
                given.append(f"{option(each.name)} {value}")
        return " ".join(given)

    @property
    def samples(self) -> bool:
        """True if a round has a sampled cohort instead of all users."""
        return not (self.rounds or self.everybody)

    @property
    def has_model(self) -> bool:
        """True if it learns a model, which could be evaluated on held-out users."""
        halves = self.node_halves.values()
        return not halves or any(half.model for half in halves)

    @property
    def local(self) -> bool:
        """True where labels are randomized before they leave their users, and nothing is summed."""
        return any(row.unit is Unit.EACH_LABEL for row in self.theorems)

    @property
    def averages_users(self) -> bool:
        """True if a user's judgements enter as one averaged gradient, of any loss."""
        one_by_one = any(half.of_examples for half in self.node_halves.values())
        return not (self.rounds or self.local or one_by_one)

    def check_adjacency(self, adjacency: Adjacency, own: object) -> None:
        """Unsupported (a ValueError), saying what to use instead, if there is no guarantee."""
        theorems = self.theorems_of(own)
        if adjacency in (under := _under(theorems)):
            return
        ways = [f"--adjacency {listed(under)}"] if under else []
        ways += self._other_settings(own, adjacency)
        of_what = theorems[0] if theorems else "these settings together"
        raise Unsupported(
            f"{self.as_set(own)} has no guarantee under {adjacency}: nothing is proven there of "
            f"{of_what}; use {', or '.join([*ways, 'another strategy'])}"
        )

    def _other_settings(self, own: Any, adjacency: Adjacency) -> Iterator[str]:
        """Single changes of its own settings with which there is a guarantee."""
        for each in declared(self.settings):
            for choice in about(each).choices:
                changed = replace(own, **{each.name: choice})
                if changed != own and adjacency in _under(self.theorems_of(changed)):
                    yield f"{option(each.name)} {choice}"


def _under(theorems: Iterable[Theorem]) -> frozenset[Adjacency]:
    return frozenset[Adjacency]().union(*(row.adjacencies for row in theorems))


def described_base(config: Settings) -> dict[str, Any]:
    """The config of the model that --base or --features name, for `preference.bases.base_of`.

    Raises:
        InputError: settings that do not go together, a folder that is not there, or a start that
            cannot be used.
    """
    from murmuration.preference.features.hashing import parse_features
    from murmuration.preference.features.language_head import KIND as HEAD
    from murmuration.preference.features.language_head import SETTINGS

    if not config.base:
        features = parse_features(config.features, config.length, config.items)
        if not config.start:
            return features
        from murmuration.preference.kinds.starting import described_features

        return described_features(features, config.start)
    settings = base_settings(config)
    if settings.train == "head":
        of_head = {name: value for name, value in settings.described.items() if name in SETTINGS}
        return {"kind": HEAD, **of_head}
    return settings.to_config()


def base_settings(config: Settings, **instead: Any) -> "BaseSettings":
    """The settings of the base that --base names, with the options about it; ``instead`` overrides
    them.

    Raises:
        InputError: settings that do not go together, or a folder that is not there.
    """
    from murmuration.preference.base_names import resolve_base
    from murmuration.preference.language.base.settings import BaseSettings
    from murmuration.preference.language.reward import system_of

    train = instead.get("train", config.train)
    given = {
        "train": config.train,
        "rank": config.lora_rank,
        "targets": config.lora_targets,
        "layers": config.lora_layers or ("auto" if train in ("", "lora") else ""),
        "once_per_text": config.once_per_text,
        "max_tokens": config.max_tokens,
        "system": config.system,
        "batch_tokens": config.batch_tokens,
        "task": config.task,
        "dtype": config.dtype,
        "checkpointing": config.checkpointing,
        "loss": config.loss,
        "beta": config.beta,
        "r_max": config.r_max,
        **instead,
    }
    for name in ("features", "length"):
        if getattr(config, name) != getattr(Settings, name):
            raise InputError(f"--{name} is for a linear head: leave it out, or --base")
    chosen = {name: value for name, value in given.items() if value}
    path = resolve_base(config.base)
    if config.task != "text":
        chosen = {"system": system_of(path), **chosen}
    return BaseSettings(path=path, **chosen)


#: Gives what a release of this name gave, which a resumed run is not to ask for again.
ReleaseCache = Callable[[str, Callable[[], Released[Any]]], Any]


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Inputs of a strategy besides its plan.

    Attributes:
        start_D: θ where training begins, float32, public.

    Raises:
        ValueError: the plan would rely on a random hold-out that did not take place.
    """

    strategy: Strategy
    config: Settings
    participants: Participants
    source: Randomness
    features: str
    start_D: np.ndarray
    log: PrivateLog
    grid: Grid
    once: ReleaseCache

    def __post_init__(self) -> None:
        tossed, hold_out = self.participants.share, self.hold_out
        if hold_out and hold_out.share != tossed:
            raise ValueError(
                f"the noise would be made for users who are held out with probability "
                f"{hold_out.share:g}, and they are with {tossed:g}: name a test, or hold them out"
            )

    @property
    def hold_out(self) -> HoldOut | None:
        """The hold-out mechanism if users are held out at random."""
        return self.config.hold_out

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.start_D)

    @property
    def users(self) -> int:
        """The nominal number of users to train on."""
        return self.config.trained_on(len(self.participants.registry))

    @property
    def sizes(self) -> dict[str, Any]:
        """The settings of every ``SumPlan``, except how much noise it has."""
        config = self.config
        return {
            "users": self.users,
            "rounds": config.rounds,
            "delta": config.delta,
            "adjacency": Adjacency(config.adjacency),
            "hold_out": self.hold_out,
            "discrete": self.noise.on(self.dimension),
        }

    @property
    def cohort_sizes(self) -> dict[str, Any]:
        """The settings of every ``CohortPlan``, except how much noise it has."""
        config = self.config
        return {
            **self.sizes,
            "cohort": config.cohort,
            "group_size": config.group_size or DEFAULT_GROUP_SIZE,
        }

    @cached_property
    def noise(self) -> NoiseChoice:
        """The kind of noise that is drawn."""
        nodes = len(self.participants.registry.nodes)
        return choose_noise(
            self.config, self.strategy, self.dimension, seeded=self.source.seeded, nodes=nodes
        )

    def optimizer(self, kind: str, noise: float, ceiling: float) -> ServerOptimizer:
        """The server optimizer, starting from ``start_D``: from zero, unless it is given, where
        every answer is worth the same.

        ``kind`` and ``ceiling`` are the strategy's defaults, ``noise`` that of one round's average.
        """
        settings = steps_of(self.config, kind, noise, ceiling)
        return ServerOptimizer(settings, self.start_D)

    def arguments(self, optimizer: ServerOptimizer | SolvedModel) -> dict[str, Any]:
        """Arguments of every ``CohortStrategy``."""
        return {
            "participants": self.participants,
            "optimizer": optimizer,
            "source": self.source,
            "features": self.features,
            "model": self.config.model,
            "log": self.log,
            "timeout": self.config.timeout,
            "min_nodes": self.config.min_nodes,
            "masked": self.config.secure_aggregation,
            "shared_passes": self.config.shared_passes,
        }

    def built(
        self,
        strategy: Callable[..., CohortStrategy],
        plan: CohortPlan,
        ledger: Ledger,
        *,
        ceiling: float,
        moving: float | None = None,
    ) -> "BuiltStrategy":
        """A strategy of steps on sampled users' averages, with gradient descent as its default.

        ``ceiling`` is the largest default step size, ``moving`` the noise of an average as far as
        it moves the model, if that is not the plan's.
        """
        optimizer = self.optimizer("sgd", plan.noise if moving is None else moving, ceiling)
        return BuiltStrategy.of(
            strategy(plan, ledger, **self.arguments(optimizer)),
            plan,
            group_size=plan.group_size,
            bytes_per_user=cohort_bytes(self),
        )


@dataclass(frozen=True, kw_only=True)
class BuiltStrategy:
    """A strategy with the figures that its report states."""

    strategy: CohortStrategy
    charges: dict[Event, int]
    noise_multiplier: float
    clip_norm: float | None
    group_size: int
    noise: float
    #: Expected number of users' gradients computed in the whole run.
    gradients: float
    #: Expected bytes to and from one user on a node of their own, in the whole run.
    bytes_per_user: float
    #: For the result: what else there is to say of the plan, all of it public.
    about: Mapping[str, str | int | float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        strategy: CohortStrategy,
        plan: SumPlan,
        *,
        group_size: int,
        bytes_per_user: float,
    ) -> "BuiltStrategy":
        """A built strategy with the figures of its plan, which spends the whole budget."""
        return cls(
            strategy=strategy,
            charges=plan.charges,
            noise_multiplier=plan.noise_multiplier,
            clip_norm=plan.clip_norm,
            group_size=group_size,
            noise=plan.noise,
            gradients=plan.gradients,
            bytes_per_user=bytes_per_user,
        )


def sum_bytes(context: RunContext, vectors: int = 1) -> int:
    """The bytes of each number of a sum of ``vectors`` clipped vectors, as a node sends it."""
    return 4 if grid.short(vectors) and not context.config.secure_aggregation else 8


def cohort_bytes(context: RunContext, *, down: int = 1, up: int | None = None) -> float:
    """Bytes per user where a sampled user gets ``down`` vectors and answers with one, a round.

    What comes down is float32; each of the D numbers that go up has ``up`` bytes, if not those of a
    clipped vector.
    """
    config = context.config
    each = (4 * down + (sum_bytes(context) if up is None else up)) * context.dimension
    return config.rounds * config.cohort / context.users * each
