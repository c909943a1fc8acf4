"""Centred AUP without tuning against the best of a grid of ULS, on synthetic judgements.

The error is ‖θ̂ − θ*‖₂ on the populations of ``sims.reproductions.btl``, where answering zero has
error two. Everything runs through the strategies, messages and ledgers that users get.

Strategies that protect labels only are compared among themselves (``label_compare``), beside the
same grid under ``replace-labels``: figures under two adjacencies do not compare.

The grid's best is chosen by looking at θ*, which nobody can do, and what looking would cost is not
charged: it is a bound on what tuning could achieve. Its ends are worse than its middle, but for
the smallest clip norm: below that everybody is scaled to one length, and nothing changes.
"""

import itertools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from murmuration.preference.estimation.bounds import Bound, Case
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.server.config import RunConfig
from murmuration.sims.cli.bounds import all_bounds
from murmuration.sims.reproductions.btl import NORM, Population, node_of, solved
from murmuration.strategies import registry
from murmuration.strategies.base import CohortStrategy, Participants
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.registry import build
from murmuration.strategies.spec import RunContext
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE
from murmuration.strategies.uls import Uls, UlsPlan

_SETTINGS = RunConfig(
    strategy="aup",
    delta=1e-5,
    adjacency="add-remove",
    rounds=200,
    cohort=500,
    test="the true model",
)
USERS, EACH, DIMENSION = 2500, 10, 32
#: Clip norms of the grid, and its step sizes in units of the clip norm.
CLIPS = (0.1, 0.2, 0.3, 0.4)
RATES = (0.25, 0.35, 0.5, 0.7, 1.0)
#: What is run as a user would run it, with nothing chosen.
UNTUNED: Mapping[str, Mapping[str, Any]] = {
    "aup": {"strategy": "aup"},
    "aup above-threshold": {"strategy": "aup", "adaptation": "above-threshold"},
    "adaptive": {"strategy": "adaptive"},
    "uls default": {"strategy": "uls"},
    "aup:published": {"strategy": "aup", "variant": "published"},
}
#: The same where prompts and responses are public.
UNTUNED_LABELS: Mapping[str, Mapping[str, Any]] = {
    "label-moment": {"strategy": "label-moment", "rounds": 1},
    "label-moment, 2 rounds": {"strategy": "label-moment", "rounds": 2},
    "objective-perturbation": {"strategy": "objective-perturbation", "rounds": 1},
    "aup": {"strategy": "aup"},
}


@dataclass(frozen=True)
class _Trial:
    """One population at one epsilon, with everything that is run on it."""

    seed: int
    users: int
    each: int
    dimension: int
    config: RunConfig
    clips: tuple[float, ...]
    rates: tuple[float, ...]
    untuned: tuple[str, ...]

    def population(self) -> Population:
        """Its users."""
        return Population.draw(
            self.seed, users=self.users, each=self.each, dimension=self.dimension
        )


@dataclass(frozen=True)
class _Found:
    """What one run came to; ``clip`` and ``rate`` where they were chosen."""

    strategy: str
    error: float
    semi_norm: float
    spent: float
    rounds: int
    clip: float | None = None
    rate: float | None = None


def _try(trial: _Trial) -> list[_Found]:
    """Every run of a trial, in an order that is the same for all seeds."""
    population, source = trial.population(), Randomness(trial.seed)
    grid = node_of(population.examples, source)
    participants = Participants.all(Registry.ask(grid, source, features="{}"))

    def setting(config: RunConfig) -> RunContext:
        return RunContext(
            strategy=registry.named(config.strategy),
            config=config,
            participants=participants,
            source=source,
            features="{}",
            dimension=trial.dimension,
            log=lambda line: None,
            grid=grid,
            once=lambda name, release: release(),
        )

    def errors(strategy: CohortStrategy, rounds: int) -> dict[str, float]:
        strategy.start(grid, num_rounds=rounds)
        theta_D = strategy.optimizer.result_D
        return {
            "error": population.error(theta_D),
            "semi_norm": population.semi_norm_error(theta_D),
        }

    found = []
    for name in trial.untuned:
        config = replace(trial.config, **{**UNTUNED, **UNTUNED_LABELS}[name])
        with opened(config) as ledger:
            if config.strategy in registry.solved():
                strategy = solved(setting(config), population.examples, ledger)
            else:
                strategy = build(setting(config), ledger).strategy
            off = errors(strategy, config.rounds)
            found.append(_Found(name, spent=ledger.epsilon(), rounds=strategy.rounds_done, **off))
    config = replace(trial.config, strategy="uls")
    plan = UlsPlan.for_epsilon(
        config.epsilon,
        users=trial.users,
        cohort=config.cohort,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=UserClip(1.0),
        group_size=config.group_size or DEFAULT_GROUP_SIZE,
    )
    spent = plan.epsilon()
    for clip, steps in itertools.product(trial.clips, trial.rates):
        rate = steps / clip
        given = setting(replace(config, learning_rate=rate))
        with opened(config) as ledger:
            chosen = replace(plan, clip=UserClip(clip))
            optimizer = given.optimizer("sgd", chosen.noise, rate)
            strategy = Uls(chosen, ledger, **given.arguments(optimizer))
            off = errors(strategy, config.rounds)
            done = strategy.rounds_done
            found.append(_Found("uls", spent=spent, rounds=done, clip=clip, rate=rate, **off))
    return found


