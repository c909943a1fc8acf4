"""Figure 16 of Charles et al. 2024: shared models, tuned further on each user's own judgements.

Source: "U", Appendix J.2. The paper takes language models that ELS and ULS fine-tuned, tunes each
further on half of every test user's examples (four epochs of SGD, the step size tuned), and
measures the loss on the other half: both gain about the same, so that who is ahead stays ahead.
Here it is a linear reward, of pairs with features of length one, and users who differ: a user's own
θ is the shared one, of length two, plus a deviation of a length that is stated. Compute is equal:
as many gradients of single judgements in a round. Clip norm and step size of training are the best
of the same multiples of their defaults for ELS and for ULS, the personal step size the best of a
grid for each model, all by the loss of other users, and uncharged, as the paper's.

The paper has means. Here also the harm: the share of users whose loss rises, and the deciles of the
gain.

The claims, with rules that were fixed before the full run, by 95 % intervals over seeds:

1. personalization lowers the mean loss: *agrees* if the interval of the gain is above zero,
   *differs* if it is below, *cannot be told* between;
2. both gain about the same: *agrees* if the interval of the difference of gains holds zero, or the
   difference is less than a tenth of the gain;
3. who is ahead without it is ahead with it: *agrees* if no difference of losses changes its sign
   beyond its interval.

Legend: U users, J judgements of each, D dimensions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import expit

from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.alignment.claims import half_width, mean_interval
from murmuration.research.reproductions.btl import NORM, Training, directions
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import legend_below, line, log_ticks, open_corner
from murmuration.strategies.config import RunConfig
from murmuration.strategies.steps.optimizers import ServerOptimizer
from murmuration.strategies.uls import DEFAULT_CLIP

USERS, EACH, DIMENSION, ROUNDS = 2000, 32, 16, 200
EPSILONS = (1.0, 3.0, 8.0)
#: Lengths of a user's deviation from the crowd.
DEVIATIONS = (0.5, 2.0)
#: Users in a round of ULS, and judgements of each; ELS has as many judgements in a round.
COHORT, GROUP_SIZE = 200, 8
#: Of a strategy's default step size, and of the default clip norm.
RATES, CLIPS = (1.0, 1 / 8, 1 / 64), (1.0, 8.0)
STEPS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0)
#: Of SGD over half of a user's judgements.
EPOCHS = 4
ELS, ULS, NONE = "ELS", "ULS", "no privacy"


@dataclass(frozen=True)
class Sizes:
    """Numbers of users, also for the test, of their judgements, and of rounds."""

    users: int = USERS
    each: int = EACH
    dimension: int = DIMENSION
    rounds: int = ROUNDS
    cohort: int = COHORT
    test_users: int = 500


@dataclass(frozen=True, eq=False)
class Crowd:
    """Judgements as differences of features, the preferred response first."""

    x_UJD: np.ndarray

    @classmethod
    def draw(cls, seed: int, users: int, sizes: Sizes, deviation: float, truth_D: np.ndarray):
        """Users with a θ of their own each, who judge by Bradley, Terry and Luce."""
        generator = np.random.default_rng([2026, seed, users])
        own_UD = truth_D + deviation * directions(generator, users, sizes.dimension)
        shape = (users, sizes.each, sizes.dimension)
        x_UJD = directions(generator, *shape) - directions(generator, *shape)
        agrees_UJ = generator.random(x_UJD.shape[:2]) < expit(
            np.einsum("ujd,ud->uj", x_UJD, own_UD)
        )
        return cls(np.where(agrees_UJ[..., None], x_UJD, -x_UJD))

    def examples(self) -> PairExamples:
        """The examples on which strategies train."""
        users, each, dimension = self.x_UJD.shape
        x_RD = torch.tensor(self.x_UJD.reshape(-1, dimension), dtype=torch.float32)
        return PairExamples(x_RD, torch.ones(len(x_RD)), torch.arange(0, users * each + 1, each))

    def losses_U(self, theta_D: np.ndarray, step: float) -> np.ndarray:
        """Each user's mean log loss on their second half, after SGD of this step on their
        first, one judgement at a time; none where the step is zero."""
        half = self.x_UJD.shape[1] // 2
        theta_UD = np.tile(theta_D, (len(self.x_UJD), 1))
        for judgement in EPOCHS * [*range(half)]:
            x_UD = self.x_UJD[:, judgement]
            against_U = expit(-np.einsum("ud,ud->u", x_UD, theta_UD))
            theta_UD += step * against_U[:, None] * x_UD
        logits_UJ = np.einsum("ujd,ud->uj", self.x_UJD[:, half:], theta_UD)
        return np.logaddexp(0.0, -logits_UJ).mean(axis=1)


def settings(strategy: str, epsilon: float | None, sizes: Sizes, seed: int) -> RunConfig:
    """The settings of a run, at equal compute."""
    given: dict[str, Any] = {"epsilon": epsilon or 1.0, "rounds": sizes.rounds, "seed": seed}
    given |= {"delta": 1e-5, "adjacency": "add-remove", "test": "other users"}
    if strategy == ELS:
        batch = sizes.cohort * GROUP_SIZE / (sizes.users * sizes.each)
        given |= {
            "cohort": sizes.cohort,
            "strategy": "els",
            "group_size": sizes.each,
            "sampling_probability": batch,
        }
    else:
        given |= {"strategy": "uls" if epsilon else "nonprivate"}
        given |= {"group_size": GROUP_SIZE, "cohort": sizes.cohort}
    return RunConfig.from_run_config(given)


def models(training: Training, config: RunConfig) -> Iterator[np.ndarray]:
    """Yield the model of a run with each multiple of its default clip norm and step size; without
    privacy, that of the defaults.
    """
    for clip in CLIPS if config.strategy != "nonprivate" else (0.0,):
        clipped = config.changed(clip_norm=clip * DEFAULT_CLIP)
        strategy, _ = training.run(clipped)
        yield strategy.optimizer.result_D.astype(np.float64)
        if not clip:
            return
        assert isinstance(strategy.optimizer, ServerOptimizer)
        rate = strategy.optimizer.settings.rate
        for part in RATES[1:]:
            strategy, _ = training.run(clipped.changed(learning_rate=part * rate))
            yield strategy.optimizer.result_D.astype(np.float64)


def one_seed(
    task: tuple[int, Sizes, float, Sequence[float]],
) -> dict[tuple[str, float | None], dict[str, Any]]:
    """By strategy and ε: the step, mean losses without and with personalization, and the test
    users' gains (U,).
    """
    seed, sizes, deviation, epsilons = task
    generator = np.random.default_rng([2026, seed])
    truth_D = generator.standard_normal(sizes.dimension)
    truth_D *= NORM / np.linalg.norm(truth_D)
    trained, tuned, tested = (
        Crowd.draw(10 * seed + place, users, sizes, deviation, truth_D)
        for place, users in enumerate((sizes.users, sizes.test_users, sizes.test_users))
    )
    training = Training(trained.examples(), Randomness(seed))
    result = {}
    cells = [(name, epsilon) for epsilon in epsilons for name in (ELS, ULS)]
    for name, epsilon in [*cells, (NONE, None)]:
        theta_D = min(
            models(training, settings(name, epsilon, sizes, seed)),
            key=lambda each_D: tuned.losses_U(each_D, 0.0).mean(),
        )
        step = min(STEPS, key=lambda each: tuned.losses_U(theta_D, each).mean())
        before_U, after_U = (tested.losses_U(theta_D, each) for each in (0.0, step))
        result[name, epsilon] = {
            "step": step,
            "before": float(before_U.mean()),
            "after": float(after_U.mean()),
            "gain_U": before_U - after_U,
        }
    return result


def personal(
    quick: bool = False,
    *,
    sizes: Sizes = Sizes(),
    deviations: Sequence[float] = DEVIATIONS,
    epsilons: Sequence[float] = EPSILONS,
    seeds: int = 5,
) -> list[dict[str, Any]]:
    """Rows ``deviation, strategy, epsilon, before, after, gain (mean and interval), step, harmed``
    and the deciles of users' gains, then ``deviation, epsilon, claim, difference, interval,
    verdict``. ``quick``: two seeds of few users, one deviation, two ε."""
    if quick:
        sizes, seeds = Sizes(users=300, cohort=60, rounds=40, test_users=100), 2
        deviations, epsilons = deviations[-1:], epsilons[::2]
    tasks = [(seed, sizes, d, tuple(epsilons)) for d in deviations for seed in range(seeds)]
    results = tracked(in_processes(one_seed, tasks), "personalization", len(tasks))
    by_task = dict(zip(tasks, results, strict=True))
    rows: list[dict[str, Any]] = []
    for deviation in deviations:
        same = [by_task[task] for task in tasks if task[2] == deviation]
        for name, epsilon in same[0]:
            rows.append(_row(deviation, name, epsilon, [each[name, epsilon] for each in same]))
        for epsilon in epsilons:
            els, uls = ([each[name, epsilon] for each in same] for name in (ELS, ULS))
            rows += [
                {"deviation": deviation, "epsilon": epsilon, **claim} for claim in _claims(els, uls)
            ]
    return rows


def _row(
    deviation: float, name: str, epsilon: float | None, same: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    gains = np.concatenate([each["gain_U"] for each in same])
    return {
        "deviation": deviation,
        "strategy": name,
        "epsilon": epsilon,
        **mean_interval("before", [each["before"] for each in same]),
        **mean_interval("after", [each["after"] for each in same]),
        **mean_interval("gain", [each["before"] - each["after"] for each in same]),
        "step": "/".join(f"{each['step']:g}" for each in same),
        "harmed": float((gains < 0.0).mean()),
        **{f"decile_{q}": float(np.quantile(gains, q / 10)) for q in (1, 5, 9)},
    }


def _claims(els: Sequence[Mapping[str, Any]], uls: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
    def verdict(agrees: bool) -> str:
        return "agrees" if agrees else "DIFFERS"

    rows = []
    for name, runs in ((ELS, els), (ULS, uls)):
        gains = [each["before"] - each["after"] for each in runs]
        mean, wide = float(np.mean(gains)), half_width(gains)
        outcome = "cannot be told" if abs(mean) <= wide else verdict(mean > 0.0)
        rows.append(_claim(f"{name} gains", mean, wide, outcome))
    gains = [
        (u["before"] - u["after"]) - (e["before"] - e["after"])
        for e, u in zip(els, uls, strict=True)
    ]
    mean, wide = float(np.mean(gains)), half_width(gains)
    same = abs(mean) <= max(wide, 0.1 * abs(rows[0]["difference"]))
    rows.append(_claim("ULS gains as much as ELS", mean, wide, verdict(same)))
    ahead = []
    for when in ("before", "after"):
        differences = [u[when] - e[when] for e, u in zip(els, uls, strict=True)]
        ahead.append((float(np.mean(differences)), half_width(differences)))
    beyond = [np.sign(mean) * (abs(mean) > wide) for mean, wide in ahead]
    stays = all(one * other >= 0 for one, other in pairwise(beyond))
    rows.append(_claim("who is ahead stays ahead", ahead[1][0], ahead[1][1], verdict(stays)))
    return rows


def _claim(claim: str, difference: float, wide: float, verdict: str) -> dict[str, Any]:
    interval = None if np.isinf(wide) else wide
    return {"claim": claim, "difference": difference, "interval": interval, "verdict": verdict}


def remarks(rows: Rows) -> list[str]:
    """Sentences with each claim's verdicts by deviation and ε, and on users who are harmed."""
    result = []
    for name in distinct(rows, "claim"):
        words = ", ".join(
            f"{row['verdict']} at ε = {row['epsilon']:g}, deviation {row['deviation']:g} "
            f"({row['difference']:+.4f})"
            for row in where(rows, claim=name)
        )
        result.append(f"{name}: {words}.")
    for row in rows:
        if row.get("strategy") == ULS:
            result.append(
                f"ULS, ε = {row['epsilon']:g}, deviation {row['deviation']:g}: "
                f"{row['harmed']:.0%} of users are worse off; a tenth loses more than "
                f"{-row['decile_1']:.3f}, a tenth gains more than {row['decile_9']:.3f}."
            )
    return result


