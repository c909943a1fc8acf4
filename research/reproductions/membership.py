"""Membership inference of users from a reward model, beside the bound that the guarantee implies.

Synthetic users (``research.reproductions.btl``), each of whom is in a run independently at random;
many runs, of which each is attacked with all the others as shadow runs. The attacker knows every
judgement of the user and sees the released model. Two attacks on whole users:

- *loss threshold* (Yeom et al. 2018): users who were trained on have a lower mean loss;
- *likelihood ratio* (Carlini et al. 2022): of the user's mean logit, between Gaussians fitted to
  the shadow runs with and without this very user.

An (ε, δ)-DP run allows no attacker more than TPR ≤ e^ε FPR + δ and TPR ≤ 1 − e^−ε (1 − δ − FPR).

Legend: S runs, N users, R judgements, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import special, stats

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Population, Training
from murmuration.research.reproductions.entry import Reproduction
from murmuration.research.reproductions.plots import open_corner
from murmuration.strategies.config import RunConfig

_USERS, _EACH, _DIMENSION, ROUNDS = 120, 10, 40, 60
_RUNS = 100
_DELTA = 1e-5
ATTACKS = ("loss threshold", "likelihood ratio")
#: False-positive rates at which rows are given.
RATES = (0.01, 0.1, 0.5)


@dataclass(frozen=True, eq=False)
class Shadows:
    """Runs on random halves of the users: who was in, and each user's loss and logit under each."""

    in_SN: np.ndarray
    loss_SN: np.ndarray
    logit_SN: np.ndarray


def shadow_runs(epsilon: float | None, runs: int) -> Shadows:
    """Train on random halves; without privacy if ``epsilon`` is None."""
    population = Population.draw(0, users=_USERS, each=_EACH, dimension=_DIMENSION)
    x_RD = population.examples.x_RD.double().numpy()
    y_R = population.examples.y_R.double().numpy()
    training = Training(population.examples, Randomness(0))
    config = RunConfig(
        strategy="uls" if epsilon else "nonprivate",
        epsilon=epsilon or 1.0,
        delta=_DELTA,
        adjacency="add-remove",
        rounds=ROUNDS,
        cohort=_USERS // 2,
        users=_USERS,
        test="who is in is the attacker's question",
        seed=0,
    )
    result: dict[str, list[np.ndarray]] = {"in": [], "loss": [], "logit": []}
    for run in range(runs):
        source = Randomness(run)
        in_N = source.stream("members").random(_USERS) < 0.5
        strategy, _ = training.run(config, source=source, in_N=in_N)
        logit_R = x_RD @ strategy.optimizer.result_D
        loss_R = -special.log_expit(logit_R) * y_R - special.log_expit(-logit_R) * (1 - y_R)
        result["in"].append(in_N)
        result["loss"].append(loss_R.reshape(_USERS, _EACH).mean(axis=1))
        result["logit"].append(logit_R.reshape(_USERS, _EACH).mean(axis=1))
    return Shadows(*(np.array(result[name]) for name in ("in", "loss", "logit")))


def scores(shadows: Shadows, attack: str) -> np.ndarray:
    """The attacker's score for each user in each run, larger for "in"; (S, N)."""
    if attack == "loss threshold":
        return -shadows.loss_SN
    ratio_SN = np.zeros(shadows.logit_SN.shape)
    for side, in_SN in ((1.0, shadows.in_SN), (-1.0, ~shadows.in_SN)):
        # Moments over the other runs on this side; the run attacked is taken out.
        count_SN = in_SN.sum(axis=0) - in_SN
        sum_SN = (shadows.logit_SN * in_SN).sum(axis=0) - shadows.logit_SN * in_SN
        square_SN = (shadows.logit_SN**2 * in_SN).sum(axis=0) - shadows.logit_SN**2 * in_SN
        mean_SN = sum_SN / np.maximum(count_SN, 1)
        variance_SN = square_SN / np.maximum(count_SN, 1) - mean_SN**2
        std_SN = np.sqrt(np.maximum(variance_SN, 1e-12))
        ratio_SN += side * stats.norm.logpdf(shadows.logit_SN, mean_SN, std_SN)
    return ratio_SN


