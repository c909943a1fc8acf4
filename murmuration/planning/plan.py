"""The cost of a run, before any data are read.

Six numbers hang together: epsilon, noise multiplier, rounds, cohort, users and delta. Five are
given, the sixth follows; each strategy says how (``strategies.planning``). Where single judgements
are sampled the group size counts too, and epsilon or the noise multiplier follows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from murmuration.api.rows import stated_rows
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.schema import Schema
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.settings.catalogue import planned_fields
from murmuration.strategies.settings.data import row_fields
from murmuration.strategies.settings.declaration import declared, option
from murmuration.strategies.settings.from_python import takes
from murmuration.strategies.settings.model import user_isolation
from murmuration.strategies.settings.own import Sampled
from murmuration.strategies.settings.plan_options import (
    PlanOptions,
    plan_fields,
    plan_options,
)
from murmuration.strategies.settings.privacy import check_delta
from murmuration.strategies.settings.run import Settings

if TYPE_CHECKING:
    from murmuration.api.config import TrainConfig
    from murmuration.privacy.mechanisms.hold_out import HoldOut
    from murmuration.strategies.config import RunConfig

#: At which noise on it is stated.
_ACCURACY = 0.75


@takes(lambda: [*planned_fields(), *plan_fields(), *row_fields("labels")], optional=True)
def plan(
    config: TrainConfig | None = None,
    *,
    noise_multiplier: float | None = None,
    optimize: bool = False,
    compute: int | None = None,
    public: str | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Compute all numbers of a run from those that are given; no data are read.

    Of epsilon, noise multiplier, rounds, cohort, users and delta the one that is left out is solved
    for. For els and group that is epsilon or the noise multiplier, for adaptive and aup the noise.
    A config gives all but the noise multiplier, or all but epsilon if that is given.

        >>> from murmuration import plan
        >>> numbers = plan(epsilon=3, delta=1e-5, rounds=200, cohort=500, users=4800)
        >>> round(numbers["noise_multiplier"], 2)
        2.26

    Args:
        config: Settings of a run, with its number of users; ``settings`` override it.
        noise_multiplier: Standard deviation of the noise, divided by the clip norm.
        optimize: uls, els: find group size and cohort for ``compute``.
        compute: With ``optimize``, gradients of single judgements in a round.
        public: With ``optimize``, judgements of people outside training, to learn how long
            gradients are; by default a synthetic population.
        **settings: Of those of ``train`` what a plan depends on, those of the strategy among them;
            options that rooms bring, of boards and from surveys; and with ``optimize`` what is
            declared of the rows of ``public``. A cohort that is left out beside another number is
            a fifth of the users, at least 100 (or all) and at most 500. Users are those to train
            on; with ``heldout`` there are more.

    Returns:
        What ``murmuration plan --json`` prints. With banded noise it has the ratio of the error to
        that of independent noise, for several numbers of bands if none is given; with blt the
        ratios to independent noise over the same turns, and over Poisson sampling. Of a base whose
        layers are trained, the most memory that a round takes, in each mode of users' passes.

    Raises:
        InputError: numbers that do not determine a plan.
    """
    from murmuration.api.config import as_written
    from murmuration.strategies import registry
    from murmuration.strategies.planning import SIX, PlanQuery

    written = {name: value for name, value in settings.items() if value is not None}
    brought = {each.name: written.pop(each.name) for each in plan_fields() if each.name in written}
    written = as_written(written)
    given = dict(written)
    if config:
        given = _numbers_of(config.changed(**written), noise_multiplier) | written
    of_rows = [each.name for each in row_fields("labels")]
    columns, rows = stated_rows({name: given.get(name) for name in of_rows}, "labels")
    strategy = registry.named(given.get("strategy", Settings.strategy))
    if strategy is registry.NONPRIVATE:
        raise InputError("--strategy nonprivate promises nothing: there is nothing to plan")
    sentences = _with_known_crowd(strategy.name, brought, given)
    run = _checked(given, noise_multiplier)
    neighbours = Adjacency(run.adjacency)
    numbers: dict[str, Any] = {name: given.get(name) for name in SIX} | {
        "noise_multiplier": noise_multiplier
    }
    if "delta" in given:
        numbers["delta"] = _delta_of(run, given)
    missing = [name for name in SIX if numbers[name] is None]
    numbers["cohort"] = _cohort(given, run, alone=len(missing) < 2 or optimize)
    left = [name for name in missing if numbers[name] is None]
    try:
        coins = _hold_out(given, neighbours)
        query = PlanQuery(
            strategy=strategy.name,
            **numbers,
            # Where users are averaged over it costs nothing, and decides memory alone.
            group_size=None if run.base and strategy.averages_users else given.get("group_size"),
            sampling_probability=given.get("sampling_probability"),
            hold_out=coins,
            settings=run.own,
            own=brought,
        )
        if optimize:
            from murmuration.planning import optimize as optimize_plan

            if query.sampled.sampling != "poisson":
                raise InputError("--optimize compares Poisson cohorts: leave out --sampling")
            options = {option(name)[2:]: value for name, value in rows.items()}
            people = optimize_plan.Public(
                public, run.features, Schema.of(options), columns, run.items
            )
            return optimize_plan.solve(query, compute, people, neighbours)
        if written.keys() & of_rows or compute is not None or public is not None:
            raise InputError("--compute, --public and options about its rows need --optimize")
        solved = strategy.solve(query, neighbours)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None
    correlated = query.sampled.correlated
    return {
        **solved,
        **_heldout_figures(coins, int(solved["users"]), neighbours),
        "strategy": strategy.name,
        "adjacency": neighbours.value,
        "user_isolation": user_isolation(run.shared_passes),
        **(_memory(run, int(solved["users"])) if run.base else {}),
        **({"correlation": about_correlation(solved)} if correlated else {}),
        "chosen": "" if left == missing or query.sampled.everybody else "cohort",
        "solved_for": "".join(left[:1]),
        **sentences,
    }


