"""The cost of a run, before any data are read: ``murmuration plan``, for every strategy.

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
from murmuration.strategies.settings.own.shared import NoSettings, Sampled

SIX = ("epsilon", "noise_multiplier", "rounds", "cohort", "users", "delta")


@dataclass(frozen=True)
class PlanQuery:
    """The given numbers of a plan; None for those not given.

    ``hold_out`` is the random hold-out, if any; ``settings`` are the strategy's own. ``own`` has
    the given values of ``settings.plan_options``.
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
    settings: object = NoSettings()
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sampled(self) -> Sampled:
        """Its settings of sampling and correlated noise."""
        return self.settings if isinstance(self.settings, Sampled) else Sampled()

    def check_given(self, *names: str) -> None:
        """InputError for the first of these numbers that is none, or not positive."""
        for name in names:
            if not (value := getattr(self, name)) or value < 0:
                option = name.replace("_", "-")
                raise InputError(f"--strategy {self.strategy} needs --{option}, a positive number")

    def refuse_cohort(self) -> None:
        """Raise InputError for a cohort, if all users take part."""
        if self.cohort is not None:
            raise InputError(
                f"--cohort has no meaning for --strategy {self.strategy}: everybody takes part"
            )

    def refuse_examples(self) -> None:
        """InputError for what has a meaning only where single judgements are sampled."""
        if self.group_size is not None or self.sampling_probability is not None:
            raise InputError(
                "--group-size and --sampling-probability cost nothing with --strategy "
                f"{self.strategy}, where whole users are sampled; leave them out, or plan for els "
                "or group"
            )


#: From a query to all numbers of the plan, and sentences by their names.
Solve = Callable[[PlanQuery, Adjacency], dict[str, Any]]


def attack_figures(
    charges: Mapping[Event, int], *, adjacency: Adjacency, epsilon: float, delta: float
) -> dict[str, float]:
    """Upper bounds on attacks against a run of this plan; ``epsilon`` is its budget."""
    bounds = attack_bounds.of_run(
        charges.items(), adjacency=adjacency, epsilon=epsilon, delta=delta
    )
    figures = dataclasses.asdict(bounds)
    return {name: value for name, value in figures.items() if value is not None}


