"""What a run would cost, before any data is touched: ``murmuration plan``, for every strategy.

Six numbers hang together: epsilon, noise multiplier, rounds, cohort, users and delta. Five are
given, the sixth follows. A strategy says in its file which of the ways here is its own, or has
another there.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import BufferedGaussian, Event, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.mechanisms.hold_out import HoldOut, charges_of
from murmuration.privacy.mechanisms.sampling import CyclicSampler, whole_groups
from murmuration.strategies.optimizers import OptimizerSettings, workload

SIX = ("epsilon", "noise_multiplier", "rounds", "cohort", "users", "delta")


@dataclass(frozen=True)
class PlanQuery:
    """What is known of a plan; None for what was not given.

    ``hold_out`` is how users are held out, if they are; ``variant`` and ``adaptation`` are those
    of ``aup``. ``sampling`` and ``noise_correlation`` are as in ``Sampled``, and ``bands`` over how
    many rounds banded noise is correlated. ``own`` has what is given of
    ``settings.plan_options``.
    """

    strategy: str
    users: int | None = None
    group_size: int | None = None
    sampling_probability: float | None = None
    cohort: int | None = None
    rounds: int | None = None
    delta: float | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    hold_out: HoldOut | None = None
    variant: str = "centred"
    adaptation: str = "quantile"
    sampling: str = "poisson"
    noise_correlation: str = "none"
    bands: int | None = None
    own: Mapping[str, Any] = field(default_factory=dict)

    def refuse_examples(self) -> None:
        """InputError for what has a meaning only where single judgements are sampled."""
        if self.group_size is not None or self.sampling_probability is not None:
            raise InputError(
                "--group-size and --sampling-probability cost nothing with --strategy "
                f"{self.strategy}, where whole users are sampled; leave them out, or plan for els "
                "or group"
            )


def pure_epsilon(
    budget: float,
    charges: Callable[[float], Mapping[Event, int]],
    *,
    delta: float,
    adjacency: Adjacency,
) -> float:
    """Return the pure epsilon that a release may have, for the accountant to count ``budget``.

    That is the budget, unless it lies between two losses of the accountant's grid, so that the next
    one is counted: then a step less.

    Raises:
        ValueError: the budget is less than a step.
    """
    for pure in (budget, budget - accountant.INTERVAL):
        if pure > 0.0:
            cost = accountant.epsilon(charges(pure).items(), adjacency=adjacency, delta=delta)
            if cost <= budget:
                return pure
    raise ValueError(f"epsilon = {budget:g} is too small to be counted")


#: From a query to all numbers of the plan, and sentences by their names.
Solve = Callable[[PlanQuery, Adjacency], dict[str, Any]]


def attack_figures(
    charges: Mapping[Event, int], *, adjacency: Adjacency, epsilon: float, delta: float
) -> dict[str, float]:
    """Return what attacks on a run of this plan reach at most; ``epsilon`` is what it may cost."""
    bounds = attack_bounds.of_run(
        charges.items(), adjacency=adjacency, epsilon=epsilon, delta=delta
    )
    figures = dataclasses.asdict(bounds)
    return {name: value for name, value in figures.items() if value is not None}


def not_planned(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """Of strategies that add no noise to a sum; raises InputError."""
    raise InputError(
        f"--strategy {query.strategy} adds no noise to a sum: there is nothing to plan"
    )


def sampled_users(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """All of ``SIX`` from five of them: users are sampled, and one clipped vector of each is
    summed.

    Raises:
        InputError: not exactly one is left out, a number that cannot be, or one that means nothing.
    """
    query.refuse_examples()
    missing = [name for name in SIX if getattr(query, name) is None]
    if len(missing) != 1:
        listed = ", ".join("--" + name.replace("_", "-") for name in (missing or SIX))
        if missing:
            raise InputError(
                f"leave out exactly one of them, the one to solve for, and give the rest: {listed}."
                " As in: murmuration plan --epsilon 3 --delta 1e-5 --rounds 200 --users 2700"
            )
        raise InputError(f"leave out exactly one of them, the one to solve for: {listed}")
    return _solved(query, missing[0], adjacency)


def _solved(query: PlanQuery, missing: str, adjacency: Adjacency) -> dict[str, float]:
    """Return all of ``SIX``, of which the one that is ``missing`` is solved for."""
    given, coins = {name: getattr(query, name) for name in SIX}, query.hold_out
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"--{name.replace('_', '-')} must be positive; got {value}")
    if "cohort" in known and "users" in known and known["cohort"] > known["users"]:
        raise InputError(f"--cohort {known['cohort']} is more than --users {known['users']}")
    if "delta" in known and known["delta"] >= 1:
        raise InputError(f"--delta must be below 1; got {known['delta']}")

    if query.noise_correlation == "banded":
        return _banded(known, missing, query.bands, adjacency, coins)
    if query.noise_correlation == "blt":
        return _buffered(known, missing, adjacency, coins)

    def event(**change: float) -> PoissonGaussian:
        value = {**known, **change}
        return PoissonGaussian(value["cohort"] / value["users"], value["noise_multiplier"])

    def cost(**change: float) -> float:
        rounds = int({**known, **change}["rounds"])
        return accountant.epsilon(
            [(event(**change), rounds), *charges_of(coins).items()],
            adjacency=adjacency,
            delta=known["delta"],
        )

    solvers: dict[str, Callable[[], float]] = {
        "epsilon": cost,
        "noise_multiplier": lambda: accountant.noise_multiplier_for(
            known["epsilon"],
            delta=known["delta"],
            probability=known["cohort"] / known["users"],
            rounds=int(known["rounds"]),
            adjacency=adjacency,
            hold_out=coins,
        ),
        "rounds": lambda: accountant.rounds_for(
            known["epsilon"],
            delta=known["delta"],
            event=event(),
            adjacency=adjacency,
            hold_out=coins,
        ),
        "cohort": lambda: largest(
            lambda m: cost(cohort=m) <= known["epsilon"], int(known["users"])
        ),
        "users": lambda: _first_users(lambda n: cost(users=n) <= known["epsilon"], known["cohort"]),
        "delta": lambda: accountant.delta_for(
            known["epsilon"], event=event(), rounds=int(known["rounds"]), adjacency=adjacency
        ),
    }
    if missing == "delta" and coins:
        raise InputError("--delta is not solved for with --heldout: give it, and leave out another")
    value = solvers[missing]()
    if missing in ("rounds", "cohort", "users") and value < 1:
        raise InputError(f"no number of {missing} meets epsilon = {known['epsilon']:g}; add noise")
    result = {**known, missing: value}
    if missing in ("rounds", "cohort", "users"):
        # Whole numbers rarely meet the target exactly: say what is really spent.
        result["epsilon"] = cost(**{missing: value})
    planned = PoissonGaussian(result["cohort"] / result["users"], result["noise_multiplier"])
    charges = {planned: int(result["rounds"]), **charges_of(coins)}
    terms = {"epsilon": result["epsilon"], "delta": result["delta"]}
    return result | attack_figures(charges, adjacency=adjacency, **terms)


#: Numbers of bands that are compared where none is given.
BANDS = (2, 4, 8, 10, 16, 20, 32)
#: Of more rounds than this a matrix of all pairs of them takes gigabytes.
MOST_CORRELATED_ROUNDS = 4_000


@dataclass(frozen=True)
class Correlation:
    """Noise by a factor (of one band: independent) at some promise.

    ``spread`` is the root mean square noise in iterates and result (``optimizers.workload``) over
    that of independent noise of the same multiplier, ``error`` over that of independent noise at
    the same promise, with Poisson sampling.
    """

    factor: Banded | BufferedToeplitz
    noise_multiplier: float
    spread: float
    error: float


def correlations(
    settings: OptimizerSettings,
    epsilon: float,
    *,
    bands: Iterable[int],
    probability: float,
    delta: float,
    adjacency: Adjacency,
    hold_out: HoldOut | None,
) -> list[Correlation]:
    """Return independent noise, and that of those ``bands`` for which there are enough users and
    rounds."""
    added = workload(settings)
    result: list[Correlation] = []
    for count in (1, *bands):
        if count > settings.rounds or count * probability > 1.0 + 1e-9:
            continue
        sampler = CyclicSampler(probability, count)
        sigma = accountant.noise_multiplier_for(
            epsilon,
            delta=delta,
            probability=sampler.of_group.probability,
            rounds=-(-settings.rounds // count),
            adjacency=adjacency,
            hold_out=hold_out,
        )
        factor = Banded.chosen(added, count)
        spread, alone = added.error(factor), result[0].noise_multiplier if result else sigma
        result.append(Correlation(factor, sigma, spread, spread * sigma / alone))
    return result


def buffered(
    settings: OptimizerSettings,
    epsilon: float,
    *,
    users: float,
    cohort: float,
    delta: float,
    adjacency: Adjacency,
    hold_out: HoldOut | None,
) -> Correlation:
    """Return buffered noise for groups of so many users that take turns.

    Raises:
        ValueError: they do not make a whole number of groups.
    """
    groups = whole_groups(int(users), int(cohort))
    terms = {"delta": delta, "adjacency": adjacency}
    # Whose turn it is shows who is held out, so that saves noise where coins are secret alone.
    sigma = accountant.noise_multiplier_for(epsilon, probability=1.0, rounds=1, **terms)
    alone = accountant.noise_multiplier_for(
        epsilon,
        probability=1.0 / groups,
        rounds=settings.rounds,
        hold_out=hold_out,
        **terms,
    )
    added = workload(settings)
    factor = BufferedToeplitz.chosen(added, groups)
    spread = added.error(factor)
    return Correlation(factor, sigma, spread, spread * sigma / alone)


def check_correlated(rounds: int, correlation: str) -> None:
    """InputError for more rounds than correlated noise is for."""
    if rounds > MOST_CORRELATED_ROUNDS:
        raise InputError(
            f"--noise-correlation {correlation} is for at most {MOST_CORRELATED_ROUNDS:,} "
            f"--rounds, got {rounds:,}: lower it, or use none"
        )


def check_bands(rounds: int, bands: int | None, cohort: float | None, users: float | None) -> None:
    """InputError, naming the option, for numbers that no noise in bands is for; None or 0: not
    given."""
    check_correlated(rounds, "banded")
    least = bands or BANDS[0]
    if least > rounds:
        raise InputError(f"--bands {least} is more than --rounds {rounds}: lower it")
    if cohort and users:
        try:
            CyclicSampler(cohort / users, least)
        except ValueError as error:
            raise InputError(f"--noise-correlation banded: {error}") from None


def _banded(
    known: Mapping[str, float],
    missing: str,
    bands: int | None,
    adjacency: Adjacency,
    coins: HoldOut | None,
) -> dict[str, float]:
    """Return all of ``SIX`` with noise in bands: of those compared the one of the least error, and
    the error of each over that of independent noise, of a run with the usual optimizer."""
    if missing != "noise_multiplier":
        raise InputError(
            f"--noise-correlation banded: --{missing.replace('_', '-')} is not solved for; give it,"
            " and leave out --noise-multiplier"
        )
    if adjacency.vectors_changed != 1:
        raise InputError(NOT_REPLACED.format(adjacency))
    rounds, delta = int(known["rounds"]), known["delta"]
    check_bands(rounds, bands, known["cohort"], known["users"])
    alone, *others = correlations(
        OptimizerSettings("sgd", 1.0, rounds),
        known["epsilon"],
        bands=(bands,) if bands else BANDS,
        probability=known["cohort"] / known["users"],
        delta=delta,
        adjacency=adjacency,
        hold_out=coins,
    )
    best = min(others, key=lambda one: one.error)
    sampler = CyclicSampler(known["cohort"] / known["users"], best.factor.groups)
    event = PoissonGaussian(sampler.of_group.probability, best.noise_multiplier)
    charged = {event: -(-rounds // sampler.groups), **charges_of(coins)}
    return {
        **known,
        missing: best.noise_multiplier,
        "noise_multiplier_if_independent": alone.noise_multiplier,
        "bands": best.factor.groups,
        **{f"error_with_{one.factor.groups}_bands": one.error for one in others},
        **attack_figures(charged, adjacency=adjacency, epsilon=known["epsilon"], delta=delta),
    }


def _buffered(
    known: Mapping[str, float], missing: str, adjacency: Adjacency, coins: HoldOut | None
) -> dict[str, float]:
    """Return all of ``SIX`` with buffered noise, and its error over that of independent noise with
    the same turns, and with Poisson sampling, of a run with the usual optimizer."""
    if missing != "noise_multiplier":
        raise InputError(
            f"--noise-correlation blt: --{missing.replace('_', '-')} is not solved for; give it, "
            "and leave out --noise-multiplier"
        )
    rounds, delta = int(known["rounds"]), known["delta"]
    check_correlated(rounds, "blt")
    noise = buffered(
        OptimizerSettings("sgd", 1.0, rounds),
        known["epsilon"],
        users=known["users"],
        cohort=known["cohort"],
        delta=delta,
        adjacency=adjacency,
        hold_out=coins,
    )
    turns = -(-rounds // noise.factor.groups)
    whole = BufferedGaussian(rounds, noise.factor.groups, noise.noise_multiplier)
    charged: dict[Event, int] = {whole: 1, **charges_of(coins)}
    return {
        **known,
        missing: noise.noise_multiplier,
        "rounds_apart": noise.factor.groups,
        "rounds_of_a_user": turns,
        "error_over_same_turns": noise.spread / math.sqrt(turns),
        "error_over_poisson": noise.error,
        **attack_figures(charged, adjacency=adjacency, epsilon=known["epsilon"], delta=delta),
    }


#: Why noise in bands is refused where users are replaced; ``{}`` is the relation.
NOT_REPLACED = (
    "--noise-correlation banded has no guarantee under {}: it is proved of users who come or go; "
    "use --adjacency add-remove or zero-out, or --noise-correlation none"
)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` that fits, 0 if none; ``fits`` turns false once."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _first_users(fits: Callable[[int], bool], cohort: float) -> int:
    """The smallest number of users from ``cohort`` on that fits, 0 if a billion do not."""
    low, high = int(cohort) - 1, int(cohort)
    while not fits(high):
        low, high = high, high * 2
        if high > 10**9:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def released_once(
    query: PlanQuery, adjacency: Adjacency, allowed: tuple[int, ...]
) -> dict[str, float]:
    """All numbers where everybody takes part in each of the ``allowed`` rounds, without sampling.

    Cohort and users do not enter: epsilon, the noise multiplier (over the clip norm) and delta hang
    together, and two of them give the third.

    Raises:
        InputError: not exactly one of epsilon, noise multiplier and delta is left out, or a number
            that cannot be.
    """
    query.refuse_examples()
    strategy = query.strategy
    rounds = query.rounds or allowed[0]
    if rounds not in allowed:
        listed = " or ".join(map(str, allowed))
        raise InputError(f"--strategy {strategy} takes --rounds {listed}, not {rounds}")
    if query.cohort is not None:
        raise InputError(f"--cohort has no meaning for --strategy {strategy}: everybody takes part")
    if not query.users or query.users < 1:
        raise InputError(f"--strategy {strategy} needs --users, a positive number")
    missing = [
        name for name in ("epsilon", "noise_multiplier", "delta") if getattr(query, name) is None
    ]
    if len(missing) != 1:
        raise InputError(
            "leave out exactly one of --epsilon, --noise-multiplier and --delta, to solve for it"
        )
    whole = dataclasses.replace(query, rounds=rounds, cohort=query.users)
    return _solved(whole, missing[0], adjacency)