def _memory(run: RunConfig, users: int) -> dict[str, Any]:
    from murmuration.planning.round_memory import memory_figures

    return memory_figures(run, users)


def _numbers_of(config: TrainConfig, noise_multiplier: float | None) -> dict[str, Any]:
    """The settings of a config, with those numbers that a run has by default."""
    from murmuration.strategies import registry

    given = {**config.given, "rounds": config.rounds, "delta": config.delta or "n^-1.1"}
    without = ["epsilon", "heldout", "heldout_epsilon"]
    if registry.named(config.strategy).averages_users and not config.base:
        without.append("group_size")  # which costs nothing there
    given = {name: value for name, value in given.items() if name not in without}
    budget = config.heldout_epsilon
    if noise_multiplier is None:
        given["epsilon"] = config.epsilon
    if hold_out := config.hold_out:
        budget = budget if noise_multiplier is None else hold_out.epsilon
        given |= {"heldout": config.heldout, "heldout_epsilon": budget or None}
    return {name: value for name, value in given.items() if value is not None}


def _checked(given: Mapping[str, Any], noise_multiplier: float | None) -> RunConfig:
    """The config of a run with these settings, and defaults for numbers that are solved for.

    Raises:
        InputError: a value that no run could use.
    """
    from murmuration.strategies.config import RunConfig, typed

    if "heldout_epsilon" in given:
        typed("heldout_epsilon", given["heldout_epsilon"])
    if noise_multiplier is not None and type(noise_multiplier) not in (int, float):
        raise InputError(f"--noise-multiplier must be a number; got {noise_multiplier!r}")
    run = RunConfig(**{name: value for name, value in given.items() if name != "heldout_epsilon"})
    if "delta" in given:
        check_delta(_delta_of(run, given), given.get("users"))
    return run


def _cohort(given: Mapping[str, Any], run: RunConfig, *, alone: bool) -> int | None:
    """The cohort: as given, everybody, or the usual one; None where it is to be solved for.

    If it is left out ``alone``, it is solved for.

    Raises:
        InputError: everybody takes part, and their number is not stated, or another is.
    """
    from murmuration.strategies import registry

    users = given.get("users")
    if run.of(Sampled).everybody:
        if not users:
            raise InputError("--sampling all needs --users: all of them are in each round")
        if given.get("cohort", users) != users:
            raise InputError("--sampling all has all --users in each round: leave out --cohort")
        return users
    sampled = registry.named(run.strategy).samples and "sampling_probability" not in given
    if "cohort" in given or alone or not (users and sampled):
        return given.get("cohort")
    return run.cohort_of(users)