def not_planned(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """The ``solve`` of strategies that add no noise to a sum; raises InputError."""
    raise InputError(
        f"--strategy {query.strategy} adds no noise to a sum: there is nothing to plan"
    )


def sampled_users(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """All of ``SIX`` from five of them, for a sum of one clipped vector of each sampled user.

    Raises:
        InputError: not exactly one is left out, an invalid number, or one without a meaning here.
    """
    query.refuse_examples()
    missing = [name for name in SIX if getattr(query, name) is None]
    if len(missing) != 1:
        listed = ", ".join("--" + name.replace("_", "-") for name in (missing or SIX))
        raise InputError(
            f"leave out exactly one of them, the one to solve for, and give the rest: {listed}. As "
            "in: --epsilon 3 --delta 1e-5 --rounds 200 --users 2700"
        )
    return _solved(query, missing[0], adjacency)


def _solved(query: PlanQuery, missing: str, adjacency: Adjacency) -> dict[str, float]:
    """All of ``SIX``, with the ``missing`` one solved for."""
    given, coins = {name: getattr(query, name) for name in SIX}, query.hold_out
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"--{name.replace('_', '-')} must be positive; got {value}")
    if "cohort" in known and "users" in known and known["cohort"] > known["users"]:
        raise InputError(f"--cohort {known['cohort']} is more than --users {known['users']}")
    if "delta" in known and known["delta"] >= 1:
        raise InputError(f"--delta must be below 1; got {known['delta']}")

    if query.sampled.noise_correlation != "none":
        return _correlated(query, known, missing, adjacency)

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
    """Independent noise, and correlated noise of those ``bands`` for which there are enough users
    and rounds.
    """
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
    """Buffered noise for groups of users of size ``cohort`` that take turns.

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


def check_bands(correlation: str, bands: int | None) -> None:
    """InputError for a number of bands where noise has none."""
    if bands is not None and not (correlation == "banded" and bands >= 2):
        raise InputError("--bands is for --noise-correlation banded, and at least 2")


def check_correlated(
    correlation: str,
    *,
    rounds: int,
    bands: int | None,
    cohort: float | None,
    users: float | None,
) -> None:
    """InputError, naming the option, for what there is no such noise for; None or 0: not given."""
    banded, least = correlation == "banded", bands or BANDS[0]
    if rounds > MOST_CORRELATED_ROUNDS:
        raise InputError(
            f"--noise-correlation {correlation} is for at most {MOST_CORRELATED_ROUNDS:,} "
            f"--rounds, got {rounds:,}: lower it, or use none"
        )
    if banded and least > rounds:
        raise InputError(f"--bands {least} is more than --rounds {rounds}: lower it")
    if cohort and users:
        try:
            if banded:
                CyclicSampler(cohort / users, least)
            else:
                whole_groups(int(users), int(cohort))
        except ValueError as error:
            raise InputError(f"--noise-correlation {correlation}: {error}") from None


def _correlated(
    query: PlanQuery, known: Mapping[str, float], missing: str, adjacency: Adjacency
) -> dict[str, float]:
    """All of ``SIX`` with correlated noise, and its error relative to independent noise, for a run
    with the default optimizer: for banded noise with all numbers of bands compared, of which the
    best is taken; for buffered noise also relative to independent noise over the same turns.
    """
    correlation, bands = query.sampled.noise_correlation, query.sampled.bands
    if missing != "noise_multiplier":
        raise InputError(
            f"--noise-correlation {correlation}: --{missing.replace('_', '-')} is not solved for; "
            "give it, and leave out --noise-multiplier"
        )
    epsilon, delta = known["epsilon"], known["delta"]
    rounds, cohort, users = int(known["rounds"]), known["cohort"], known["users"]
    check_correlated(correlation, rounds=rounds, bands=bands, cohort=cohort, users=users)
    steps = OptimizerSettings("sgd", 1.0, rounds)
    terms: dict[str, Any] = {"delta": delta, "adjacency": adjacency, "hold_out": query.hold_out}
    charged: dict[Event, int]
    if correlation == "banded":
        tried, share = (bands,) if bands else BANDS, cohort / users
        alone, *others = correlations(steps, epsilon, bands=tried, probability=share, **terms)
        best = min(others, key=lambda one: one.error)
        sampler = CyclicSampler(share, best.factor.groups)
        event = PoissonGaussian(sampler.of_group.probability, best.noise_multiplier)
        charged = {event: -(-rounds // sampler.groups)}
        about = {
            "noise_multiplier_if_independent": alone.noise_multiplier,
            "bands": best.factor.groups,
            **{f"error_with_{one.factor.groups}_bands": one.error for one in others},
        }
    else:
        best = buffered(steps, epsilon, users=users, cohort=cohort, **terms)
        turns = -(-rounds // best.factor.groups)
        charged = {BufferedGaussian(rounds, best.factor.groups, best.noise_multiplier): 1}
        about = {
            "rounds_apart": best.factor.groups,
            "rounds_of_a_user": turns,
            "error_over_same_turns": best.spread / math.sqrt(turns),
            "error_over_poisson": best.error,
        }
    charged |= charges_of(query.hold_out)
    attack = attack_figures(charged, adjacency=adjacency, epsilon=epsilon, delta=delta)
    return {**known, missing: best.noise_multiplier, **about, **attack}


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, 0 if none; ``fits`` turns false once."""
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
    """All numbers of a plan with all users in each of the ``allowed`` rounds, without sampling.

    Cohort and users do not matter: of epsilon, the noise multiplier (over the clip norm) and delta,
    two determine the third.

    Raises:
        InputError: not exactly one of epsilon, noise multiplier and delta is left out, or a number
            is invalid.
    """
    query.refuse_examples()
    strategy = query.strategy
    rounds = query.rounds or allowed[0]
    if rounds not in allowed:
        listed = " or ".join(map(str, allowed))
        raise InputError(f"--strategy {strategy} takes --rounds {listed}, not {rounds}")
    query.refuse_cohort()
    query.check_given("users")
    missing = [
        name for name in ("epsilon", "noise_multiplier", "delta") if getattr(query, name) is None
    ]
    if len(missing) != 1:
        raise InputError(
            "leave out exactly one of --epsilon, --noise-multiplier and --delta, to solve for it"
        )
    whole = dataclasses.replace(query, rounds=rounds, cohort=query.users)
    return _solved(whole, missing[0], adjacency)
