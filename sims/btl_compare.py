"""Centred AUP without tuning against the best of a grid of ULS, on synthetic judgements.

The error is ‖θ̂ − θ*‖₂ on the populations of ``sims.btl``, where answering zero has error two.
Everything runs through the strategies, messages and ledgers that users get.

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

from privacy.adjacency import Adjacency
from privacy.clipping import UserClip
from privacy.ledger import Ledger
from privacy.randomness import Randomness
from server.build import build
from server.config import RunConfig
from server.setting import Setting
from sims.btl import Population, node_of
from strategies.cohort import Registry
from strategies.rounds import CohortStrategy, Participants
from strategies.uls import DEFAULT_GROUP_SIZE, Uls, UlsPlan

_SETTINGS = RunConfig(strategy="aup", delta=1e-5, adjacency="add-remove", rounds=200, cohort=500)
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
    spent: float
    rounds: int
    clip: float | None = None
    rate: float | None = None


def _try(trial: _Trial) -> list[_Found]:
    """Every run of a trial, in an order that is the same for all seeds."""
    population, source = trial.population(), Randomness(trial.seed)
    grid = node_of(population.examples, source)
    participants = Participants.all(Registry.ask(grid, source, features="{}"))

    def setting(config: RunConfig) -> Setting:
        return Setting(
            config=config,
            participants=participants,
            source=source,
            features="{}",
            dimension=trial.dimension,
            log=lambda line: None,
            grid=grid,
            once=lambda name, release: release(),
        )

    def error(strategy: CohortStrategy) -> float:
        strategy.start(grid, num_rounds=trial.config.rounds)
        return population.error(strategy.optimizer.result_D)

    found = []
    for name in trial.untuned:
        config = replace(trial.config, **UNTUNED[name])
        with _opened(config) as ledger:
            strategy = build(setting(config), ledger).strategy
            off = error(strategy)
            found.append(_Found(name, off, ledger.epsilon(), strategy.rounds_done))
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
        with _opened(config) as ledger:
            chosen = replace(plan, clip=UserClip(clip))
            optimizer = given.optimizer("sgd", chosen.noise, rate)
            strategy = Uls(chosen, ledger, **given.arguments(optimizer))
            off = error(strategy)
            found.append(_Found("uls", off, spent, strategy.rounds_done, clip, rate))
    return found


def btl_compare(
    quick: bool = False,
    *,
    users: int = 2500,
    each: int = 10,
    dimension: int = 32,
    epsilons: Sequence[float] = (1.0, 3.0),
    seeds: int = 5,
    settings: RunConfig = _SETTINGS,
    clips: Sequence[float] = CLIPS,
    rates: Sequence[float] = RATES,
    untuned: Sequence[str] = tuple(UNTUNED),
    workers: int | None = None,
) -> list[dict[str, Any]]:
    """Errors by strategy and epsilon: what is not tuned, then the grid's best, then the grid.

    Rows hold ``strategy, epsilon, error_mean, error_sd``, and under an epsilon ``ratio`` (the error
    over that of the grid's best), ``epsilon_spent``, ``rounds``, ``clip`` and ``learning_rate``
    (where they were chosen). Those with epsilon None are the non-private references. ``quick``: two
    seeds and a fourth of the grid. ``workers``: processes; by default one for each core.
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
                replace(settings, epsilon=epsilon),
                tuple(clips),
                tuple(rates),
                tuple(untuned),
            )
            for seed in range(seeds)
        ]
        for epsilon in epsilons
    }
    populations = [trial.population() for trial in trials[epsilons[0]]]
    rows = [
        _row("maximum likelihood", None, [p.error(p.likeliest()) for p in populations]),
        _row("zero", None, [p.error(np.zeros(dimension)) for p in populations]),
    ]
    results = iter(_in_processes([t for ts in trials.values() for t in ts], workers))
    for epsilon in epsilons:
        by_run = zip(*itertools.islice(results, seeds), strict=True)
        found = [_summary(epsilon, same) for same in by_run]
        grid = [row for row in found if row["strategy"] == "uls"]
        best = min(grid, key=lambda row: row["error_mean"])
        ordered = [*found[: len(untuned)], {**best, "strategy": "uls best of grid"}, *grid]
        rows += [{**row, "ratio": row["error_mean"] / best["error_mean"]} for row in ordered]
    return rows


def _in_processes(trials: Sequence[_Trial], workers: int | None) -> list[list[_Found]]:
    workers = min(workers or len(os.sched_getaffinity(0)), len(trials))
    if workers == 1:
        return [_try(trial) for trial in trials]
    # Not forked: torch's threads do not survive that.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_try, trials))


def _summary(epsilon: float, same: Sequence[_Found]) -> dict[str, Any]:
    """The row of one strategy from its runs on all populations."""
    first = same[0]
    return _row(
        first.strategy,
        epsilon,
        [found.error for found in same],
        epsilon_spent=max(found.spent for found in same),
        rounds=fmean(found.rounds for found in same),
        clip=first.clip,
        learning_rate=first.rate,
    )


@contextmanager
def _opened(config: RunConfig) -> Iterator[Ledger]:
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