def _with_known_crowd(
    strategy: str, brought: Mapping[str, Any], given: dict[str, Any]
) -> dict[str, str]:
    """Give a plan the figures about users that rooms know; what they say of them, by room."""
    sentences = {}
    for name, (options, values) in _brought_options(strategy, brought).items():
        if options.crowd:
            crowd = options.crowd(values, given.get("heldout"))
            given.setdefault("users", crowd.users)
            if strategy in ("els", "group"):
                given.setdefault("group_size", crowd.judgements)
            sentences[name] = crowd.sentence
    return sentences


def _brought_options(
    strategy: str, own: Mapping[str, Any]
) -> dict[str, tuple[PlanOptions, dict[str, Any]]]:
    """The options of other packages that are given.

    Raises:
        InputError: they are for another strategy, or one is no number.
    """
    result = {}
    for room, options in plan_options().items():
        fields = {field.name: field for field in declared(options.settings)}
        given = {name: own[name] for name in fields if name in own}
        if given and options.strategy not in ("", strategy):
            names = ", ".join(map(option, fields))
            raise InputError(f"{names} are for --strategy {options.strategy}, not {strategy}")
        for name, value in given.items():
            if type(fields[name].default) is int and type(value) is not int:
                raise InputError(f"{name} must be a whole number; got {value!r}")
        if given:
            result[room] = options, given
    return result


def about_correlation(numbers: Mapping[str, Any]) -> str:
    """A recommendation of noise, by the errors of a plan with correlated noise."""
    if "error_over_poisson" in numbers:
        error = numbers["error_over_poisson"]
        more = f"{error - 1.0:.1%} more" if error >= 1.0 else f"{1.0 - error:.1%} less"
        return (
            f"With --sampling blt there is {more} noise in iterates and result than with poisson "
            "at the same promise, and no secret coins are relied on"
        )
    bands = int(numbers["bands"])
    error = numbers[f"error_with_{bands}_bands"]
    if error >= 1.0:
        return (
            "Correlated noise gains nothing here: in iterates and result there would be "
            f"{error:.3g} times as much noise as with --sampling poisson at the same promise"
        )
    return (
        f"With --sampling banded, and {bands} bands, there is {1.0 - error:.1%} less noise in "
        "iterates and result than with poisson at the same promise"
    )


def _delta_of(run: RunConfig, given: Mapping[str, Any]) -> float:
    """Delta as a number; InputError where it is that of a number of users that is not given."""
    from murmuration.strategies.config import DELTA_EXPONENT

    if not run.delta and not given.get("users"):
        raise InputError("--delta n^-1.1 needs --users: that is n")
    return run.delta or given["users"] ** DELTA_EXPONENT


def _hold_out(given: Mapping[str, Any], adjacency: Adjacency) -> HoldOut | None:
    """The hold-out assignment, if requested.

    Raises:
        ValueError, InputError: it cannot be.
    """
    from murmuration.privacy.mechanisms import hold_out

    share, budget, epsilon = map(given.get, ("heldout", "heldout_epsilon", "epsilon"))
    if not share:
        if budget is not None:
            raise InputError("--heldout-epsilon is about users held out: give --heldout")
        return None
    if budget is None and epsilon is None:
        raise InputError("--heldout needs --epsilon or --heldout-epsilon: what figures may cost")
    if budget is not None and not 0.0 < budget <= (epsilon or budget):
        raise InputError(f"--heldout-epsilon must be positive, and at most --epsilon; got {budget}")
    return hold_out.usual(share, epsilon or 0.0, adjacency, budget or 0.0)


def _heldout_figures(coins: HoldOut | None, users: int, adjacency: Adjacency) -> dict[str, float]:
    """The number of users held out beside ``users``, and the noise of an accuracy of 75 % on
    them.
    """
    from murmuration.privacy.mechanisms.tally import Tally, TallyRelease

    if coins is None:
        return {}
    tally = Tally()
    held = round(users * coins.share / (1.0 - coins.share))
    std = TallyRelease(coins, adjacency, tally).std
    return {
        "heldout_users": held,
        "heldout_epsilon": coins.epsilon,
        "heldout_noise": tally.noise(_ACCURACY, held, std) if held else math.inf,
    }
