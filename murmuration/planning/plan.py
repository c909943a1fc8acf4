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
from murmuration.strategies.settings.data import row_fields
from murmuration.strategies.settings.declaration import check_values, declared, option
from murmuration.strategies.settings.from_python import takes
from murmuration.strategies.settings.own.shared import Sampled
from murmuration.strategies.settings.plan_options import (
    PlanOptions,
    own_fields,
    plan_fields,
    plan_options,
)

if TYPE_CHECKING:
    from murmuration.privacy.mechanisms.hold_out import HoldOut

#: At which noise on it is stated.
_ACCURACY = 0.75


@takes(lambda: [*own_fields(), *plan_fields(), *row_fields("labels")], optional=True)
def plan(
    *,
    strategy: str = "uls",
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    rounds: int | None = None,
    cohort: int | None = None,
    users: int | None = None,
    delta: float | str | None = None,
    group_size: int | None = None,
    sampling_probability: float | None = None,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    heldout: float | None = None,
    heldout_epsilon: float | None = None,
    optimize: bool = False,
    compute: int | None = None,
    public: str | None = None,
    features: str = "hashing",
    batch_users: bool = False,
    **own: Any,
) -> dict[str, Any]:
    """Compute all numbers of a run from those that are given; no data are read.

    Of epsilon, noise multiplier, rounds, cohort, users and delta the one that is left out is solved
    for. For els and group that is epsilon or the noise multiplier, for adaptive and aup the noise.

        >>> from murmuration import plan
        >>> numbers = plan(epsilon=3, delta=1e-5, rounds=200, cohort=500, users=4800)
        >>> round(numbers["noise_multiplier"], 2)
        2.26

    Args:
        strategy: Algorithm.
        epsilon: Privacy budget.
        noise_multiplier: Standard deviation of the noise, divided by the clip norm.
        rounds: Rounds.
        cohort: Expected users in a round. Left out beside another number, a fifth of the users, at
            least 100 (or all) and at most 500.
        users: Number of users to train on, as a public figure.
        delta: Delta, or ``"n^-1.1"``: of the number of users.
        group_size: els, group: most judgements that a user keeps.
        sampling_probability: els, group: probability of each kept judgement to be in a round.
        adjacency: Which data sets are neighbours.
        heldout: Share of users held out, besides ``users``, where there is no test.
        heldout_epsilon: Budget for the figures about them.
        optimize: uls, els: find group size and cohort for ``compute``.
        compute: With ``optimize``, gradients of single judgements in a round.
        public: With ``optimize``, judgements of people outside training, to learn how long
            gradients are; by default a synthetic population.
        features: With ``optimize``, of ``public``, as in ``train``.
        batch_users: As in ``train``; does not change epsilon.
        **own: Settings of the strategy; options that rooms bring, of boards and from surveys; and
            with ``optimize`` what is declared of the rows of ``public``, as in ``train``. With
            banded noise the result has the ratio of the error to that of independent noise, for
            several numbers of bands if none is given; with blt the ratios to independent noise over
            the same turns, and over Poisson sampling.

    Returns:
        What ``murmuration plan --json`` prints.

    Raises:
        InputError: numbers that do not determine a plan.
    """
    from murmuration.strategies import registry
    from murmuration.strategies.config import DELTA_EXPONENT, own_settings, typed
    from murmuration.strategies.planning import SIX, PlanQuery, check_bands
    from murmuration.strategies.settings.model import user_isolation
    from murmuration.strategies.settings.privacy import check_delta, parse_delta
    from murmuration.strategies.settings.sampling import cohort_of_turns, usual_cohort

    for name, value in (
        ("users", users),
        ("cohort", cohort),
        ("rounds", rounds),
        ("group_size", group_size),
        ("compute", compute),
    ):
        if value is not None and type(value) is not int:
            raise InputError(f"{name} must be a whole number; got {value!r}")
    if users is not None and users < 1:
        raise InputError(f"--users must be positive; got {users}")
    for name, value in (
        ("epsilon", epsilon),
        ("noise_multiplier", noise_multiplier),
        ("sampling_probability", sampling_probability),
        ("heldout", heldout),
    ):
        if value is not None and type(value) not in (int, float):
            raise InputError(f"{name} must be a number; got {value!r}")
    neighbours = parse_adjacency(adjacency)
    own = {name: value for name, value in own.items() if value is not None}
    brought = {each.name: own.pop(each.name) for each in plan_fields() if each.name in own}
    chosen = {each.name: typed(each.name, own.pop(each.name)) for each in own_fields()
              if each.name in own}  # fmt: skip
    columns, declared_rows = stated_rows(own, "labels")
    sentences: dict[str, str] = {}
    for name, (options, values) in _brought_options(strategy, brought).items():
        if options.crowd:
            crowd = options.crowd(values, heldout)
            users = crowd.users if users is None else users
            if strategy in ("els", "group") and group_size is None:
                group_size = crowd.judgements
            sentences[name] = crowd.sentence
    settings = own_settings(registry.named(strategy), chosen)
    check_values(settings)
    own_sampled = settings if isinstance(settings, Sampled) else Sampled()
    sampling, noise_correlation = own_sampled.sampling, own_sampled.noise_correlation
    if strategy == "nonprivate":
        raise InputError("--strategy nonprivate promises nothing: there is nothing to plan")
    numeric_delta = None if delta is None else parse_delta(str(delta))
    if numeric_delta == 0:
        if not users:
            raise InputError("--delta n^-1.1 needs --users: that is n")
        numeric_delta = users**DELTA_EXPONENT
    check_delta(numeric_delta, users)
    given = (epsilon, noise_multiplier, rounds, users, numeric_delta)
    sampled = registry.named(strategy).samples and sampling_probability is None
    sampled = sampled and sampling != "all" and not optimize
    choose = cohort is None and users and sampled and given.count(None) == 1
    check_bands(noise_correlation, own_sampled.bands or None)
    if sampling == "all":
        if not users:
            raise InputError("--sampling all needs --users: all of them are in each round")
        if cohort not in (None, users):
            raise InputError("--sampling all has all --users in each round: leave out --cohort")
        cohort = users
    elif choose and users:
        usual = usual_cohort(users)
        cohort = cohort_of_turns(users, usual) if sampling == "cyclic" else usual
    try:
        coins = _hold_out(heldout, heldout_epsilon, epsilon, neighbours)
        asked = PlanQuery(
            strategy,
            users,
            group_size,
            sampling_probability,
            cohort,
            rounds,
            numeric_delta,
            epsilon,
            noise_multiplier,
            coins,
            settings,
            brought,
        )
        registry.check_adjacency(strategy, neighbours, settings)
        if optimize and (sampling, noise_correlation) != ("poisson", "none"):
            raise InputError(
                "--optimize compares Poisson cohorts and independent noise: leave out --sampling "
                "and --noise-correlation"
            )
        if optimize:
            from murmuration.planning import optimize as optimize_plan

            options = {option(name)[2:]: value for name, value in declared_rows.items()}
            rows = optimize_plan.Public(public, features, Schema.of(options), columns)
            return optimize_plan.solve(strategy, asked, compute, rows, neighbours)
        if declared_rows or columns or compute is not None or public is not None:
            raise InputError("--compute, --public and options about its rows need --optimize")
        numbers = registry.named(strategy).solve(asked, neighbours)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None
    return {
        **numbers,
        **_heldout_figures(coins, int(numbers["users"]), neighbours),
        "strategy": strategy,
        "adjacency": neighbours.value,
        "user_isolation": user_isolation(batch_users),
        **({"correlation": about_correlation(numbers)} if noise_correlation != "none" else {}),
        "chosen": "cohort" if choose else "",
        "solved_for": next((name for name in SIX if getattr(asked, name) is None), ""),
        **sentences,
    }


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
            f"With --noise-correlation blt there is {more} noise in iterates and result than with "
            "independent noise and Poisson sampling at the same promise, and no secret coins are "
            "relied on"
        )
    bands = int(numbers["bands"])
    error = numbers[f"error_with_{bands}_bands"]
    if error >= 1.0:
        return (
            "Correlated noise gains nothing here: in iterates and result there would be "
            f"{error:.3g} times as much noise as with independent noise at the same promise. Leave "
            "out --noise-correlation"
        )
    return (
        f"With --noise-correlation banded --bands {bands} there is {1.0 - error:.1%} less noise in "
        "iterates and result than with independent noise at the same promise"
    )


def parse_adjacency(name: Adjacency | str) -> Adjacency:
    """The adjacency of this name.

    Raises:
        InputError: there is none of it.
    """
    try:
        return Adjacency(name)
    except ValueError:
        raise InputError(f"adjacency must be one of {', '.join(Adjacency)}; got {name!r}") from None


def _hold_out(
    share: float | None, budget: float | None, epsilon: float | None, adjacency: Adjacency
) -> HoldOut | None:
    """The hold-out assignment, if requested.

    Raises:
        ValueError, InputError: it cannot be.
    """
    from murmuration.privacy.mechanisms import hold_out

    if share is None:
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