def plot(rows: Rows) -> Figure:
    """Loss against ε, a panel for each deviation: without and with personalization."""
    measured = [row for row in rows if "strategy" in row]
    deviations = distinct(measured, "deviation")
    figure = Figure(figsize=(3.9 * len(deviations) + 0.4, 3.6), layout="constrained")
    panels = figure.subplots(1, len(deviations), squeeze=False)[0]
    for axes, deviation in zip(panels, deviations, strict=True):
        for name, colour in ((ELS, "C3"), (ULS, "C0")):
            same = where(measured, deviation=deviation, strategy=name)
            for when, dashes, words in (
                ("before", "o--", "the crowd's"),
                ("after", "s-", "personal"),
            ):
                label = f"{name}, {words}"
                line(axes, same, "epsilon", f"{when}_mean", dashes, color=colour, ms=4, label=label)
        (clean,) = where(measured, deviation=deviation, strategy=NONE)
        axes.axhline(clean["before_mean"], color="0.6", ls="--", lw=1)
        axes.axhline(clean["after_mean"], color="0.6", lw=1, label="no privacy")
        log_ticks(axes, distinct(where(measured, strategy=ULS), "epsilon"))
        axes.set(
            title=f"users differ by {deviation:g}", xlabel="ε", ylabel="loss on the other half"
        )
        open_corner(axes)
    legend_below(figure, 3)
    return figure
