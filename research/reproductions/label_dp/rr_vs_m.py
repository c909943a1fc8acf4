"""The effect of many judgements per user on randomized response, and on strategies that average.

Source: AUP-RLHF ("A"), Remark 1 and 2. At user level randomized response has ε/m for each of m
labels, so at a fixed number m·n of judgements its error grows like m: each label has less
information. ULS and AUP protect a user's averaged gradient, whose noise does not depend on m, and
which is better the more judgements it averages. Two panels: m·n fixed, as the remark has it, and n
fixed.

All strategies use the populations of ``research.reproductions.btl`` under ``replace-labels`` at the
same ε: that is all that randomized response protects. ULS and AUP run as a user would run them,
with nothing tuned but that all judgements of a user count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.estimation.debiased import fit
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Population, Training
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import Style, legend_below, logarithmic
from murmuration.strategies.config import RunConfig

EPSILON, DIMENSION, BALL = 3.0, 16, 4.0
DEBIASED, LIKELIHOOD = "local RR, de-biased", "local RR, likelihood"
FIXED_JUDGEMENTS, FIXED_USERS = "{:,} judgements in all", "{:,} users"


@dataclass(frozen=True)
class _Trial:
    """One population: users with a number of judgements each."""

    held: str
    users: int
    each: int
    seed: int
    rounds: int


def rr_vs_m(
    quick: bool = False,
    *,
    judgements: int = 20_000,
    users: int = 1000,
    each: Sequence[int] = (1, 2, 5, 10, 20, 50),
    seeds: int = 5,
    rounds: int = 200,
) -> list[dict[str, Any]]:
    """Rows ``held, m, users, estimator, epsilon_per_label, error_mean, error_sd``.

    ``held`` says what is the same for all m. ``quick``: fewer of everything.
    """
    if quick:
        judgements, users, each, seeds, rounds = 4000, 200, (1, 20), 2, 20
    trials = [
        _Trial(held, n, m, seed, rounds)
        for held, sizes in (
            (FIXED_JUDGEMENTS.format(judgements), [judgements // m for m in each]),
            (FIXED_USERS.format(users), [users] * len(each)),
        )
        for n, m in zip(sizes, each, strict=True)
        for seed in range(seeds)
    ]
    result: dict[tuple[str, int, int, str], list[float]] = {}
    results = tracked(in_processes(_errors, trials), "training", len(trials))
    for trial, errors in zip(trials, results, strict=True):
        for name, error in errors.items():
            result.setdefault((trial.held, trial.each, trial.users, name), []).append(error)
    return [
        {
            "held": held,
            "m": m,
            "users": n,
            "estimator": name,
            "epsilon_per_label": EPSILON / m if name in (DEBIASED, LIKELIHOOD) else None,
            **mean_sd("error", errors),
        }
        for (held, m, n, name), errors in result.items()
    ]


def _errors(trial: _Trial) -> dict[str, float]:
    people = Population.draw(trial.seed, users=trial.users, each=trial.each, dimension=DIMENSION)
    coin = RandomizedResponse(LabelPromise(EPSILON).per_label(trial.each))
    generator = np.random.default_rng([trial.seed, trial.users, 1])
    flipped_J = torch.from_numpy(generator.random(trial.users * trial.each) < coin.flip_probability)
    # The preferred response is the first: a label is false where its coin says so.
    told = RandomizedLabels.of_pairs(people.examples.x_RD, ~flipped_J, coin.flip_probability)
    result = {
        name: people.error(fit(told, loss, ball=BALL, flat=1e-8).theta_D.numpy())
        for name, loss in ((DEBIASED, "debiased"), (LIKELIHOOD, "mle"))
    }
    settings = RunConfig(
        epsilon=EPSILON,
        delta=1e-5,
        adjacency="replace-labels",
        rounds=trial.rounds,
        cohort=max(1, trial.users // 5),
        group_size=trial.each,
        test="the true model",
        seed=trial.seed,
    )
    training = Training(people.examples, Randomness(trial.seed))
    for strategy in ("uls", "aup"):
        trained, _ = training.run(replace(settings, strategy=strategy))
        result[strategy] = people.error(trained.optimizer.result_D)
    return result | {"maximum likelihood": people.error(people.likeliest())}


def remarks(rows: Rows) -> list[str]:
    """Sentences on how errors change from the fewest to the most judgements per user."""
    result = []
    for held in distinct(rows, "held"):
        here = where(rows, held=held)
        least, most = min(distinct(here, "m")), max(distinct(here, "m"))
        changes = []
        for name in (DEBIASED, LIKELIHOOD, "uls", "aup"):
            errors = {row["m"]: row["error_mean"] for row in where(here, estimator=name)}
            changes.append(f"{name} {errors[least]:.2f} → {errors[most]:.2f}")
        result.append(f"{held}, m = {least} → {most}: " + ", ".join(changes) + ".")
    result.append(
        "With a single judgement a user's gradient has one length whatever the model, and clipping "
        "all to a shorter one drives ULS, untuned, beyond the truth: that bias is most of its "
        "error at m = 1."
    )
    return result


_STYLES: dict[str, Style] = {
    DEBIASED: ("C0", "-", "^"),
    LIKELIHOOD: ("C3", "--", "v"),
    "uls": ("C2", "-", "s"),
    "aup": ("C1", "-", "o"),
    "maximum likelihood": ("0.5", ":", ""),
}


def plot(rows: Rows) -> Figure:
    """Error against the judgements of each user, at fixed judgements and at fixed users."""
    panels = distinct(rows, "held")
    figure = Figure(figsize=(4.2 * len(panels), 3.9), layout="constrained")
    columns = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, held in zip(columns, panels, strict=True):
        for name, (colour, dashes, marker) in _STYLES.items():
            same = where(rows, held=held, estimator=name)
            axes.errorbar(
                *([row[column] for row in same] for column in ("m", "error_mean", "error_sd")),
                color=colour,
                ls=dashes,
                marker=marker,
                label=name,
                ms=4,
                lw=1.3,
                elinewidth=0.7,
            )
        axes.set_title(held, fontsize=10)
        logarithmic(axes)
        axes.set_xlabel("judgements of each user, m")
    columns[0].set_ylabel("‖θ̂ − θ*‖₂, mean ± sd (answering zero: 2)")
    legend_below(figure, 3)
    return figure
