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
#: Numbers of bands that are compared.
BANDS = (2, 4, 8, 10, 16, 20, 32)
#: Of more rounds than this a matrix of all pairs of them takes gigabytes.
MOST_CORRELATED_ROUNDS = 4_000
_TERMS = ("users", "cohort", "delta", "adjacency", "hold_out")


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


@functools.lru_cache(maxsize=16)
def correlations(
    settings: OptimizerSettings,
    epsilon: float,
    *,
    probability: float,
    delta: float,
    adjacency: Adjacency,
    hold_out: HoldOut | None,
) -> tuple[Correlation, ...]:
    """Independent noise, and correlated noise of those of ``BANDS`` for which there are enough
    users and rounds.
    """
    added = workload(settings)
    result: list[Correlation] = []
    for count in (1, *BANDS):
        if count > settings.rounds or count * probability > 1.0 + 1e-9:
            continue
        factor = Banded.chosen(added, count)
        sigma = accountant.noise_multiplier_for(
            epsilon,
            probability=CyclicSampler(probability, count).of_group.probability,
            rounds=-(-settings.rounds // count),  # of the group whose turn comes most often
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
    users: int,
    cohort: int,
    delta: float,
    adjacency: Adjacency,
    hold_out: HoldOut | None,
) -> Correlation:
    """Buffered noise for groups of users of size ``cohort`` that take turns.

    Raises:
        ValueError: they do not make a whole number of groups.
    """
    groups = whole_groups(users, cohort)
    added = workload(settings)
    factor = BufferedToeplitz.chosen(added, groups)
    solved = functools.partial(
        accountant.noise_multiplier_for, epsilon, delta=delta, adjacency=adjacency
    )
    # Whose turn it is shows who is held out, so that saves nothing.
    sigma = solved(probability=1.0, rounds=1)
    alone = solved(probability=1.0 / groups, rounds=settings.rounds, hold_out=hold_out)
    spread = added.error(factor)
    return Correlation(factor, sigma, spread, spread * sigma / alone)


def asked_for(
    own: Sampled, settings: OptimizerSettings, epsilon: float, **terms: Any
) -> list[Correlation]:
    """The correlated noise of some settings: buffered, or banded for each number of bands, the best
    first, and independent noise last.

    ``terms`` are users, cohort, delta, adjacency and hold-out. Raises InputError, naming the
    option, for numbers that there is no such noise for.
    """
    sizes = {name: terms[name] for name in ("users", "cohort")}
    check_correlated(own, rounds=settings.rounds, **sizes)
    if own.sampling == "blt":
        return [buffered(settings, epsilon, **terms)]
    share = terms.pop("cohort") / terms.pop("users")
    alone, *others = correlations(settings, epsilon, probability=share, **terms)
    return [*sorted(others, key=lambda one: one.error), alone]


def correlation(context: RunContext) -> Correlation | None:
    """The correlated noise of a run with the least error; None if rounds share no noise."""
    config, sizes = context.config, context.cohort_sizes
    if not (own := config.of(Sampled)).correlated:
        return None
    steps = OptimizerSettings("sgd", 1.0, config.rounds, config.momentum)
    terms = {name: sizes[name] for name in _TERMS}
    return asked_for(own, steps, config.epsilon, **terms)[0]


def correlations_of(query: PlanQuery, adjacency: Adjacency) -> list[Correlation]:
    """The same for a query, with the default optimizer, and what it was compared with."""
    given = {**query.numbers, "adjacency": adjacency, "hold_out": query.hold_out}
    steps = OptimizerSettings("sgd", 1.0, given["rounds"])
    terms = {name: given[name] for name in _TERMS}
    return asked_for(query.sampled, steps, given["epsilon"], **terms)


def about_noise(plan: SumPlan, query: PlanQuery) -> dict[str, float]:
    """The error of correlated noise relative to independent noise: for each number of bands that
    was compared; for buffers with the same turns, and with Poisson sampling.
    """
    best, *others = correlations_of(query, plan.adjacency)
    if query.sampled.sampling == "blt":
        turns = -(-plan.rounds // best.factor.groups)
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


def check_correlated(own: Sampled, *, rounds: int, cohort: int, users: int) -> None:
    """InputError, naming the option, for what there is no such noise for; 0: not given."""
    if not own.correlated:
        return
    if not BANDS[0] <= rounds <= MOST_CORRELATED_ROUNDS:
        raise InputError(
            f"--sampling {own.sampling} is for {BANDS[0]} to {MOST_CORRELATED_ROUNDS:,} --rounds, "
            f"got {rounds:,}: use poisson"
        )
    if cohort and users:
        try:
            if own.sampling == "banded":
                CyclicSampler(cohort / users, BANDS[0])
            else:
                whole_groups(users, cohort)
        except ValueError as error:
            raise InputError(f"--sampling {own.sampling}: {error}") from None


def check_sampling(config: Settings) -> None:
    """InputError, naming the option, for users who cannot be sampled as it is set."""
    sizes = {"rounds": config.rounds, "cohort": config.cohort, "users": config.users}
    check_correlated(config.of(Sampled), **sizes)


_POISSON: dict[str, None] = {"sampling": None}
SAMPLING_RULES = (
    Rule(
        lambda config, strategy: (
            config.of(Sampled).sampling != "poisson"
            and not config.users
            and config.adjacency == Adjacency.ADD_REMOVE
        ),
        "--sampling {sampling} goes by how many users there are, which add-remove keeps private; "
        "--users states a round, public number of them",
        ({"adjacency": "zero-out"}, _POISSON),
    ),
    Rule(
        lambda config, strategy: (
            config.of(Sampled).correlated and config.optimizer not in ("", "sgd")
        ),
        "--sampling {sampling} is made for what --optimizer sgd adds up",
        ({"optimizer": None}, _POISSON),
    ),
)

#: What is proven of one clipped vector of each user.
OF_VECTORS = select(Unit.VECTOR)
_TAKE_PART = {"banded": Participation.TURNS_BY_COIN, "blt": Participation.TURNS}
_CORRELATED = {"banded": Mechanism.BANDED, "blt": Mechanism.BUFFERED}


def applies(own: object, theorem: Theorem) -> bool:
    """True for a theorem about this sampling and this noise."""
    own = own if isinstance(own, Sampled) else Sampled()
    shared = theorem.mechanism if theorem.mechanism in _CORRELATED.values() else None
    same = shared is _CORRELATED.get(own.sampling)
    return same and theorem.participation is _TAKE_PART.get(own.sampling, Participation.POISSON)