def curve(score_SN: np.ndarray, in_SN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """FPR and TPR at every threshold, from all to none."""
    order = np.argsort(-score_SN.ravel(), kind="stable")
    hit = in_SN.ravel()[order]
    tpr, fpr = np.cumsum(hit) / hit.sum(), np.cumsum(~hit) / (~hit).sum()
    return np.insert(fpr, 0, 0.0), np.insert(tpr, 0, 0.0)


def limit(fpr: np.ndarray | float, epsilon: float, delta: float) -> np.ndarray:
    """The largest TPR that (ε, δ) allows at these FPRs."""
    fpr = np.asarray(fpr, dtype=np.float64)
    with np.errstate(over="ignore"):
        steep = np.exp(min(epsilon, 700.0)) * fpr + delta
    return np.minimum(np.minimum(steep, 1 - np.exp(-epsilon) * (1 - delta - fpr)), 1.0)


#: Curves by attack and epsilon.
Curves = dict[tuple[str, float | None], tuple[np.ndarray, np.ndarray]]


def membership(
    quick: bool = False, *, epsilons: Sequence[float | None] = (None, 8.0, 1.0)
) -> tuple[list[dict[str, Any]], Curves]:
    """Rows of each attack at each ε (None: without privacy), and the curves behind them."""
    rows: list[dict[str, Any]] = []
    curves: Curves = {}
    for epsilon in epsilons:
        shadows = shadow_runs(epsilon, 16 if quick else _RUNS)
        for attack in ATTACKS:
            fpr, tpr = curve(scores(shadows, attack), shadows.in_SN)
            curves[attack, epsilon] = fpr, tpr
            at = {f"tpr_at_{rate:g}": float(np.interp(rate, fpr, tpr)) for rate in RATES}
            allowed = {
                f"limit_at_{rate:g}": float(limit(rate, epsilon, _DELTA)) if epsilon else None
                for rate in RATES
            }
            area = float(np.trapezoid(tpr, fpr))
            rows.append({"attack": attack, "epsilon": epsilon, "auc": area, **at, **allowed})
    return rows, curves


def plot(curves: Curves) -> Figure:
    """True against false positives, a panel for each attack, with what each ε allows."""
    figure = Figure(figsize=(8.4, 4.2), layout="constrained")
    for axes, attack in zip(figure.subplots(1, len(ATTACKS)), ATTACKS, strict=True):
        fpr_K = np.geomspace(1e-3, 1.0, 200)
        mine = [(epsilon, curve) for (name, epsilon), curve in curves.items() if name == attack]
        for index, (epsilon, (fpr, tpr)) in enumerate(mine):
            label = f"ε = {epsilon:g}" if epsilon else "without privacy"
            axes.plot(np.maximum(fpr, 1e-4), tpr, color=f"C{index}", label=label)
            if epsilon:
                allowed = limit(fpr_K, epsilon, _DELTA)
                axes.plot(fpr_K, allowed, "--", color=f"C{index}", lw=1, label="the most allowed")
        axes.plot(fpr_K, fpr_K, ":", color="0.5", lw=1, label="guessing")
        axes.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1.1), title=attack)
        axes.set(xlabel="users wrongly said to be in", ylabel="users rightly said to be in")
        axes.legend(frameon=False, fontsize=7)
        open_corner(axes)
    return figure


def reproduced(quick: bool) -> Reproduction:
    """Rows, whether an attack finds more than it may, and the curves."""
    rows, curves = membership(quick)
    kept = all(
        row[f"tpr_at_{rate:g}"] <= row[f"limit_at_{rate:g}"]
        for row in rows
        if row["epsilon"]
        for rate in RATES
    )
    said = "No attack finds more than" if kept else "An attack finds more than"
    remark = f"{said} its (ε, δ) allows at any of these rates of false positives."
    return Reproduction(rows, [remark], plot=plot(curves))
