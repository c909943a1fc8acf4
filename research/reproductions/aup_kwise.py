"""AUP-RLHF's Theorem 5: how does the error of a reward from rankings go with K?

Source: "A", Appendix B.4. Users rank K responses by Plackett and Luce's model, the loss is the
ranking's likelihood, and the error of Algorithm 1 is bounded by a rate that grows with K². The
paper measures no K. The bound comes from the loss's Lipschitz constant, 2·K²·L, and from a least
curvature that does not grow with K; but a ranking of K has more information than a pair, so it may
be far from tight. The population is ours: features of length one in all directions, ‖θ*‖ = 2, as in
``research.reproductions.btl``.

All strategies have one budget of tuning at each K: the same multiples of their default radius or
clip norm, the best of them chosen with knowledge of θ*, which is impossible in practice; every
other setting is the default of a run. Published AUP is in the reading in which its authors can have
run it, and what it promises is not proven. ``sampling``: maximum likelihood without privacy, the
part of the error that is there without noise.

The rule, fixed before the full run, is that of ``slopes``: the exponent of K is compared with the
bound's 2, for K ≥ 3 because a pair is the case that the theorem does not speak of.

Legend: R seeds, X values of K, J judgements, K responses, W = K − 1, D dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.optimize import minimize

from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.likelihoods import ranking_loss, ranking_residual
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import NORM, Training
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import legend_below, line, logarithmic
from murmuration.research.reproductions.slopes import Slope
from murmuration.strategies.adaptive import DEFAULT_START
from murmuration.strategies.aup.published import DEFAULT_RADIUS
from murmuration.strategies.config import RunConfig
from murmuration.strategies.uls import DEFAULT_CLIP

USERS, EACH, DIMENSION, EPSILON = 2500, 10, 16, 3.0
RESPONSES = (2, 3, 4, 6, 8, 12)
#: Of the default radius or clip norm.
SCALES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0)
#: The exponent of K in Theorem 5.
EXPONENT = 2.0
SAMPLING = "maximum likelihood, no privacy"
PUBLISHED, CENTRED, ULS = "aup:published, as run", "aup", "uls"
#: Settings, and the default radius or clip norm that the scales multiply.
STRATEGIES: Mapping[str, tuple[Mapping[str, Any], float]] = {
    PUBLISHED: ({"strategy": "aup", "variant": "published-as-run"}, DEFAULT_RADIUS),
    CENTRED: ({"strategy": "aup"}, DEFAULT_START),
    ULS: ({"strategy": "uls"}, DEFAULT_CLIP),
}
_SETTINGS = RunConfig(
    strategy="uls",
    epsilon=EPSILON,
    delta=1e-5,
    adjacency="add-remove",
    rounds=200,
    cohort=500,
    model="plackett-luce",
    test="the true model",
)


@dataclass(frozen=True, eq=False)
class Rankings:
    """Users with rankings of K responses each, and the model that they rank by."""

    examples: PairExamples
    truth_D: np.ndarray

    @classmethod
    def draw(
        cls, seed: int, responses: int, *, users: int, each: int, dimension: int
    ) -> "Rankings":
        """``users`` users with ``each`` rankings of ``responses`` responses."""
        generator = np.random.default_rng([2025, seed, responses])
        truth_D = generator.standard_normal(dimension)
        truth_D *= NORM / np.linalg.norm(truth_D)
        phi_JKD = generator.standard_normal((users * each, responses, dimension))
        phi_JKD /= np.linalg.norm(phi_JKD, axis=2, keepdims=True)
        # Rewards with Gumbel noise are in the order of Plackett and Luce's model.
        scores_JK = phi_JKD @ truth_D + generator.gumbel(size=phi_JKD.shape[:2])
        order_JK = np.argsort(-scores_JK, axis=1)
        phi_JKD = np.take_along_axis(phi_JKD, order_JK[:, :, None], axis=1)
        x_RD = (phi_JKD[:, :1] - phi_JKD[:, 1:]).reshape(-1, dimension)
        examples = PairExamples(
            torch.tensor(x_RD, dtype=torch.float32),
            torch.ones(len(x_RD)),
            torch.arange(0, users * each + 1, each),
            width=responses - 1,
            kind="ranking",
        )
        return cls(examples, truth_D)

    def error(self, theta_D: np.ndarray) -> float:
        """‖θ − θ*‖₂, the norm of the theorem."""
        return float(np.linalg.norm(theta_D - self.truth_D))

    def likeliest(self) -> np.ndarray:
        """The maximum-likelihood model of all rankings, without privacy."""
        x_JWD = self.examples.x_RD.double().view(-1, self.examples.width, self.examples.dimension)
        y_JW = self.examples.y_R.double().view(-1, self.examples.width)

        def objective(theta_D: np.ndarray) -> tuple[float, np.ndarray]:
            logits_JW = x_JWD @ torch.from_numpy(theta_D)
            slope_D = torch.einsum("jw,jwd->d", ranking_residual(logits_JW, y_JW), x_JWD)
            return float(ranking_loss(logits_JW, y_JW).mean()), slope_D.numpy() / len(y_JW)

        start_D = np.zeros(self.examples.dimension)
        return minimize(objective, start_D, jac=True, method="L-BFGS-B").x


@dataclass(frozen=True)
class _Trial:
    """One population, and the runs on it."""

    seed: int
    responses: int
    sizes: tuple[int, int, int]
    scales: tuple[float, ...]
    settings: RunConfig


def _errors(trial: _Trial) -> dict[str, dict[float | None, float]]:
    """Errors by strategy and scale."""
    users, each, dimension = trial.sizes
    people = Rankings.draw(trial.seed, trial.responses, users=users, each=each, dimension=dimension)
    training = Training(people.examples, Randomness(trial.seed))
    result: dict[str, dict[float | None, float]] = {
        SAMPLING: {None: people.error(people.likeliest())}
    }
    for name, (settings, norm) in STRATEGIES.items():
        result[name] = {}
        for scale in trial.scales:
            config = trial.settings.changed(**settings, clip_norm=scale * norm)
            strategy, _ = training.run(config)
            result[name][scale] = people.error(strategy.optimizer.result_D)
    return result


def aup_kwise(
    quick: bool = False,
    *,
    responses: Sequence[int] = RESPONSES,
    seeds: int = 5,
    sizes: tuple[int, int, int] = (USERS, EACH, DIMENSION),
    scales: Sequence[float] = SCALES,
    settings: RunConfig = _SETTINGS,
) -> list[dict[str, Any]]:
    """Rows ``strategy, responses, scale, error_mean, error_sd``, then, for every strategy,
    ``strategy, exponent, slope, low, high, verdict``.

    ``scale`` is the best of the multiples at this K, by mean error. ``sizes``: users, rankings of
    each, dimensions. ``quick``: two seeds, K of 2, 3 and 6, and two scales.
    """
    if quick:
        responses, seeds, scales = (2, 3, 6), min(seeds, 2), (1.0, 2.0)
    trials = [
        _Trial(seed, count, sizes, tuple(scales), settings.changed(seed=seed))
        for count in responses
        for seed in range(seeds)
    ]
    results = tracked(in_processes(_errors, trials), "training", len(trials))
    errors = dict(zip(((t.responses, t.seed) for t in trials), results, strict=True))
    rows: list[dict[str, Any]] = []
    slopes: list[dict[str, Any]] = []
    for name in (SAMPLING, *STRATEGIES):
        best_RX = []
        for count in responses:
            same = [errors[count, seed][name] for seed in range(seeds)]
            scale = min(same[0], key=lambda s: sum(one[s] for one in same))
            best = [one[scale] for one in same]
            best_RX.append(best)
            rows.append(
                {"strategy": name, "responses": count, "scale": scale, **mean_sd("error", best)}
            )
        several = [i for i, count in enumerate(responses) if count >= 3]
        error_RX = np.array(best_RX).T[:, several]
        slope = Slope.fitted([float(responses[i]) for i in several], error_RX)
        slopes.append({"strategy": name, **slope.columns(EXPONENT, "upper")})
    return rows + slopes


def remarks(rows: Rows) -> list[str]:
    """A sentence for every strategy: its exponent of K, the bound's, and the verdict."""
    return [
        f"{row['strategy']}: the error goes with K to the {row['slope']:.2f} "
        f"[{row['low']:.2f}, {row['high']:.2f}] against {row['exponent']:g} in A Thm 5, an upper "
        f"bound: {row['verdict']}."
        for row in rows
        if "verdict" in row
    ]


def plot(rows: Rows) -> Figure:
    """Error against K, a line for each strategy, and the slope that the theorem allows."""
    figure = Figure(figsize=(5.6, 4.4), layout="constrained")
    axes = figure.subplots()
    measured = [row for row in rows if "responses" in row]
    for i, name in enumerate(distinct(measured, "strategy")):
        same = where(measured, strategy=name)
        line(axes, same, "responses", "error_mean", "o-", color=f"C{i}", ms=4, label=name)
    counts = distinct(measured, "responses")
    start = where(measured, strategy=PUBLISHED)[0]["error_mean"]
    bound = [start * (count / counts[0]) ** EXPONENT for count in counts]
    axes.plot(counts, bound, ":", color="0.5", lw=1, label="K², as the bound grows")
    logarithmic(axes)
    axes.axhline(NORM, color="0.7", lw=0.8)
    axes.set(xlabel="responses in a ranking, K", ylabel="error of θ (answering zero: 2)")
    axes.set_ylim(top=4 * NORM)
    legend_below(figure, 2)
    return figure
