"""Noise that rounds share: which there is for a run, and the one with the least error."""

import functools
from dataclasses import dataclass

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.sampling import CyclicSampler, whole_groups
from murmuration.strategies.optimizers import OptimizerSettings, workload

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