def btl_compare(
    quick: bool = False,
    *,
    users: int = USERS,
    each: int = EACH,
    dimension: int = DIMENSION,
    epsilons: Sequence[float] = (1.0, 3.0),
    seeds: int = 5,
    settings: RunConfig = _SETTINGS,
    clips: Sequence[float] = CLIPS,
    rates: Sequence[float] = RATES,
    untuned: Sequence[str] = tuple(UNTUNED),
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Errors by strategy and epsilon: what is not tuned, then the grid's best, then the grid.

    Rows hold ``strategy, epsilon, error_mean, error_sd, semi_norm_mean`` (the error in the
    semi-norm of Σ_D), and under an epsilon ``ratio`` (the error over that of the grid's best),
    ``epsilon_spent``, ``rounds``, ``adjacency``, ``clip`` and ``learning_rate`` (where they were
    chosen). Those with epsilon None are the non-private references. ``quick``: two seeds and a
    fourth of the grid.
    ``workers``: processes; by default one for each core.
    """
    if quick:
        seeds, clips, rates = 2, clips[1::2], rates[::2]
    trials = {
        epsilon: [
            _Trial(
                seed,
                users,
                each,
                dimension,
                replace(settings, epsilon=epsilon, seed=seed),
                tuple(clips),
                tuple(rates),
                tuple(untuned),
            )
            for seed in range(seeds)
        ]
        for epsilon in epsilons
    }
    populations = [trial.population() for trial in trials[epsilons[0]]]
    rows = []
    for name, known in (
        ("maximum likelihood", [population.likeliest() for population in populations]),
        ("zero", [np.zeros(dimension) for _ in populations]),
    ):
        both = list(zip(populations, known, strict=True))
        semi = fmean(population.semi_norm_error(theta_D) for population, theta_D in both)
        errors = [population.error(theta_D) for population, theta_D in both]
        rows.append(_row(name, None, errors, semi_norm_mean=semi))
    results = iter(_in_processes([t for ts in trials.values() for t in ts], workers))
    for epsilon in epsilons:
        by_run = zip(*itertools.islice(results, seeds), strict=True)
        found = [_summary(epsilon, settings.adjacency, same) for same in by_run]
        grid = [row for row in found if row["strategy"] == "uls"]
        best = min(grid, key=lambda row: row["error_mean"])
        ordered = [*found[: len(untuned)], {**best, "strategy": "uls best of grid"}, *grid]
        rows += [{**row, "ratio": row["error_mean"] / best["error_mean"]} for row in ordered]
    return rows


def label_compare(quick: bool = False, **given: Any) -> list[dict[str, Any]]:
    """``btl_compare`` under ``replace-labels``, without the references; arguments as there."""
    settings = replace(given.pop("settings", _SETTINGS), adjacency="replace-labels")
    given.setdefault("untuned", tuple(UNTUNED_LABELS))
    rows = btl_compare(quick, settings=settings, **given)
    return [row for row in rows if row["epsilon"] is not None]


def theory(
    epsilon: float,
    *,
    users: int = USERS,
    each: int = EACH,
    dimension: int = DIMENSION,
    delta: float = _SETTINGS.delta,
) -> list[Bound]:
    """What the papers prove about these populations, where κ is 2/d, L is 1 and B is ‖θ*‖."""
    case = Case(users, each, dimension, epsilon, delta, model_bound=NORM, coverage=2.0 / dimension)
    return all_bounds(case)


def _in_processes(trials: Sequence[_Trial], workers: int | None) -> list[list[_Found]]:
    workers = min(workers or len(os.sched_getaffinity(0)), len(trials))
    if workers == 1:
        return [_try(trial) for trial in trials]
    # Not forked: torch's threads do not survive that.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_try, trials))


def _summary(epsilon: float, adjacency: str, same: Sequence[_Found]) -> dict[str, Any]:
    """The row of one strategy from its runs on all populations."""
    first = same[0]
    return _row(
        first.strategy,
        epsilon,
        [found.error for found in same],
        semi_norm_mean=fmean(found.semi_norm for found in same),
        epsilon_spent=max(found.spent for found in same),
        rounds=fmean(found.rounds for found in same),
        clip=first.clip,
        learning_rate=first.rate,
        adjacency=adjacency,
    )


@contextmanager
def opened(config: RunConfig) -> Iterator[Ledger]:
    """A ledger of a run whose folder nobody keeps, in memory where there is such a folder."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(
            prefix="btl-", dir=memory if memory.is_dir() else None
        ) as folder,
        Ledger(
            Path(folder) / "ledger.jsonl",
            adjacency=Adjacency(config.adjacency),
            delta=config.delta,
            budget=None,
        ) as ledger,
    ):
        yield ledger


def _row(
    strategy: str, epsilon: float | None, errors: Sequence[float], **more: Any
) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "epsilon": epsilon,
        "error_mean": fmean(errors),
        "error_sd": stdev(errors) if len(errors) > 1 else None,
        **more,
    }
