"""Noise that rounds share, and users who take turns: what the settings ask for, its plan and its
theorems, and the choice with the least error."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.sampling import CyclicSampler, whole_groups
from murmuration.privacy.theorems import Mechanism, Participation, Theorem, Unit, select
from murmuration.strategies.planning import PlanQuery
from murmuration.strategies.settings.own import Sampled
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.steps.optimizers import OptimizerSettings, workload
from murmuration.strategies.sums import SumPlan

if TYPE_CHECKING:
    from murmuration.strategies.spec import RunContext

#: How rounds share noise.
Factor = Banded | BufferedToeplitz
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

    factor: Factor
    noise_multiplier: float
    spread: float
    error: float


def turns(factor: Factor, probability: float) -> CyclicSampler:
    """The sampler of users who take turns: by a coin of each in theirs, where each is in a round
    with this probability on average; for buffered noise everybody of a group.
    """
    if isinstance(factor, BufferedToeplitz):
        return CyclicSampler(1.0 / factor.separation, factor.separation)
    return CyclicSampler(probability, factor.bands)


def check_groups(factor: Factor, users: int, cohort: int) -> None:
    """ValueError for buffered noise that is made for another number of groups."""
    if isinstance(factor, BufferedToeplitz):
        groups = whole_groups(users, cohort)
        if groups != factor.separation:
            raise ValueError(f"{groups} groups, and noise for {factor.separation}")


def noise_over_turns(
    epsilon: float,
    factor: Factor,
    *,
    probability: float,
    rounds: int,
    delta: float,
    adjacency: Adjacency,
    hold_out: HoldOut | None,
) -> float:
    """The noise multiplier at which rounds that share noise cost ``epsilon``, where each user is in
    a round with this ``probability`` on average.
    """
    if isinstance(factor, BufferedToeplitz):
        # Whose turn it is shows who is held out, so that saves nothing.
        once = {"probability": 1.0, "rounds": 1}
        return accountant.noise_multiplier_for(epsilon, delta=delta, adjacency=adjacency, **once)
    return accountant.noise_multiplier_for(
        epsilon,
        delta=delta,
        probability=turns(factor, probability).of_group.probability,
        rounds=-(-rounds // factor.bands),  # of the group whose turn comes most often
        adjacency=adjacency,
        hold_out=hold_out,
    )


@functools.lru_cache(maxsize=16)
def correlations(
    settings: OptimizerSettings,
    epsilon: float,
    *,
    bands: tuple[int, ...],
    probability: float,
    delta: float,
    adjacency: Adjacency,
    hold_out: HoldOut | None,
) -> tuple[Correlation, ...]:
    """Independent noise, and correlated noise of those ``bands`` for which there are enough users
    and rounds.
    """
    added = workload(settings)
    result: list[Correlation] = []
    for count in (1, *bands):
        if count > settings.rounds or count * probability > 1.0 + 1e-9:
            continue
        factor = Banded.chosen(added, count)
        sigma = noise_over_turns(
            epsilon,
            factor,
            probability=probability,
            rounds=settings.rounds,
            delta=delta,
            adjacency=adjacency,
            hold_out=hold_out,
        )
        spread, alone = added.error(factor), result[0].noise_multiplier if result else sigma
        result.append(Correlation(factor, sigma, spread, spread * sigma / alone))
    return tuple(result)


@functools.lru_cache(maxsize=16)
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
    added = workload(settings)
    factor = BufferedToeplitz.chosen(added, groups)
    terms: dict[str, Any] = {
        "probability": 1.0 / groups,
        "rounds": settings.rounds,
        "delta": delta,
        "adjacency": adjacency,
        "hold_out": hold_out,
    }
    sigma = noise_over_turns(epsilon, factor, **terms)
    alone = accountant.noise_multiplier_for(epsilon, **terms)
    spread = added.error(factor)
    return Correlation(factor, sigma, spread, spread * sigma / alone)


def correlation(context: RunContext) -> Correlation | None:
    """The correlated noise that the settings ask for, if any: banded, with the given number of
    bands or that of the least error, or buffered.
    """
    config, sizes = context.config, context.cohort_sizes
    own, users, cohort = config.of(Sampled), sizes["users"], sizes["cohort"]
    if own.noise_correlation == "none":
        return None
    steps = OptimizerSettings("sgd", 1.0, config.rounds, config.momentum)
    terms: dict[str, Any] = {name: sizes[name] for name in ("delta", "adjacency", "hold_out")}
    if own.noise_correlation == "blt":
        return buffered(steps, config.epsilon, users=users, cohort=cohort, **terms)
    check_correlated(
        own.noise_correlation,
        rounds=sizes["rounds"],
        bands=own.bands,
        cohort=cohort,
        users=users,
    )
    _, *others = correlations(
        steps,
        config.epsilon,
        bands=(own.bands,) if own.bands else BANDS,
        probability=cohort / users,
        **terms,
    )
    return min(others, key=lambda one: one.error)


def correlations_of(query: PlanQuery, adjacency: Adjacency) -> list[Correlation]:
    """Correlated noise for a query with the default optimizer, the best first, and independent
    noise last.
    """
    numbers, own = query.numbers, query.sampled
    sizes = {name: numbers[name] for name in ("users", "cohort")}
    rounds, epsilon = numbers["rounds"], numbers["epsilon"]
    check_correlated(own.noise_correlation, rounds=rounds, bands=own.bands or None, **sizes)
    steps = OptimizerSettings("sgd", 1.0, rounds)
    terms = {"delta": query.delta, "adjacency": adjacency, "hold_out": query.hold_out}
    if own.noise_correlation == "blt":
        return [buffered(steps, epsilon, **sizes, **terms)]
    bands = (own.bands,) if own.bands else BANDS
    share = sizes["cohort"] / sizes["users"]
    alone, *others = correlations(steps, epsilon, bands=bands, probability=share, **terms)
    return [*sorted(others, key=lambda one: one.error), alone]


def about_noise(plan: SumPlan, query: PlanQuery) -> dict[str, float]:
    """The error of correlated noise relative to independent noise: for each number of bands that
    was compared; for buffers with the same turns, and with Poisson sampling.
    """
    best, *others = correlations_of(query, plan.adjacency)
    if isinstance(best.factor, BufferedToeplitz):
        turns = best.factor.participations
        return {
            "rounds_apart": best.factor.groups,
            "rounds_of_a_user": turns,
            "error_over_same_turns": best.spread / math.sqrt(turns),
            "error_over_poisson": best.error,
        }
    errors = {one.factor.groups: one.error for one in (best, *others[:-1])}
    return {
        "noise_multiplier_if_independent": others[-1].noise_multiplier,
        "bands": best.factor.groups,
        **{f"error_with_{bands}_bands": errors[bands] for bands in sorted(errors)},
    }


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


def check_sampling(config: Settings) -> None:
    """InputError, naming the option, for users who cannot be sampled as it is set."""
    own = config.of(Sampled)
    if own.noise_correlation == "none":
        return
    check_correlated(
        own.noise_correlation,
        rounds=config.rounds,
        bands=own.bands,
        cohort=config.cohort,
        users=config.users,
    )


_POISSON: dict[str, None] = {"sampling": None, "noise_correlation": None, "bands": None}
SAMPLING_RULES = (
    Rule(
        lambda config, strategy: (
            config.of(Sampled).bands and config.of(Sampled).noise_correlation != "banded"
        ),
        "--bands is for --noise-correlation banded",
        ({"bands": None},),
    ),
    Rule(
        lambda config, strategy: (
            not config.of(Sampled).is_plain
            and not config.users
            and config.adjacency == Adjacency.ADD_REMOVE
        ),
        "--sampling {sampling} with --noise-correlation {noise_correlation} goes by how many users "
        "there are, which add-remove keeps private; --users states a round, public number of them",
        ({"adjacency": "zero-out"}, _POISSON),
    ),
    Rule(
        lambda config, strategy: (
            config.of(Sampled).noise_correlation != "none" and config.optimizer not in ("", "sgd")
        ),
        "--noise-correlation {noise_correlation} is made for what --optimizer sgd adds up",
        ({"optimizer": None}, _POISSON),
    ),
)

#: What is proven of one clipped vector of each user.
OF_VECTORS = select(Unit.VECTOR)
_TAKE_PART = {
    "poisson": {Participation.POISSON, Participation.TURNS_BY_COIN},
    "cyclic": {Participation.TURNS},
    "all": {Participation.POISSON},
}
_CORRELATED = {"banded": Mechanism.BANDED, "blt": Mechanism.BUFFERED}


def applies(own: object, theorem: Theorem) -> bool:
    """True for a theorem about this sampling and this noise."""
    own = own if isinstance(own, Sampled) else Sampled()
    shared = theorem.mechanism if theorem.mechanism in _CORRELATED.values() else None
    same = shared is _CORRELATED.get(own.noise_correlation)
    return same and theorem.participation in _TAKE_PART[own.sampling]
