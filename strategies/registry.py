"""Every strategy by name: those that are here, and those that other rooms and packages bring.

A room brings one by its ``plugin.py`` (``privacy.plugins``), another package by an entry point of
the group ``murmuration.strategies`` that names a ``strategies.spec.Strategy``; it is there wherever
that package is installed, at the server and at nodes. Of other packages an owner's agent imports
those alone that its policy allows. Choices, checks, options, policies, ``plan``, ``compare`` and
the docs derive from this list.
"""

from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.plugins import brought, more_elsewhere
from murmuration.strategies.adaptive import ADAPTIVE
from murmuration.strategies.aup.builders import AUP
from murmuration.strategies.dp_fedavg import DP_FEDAVG
from murmuration.strategies.els import ELS, GROUP
from murmuration.strategies.nonprivate import NONPRIVATE
from murmuration.strategies.protocol import group_size_histogram
from murmuration.strategies.settings.declaration import ENTRY_POINTS
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved.label_moment import LABEL_MOMENT
from murmuration.strategies.solved.local_label import LOCAL_LABEL
from murmuration.strategies.solved.objective_perturbation import OBJECTIVE_PERTURBATION
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    described_base,
)
from murmuration.strategies.uls import ULS

#: Those of this room, in the order in which they are offered.
_HERE = (
    ULS,
    DP_FEDAVG,
    ELS,
    GROUP,
    ADAPTIVE,
    AUP,
    LABEL_MOMENT,
    OBJECTIVE_PERTURBATION,
    LOCAL_LABEL,
    NONPRIVATE,
)
OURS = (*_HERE, *(point.load() for point in brought(ENTRY_POINTS).values()))
#: What ELS asks before it has a plan: how many judgements users have. No owner's policy allows it.
COUNTS = "counts"


@cache
def strategies() -> dict[str, Strategy]:
    """All strategies by name, without those of other packages that cannot be used."""
    return _loaded(None)[0]


@cache
def _loaded(only: frozenset[str] | None) -> tuple[dict[str, Strategy], dict[str, str]]:
    """All strategies, and by the name of its entry point the reason why one of another package
    cannot be used.

    If ``only`` is given, it names the strategies of other packages that are imported. An error in
    such a package does not affect other strategies.
    """
    result = {strategy.name: strategy for strategy in OURS}
    refused: dict[str, str] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        if only is not None and point.name not in only:
            continue
        try:
            strategy = point.load()
            _check_theirs(point.name, strategy, result)
        except (Exception, SystemExit) as error:
            refused[point.name] = f"{point.value}: {type(error).__name__}: {error}"
        else:
            result[strategy.name] = strategy
    return result, refused


def _check_theirs(name: str, strategy: object, known: dict[str, Strategy]) -> None:
    """InputError for what is no strategy, or takes a name that others have."""
    if not isinstance(strategy, Strategy):
        raise InputError("it is no Strategy")
    if strategy.name != name:
        raise InputError(f"it is called {strategy.name!r}")
    names = {*known, *_halves(known), COUNTS}
    if twice := names & {strategy.name, *strategy.node_halves}:
        raise InputError(f"{min(twice)!r} is taken")
    every_run = {field.name for field in fields(Settings)}
    # Of another strategy's it may have the very same one, with the meaning that it has there.
    of_strategies = {
        field.name: field.metadata.get("about")
        for other in known.values()
        for field in fields(other.settings)
    }
    for field in fields(strategy.settings):
        own = field.metadata.get("about")
        if own is None:
            raise InputError(f"its setting {field.name} is not declared with setting(…)")
        if field.name in every_run or of_strategies.get(field.name, own) is not own:
            raise InputError(f"its setting {field.name} is taken")


def named(name: str) -> Strategy:
    """The strategy of a name; InputError, listing all, if there is none."""
    known, refused = _loaded(None)
    if name in refused and name not in known:
        raise InputError(f"--strategy {name} cannot be used: {refused[name]}")
    if name not in known:
        raise InputError(
            f"--strategy must be one of {', '.join(known)}; got {name!r}{more_elsewhere()}"
        )
    return known[name]


@cache
def node_halves(only: frozenset[str] | None = None) -> dict[str, NodeHalf]:
    """The node halves, by their names in requests.

    ``only`` names the strategies of other packages that are included; no other is imported.
    """
    asked_before = NodeHalf(
        group_size_histogram.client_update, None, lambda number: {"sum": 1.0}, model=False
    )
    return {**_halves(_loaded(only)[0]), COUNTS: asked_before}


def _halves(known: dict[str, Strategy]) -> dict[str, NodeHalf]:
    return {
        name: half for strategy in known.values() for name, half in strategy.node_halves.items()
    }


@cache
def allowable(only: frozenset[str] | None = None) -> dict[str, str]:
    """The node half of each strategy that an owner's policy can allow, by the strategy's name.

    These are the ones with a bound on one user's contribution; of several node halves it is the
    first. ``only`` is as in ``node_halves``.
    """
    result = {}
    for strategy in _loaded(only)[0].values():
        for half, about in list(strategy.node_halves.items())[:1]:
            if about.length is not None:
                result[strategy.name] = half
    return result


def installed() -> frozenset[str]:
    """Names under which other packages bring strategies, good or not; none is imported."""
    return frozenset(point.name for point in entry_points(group=ENTRY_POINTS))


@cache
def solved() -> frozenset[str]:
    """The names of strategies that solve for the model, with all users, in few rounds."""
    return frozenset(name for name, strategy in strategies().items() if strategy.rounds)


def base_config(config: Settings) -> dict[str, Any]:
    """The config of a run's model, for `preference.bases.base_of`.

    Raises:
        InputError: settings that do not go together, or a folder that is not there.
    """
    features = named(config.strategy).features
    return (features(config) if features else None) or described_base(config)


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The strategy that the settings ask for; ValueError or BudgetExceeded if it cannot be."""
    built, own = context.strategy.build(context, ledger), context.config.own
    mechanism = getattr(built.strategy.plan, "mechanism", None)
    theorem = getattr(mechanism, "theorem", None)
    if mechanism is not None and theorem not in context.strategy.theorems_of(own):
        raise ValueError(f"{context.strategy.as_set(own)} does not name its theorem: {theorem}")
    built.strategy.check()
    return built


def check_adjacency(name: str, adjacency: Adjacency, own: object) -> None:
    """Unsupported (a ValueError), saying what to use instead, if there is no guarantee."""
    try:
        named(name).check_adjacency(adjacency, own)
    except Unsupported as error:
        others = [
            other.name
            for other in _HERE
            if adjacency in other.adjacencies and other is not NONPRIVATE and other.name != name
        ]
        said = str(error).removesuffix("or another strategy")
        raise Unsupported(f"{said}or one of the strategies {', '.join(others)}") from None
