"""Zhou et al. 2025, Algorithm 3: self-play with an estimated preference that is not transitive.

Source: "S", Algorithm 3 and Theorem 4.4. Preferences need not be transitive: three groups of people
have the orders rock > paper > scissors, paper > scissors > rock and scissors > rock > paper (in the
sense "prefers to"), so a majority prefers rock to paper, paper to scissors and scissors to rock; a
fourth response is last for all. The paper reports no experiment with this algorithm.

1. The preference ℓ(a, b) = 2·P(a is preferred to b) − 1 is estimated from n judgements of pairs of
   the reference: by least squares from labels behind randomized response, c(ε) times what is stated
   (eq. 10), or by the exponential mechanism over a class, for judgements in the centre.
2. In each of T iterations b_t is drawn from π_t, the reward is ℓ̂(·, b_t), and the regression of
   eq. 11 is solved. The result is the mean of π_1, …, π_T. β = 1/√T and η = 1/T, as in Theorem D.3,
   except for one scale of β.

The error is the exact duality gap, max ℓ(π, π̂) − min ℓ(π̂, π) over all π.

*Inferred:* one prompt; every policy is in the class, and m is so large that the regression has its
minimiser, φ(π_{t+1}/π_ref) = (η·r̂/β + φ(π_t/π_ref))/(1 + η) − λ with φ(u) = u + log u, where the
clip of eq. 11 is idle; the class of preferences is all antisymmetric tables with entries in
[−1, 1], in the centre those with entries in steps of 0.1.

Rivals, on the same ℓ̂: iterative DPO (each iteration fits Bradley–Terry rewards to ℓ̂ on pairs of
π_t, and starts from π_t) and mirror descent towards a Nash equilibrium (Nash-MD: each step from a
mixture of π_t with the reference). Both are exact, without random draws, where self-play draws its
opponent; they have steps of s/√T, and are shown as their last iterate, which is how they are meant,
and as the mean of all. Each of the five has an s of its own at each T, the best of twelve on other
seeds, without privacy.

Whether the gap falls with iterations, and whose is smaller, is said by a rule: yes or no where
Student's 95 % interval of the mean paired difference over seeds leaves zero out, else undecided.

Legend: R seeds, A responses, N judgements.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.research.reproductions.alignment.claims import half_width
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import legend_below, line, logarithmic
from murmuration.research.reproductions.policies.chipo_toy import log_ratios

#: Shares of the groups, and each one's order of the four responses, best first.
_GROUPS = ((0.4, (0, 1, 2, 3)), (0.35, (1, 2, 0, 3)), (0.25, (2, 0, 1, 3)))
_SURE = 0.9  # how often a person states what their group prefers
REFERENCE_A = np.array([0.5, 0.2, 0.1, 0.2])
GRID = np.linspace(-1.0, 1.0, 21)
SCALES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
#: How a judgement is protected, and its ε.
CHANNELS = (("none", math.inf), ("central", 1.0), ("central", 0.1), ("local", 1.0), ("local", 0.3))
SELF_PLAY, DPO, NASH = "self-play", "iterative DPO", "Nash-MD"
MEAN = ", mean of iterates"


def _truth() -> np.ndarray:
    ell_AA = np.zeros((len(REFERENCE_A),) * 2)
    for share, order in _GROUPS:
        for place, better in enumerate(order):
            for worse in order[place + 1 :]:
                ell_AA[better, worse] += share * (2.0 * _SURE - 1.0)
    return ell_AA - ell_AA.T


TRUE_AA = _truth()


def duality_gap(policy_RA: np.ndarray) -> np.ndarray:
    """max ℓ(π, π̂) − min ℓ(π̂, π), (R,): twice the value of the best response to π̂, as ℓ is
    antisymmetric.
    """
    return 2.0 * (policy_RA @ TRUE_AA.T).max(axis=1)


def judged(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of the reference, (N, 2), and statements ±1 on whether the first is preferred, (N,)."""
    generator = np.random.default_rng([44, seed])
    pairs_N2 = generator.choice(len(REFERENCE_A), (n, 2), p=REFERENCE_A)
    chance_N = (1.0 + TRUE_AA[pairs_N2[:, 0], pairs_N2[:, 1]]) / 2.0
    return pairs_N2, np.where(generator.random(n) < chance_N, 1.0, -1.0)


def estimated(
    pairs_N2: np.ndarray, stated_N: np.ndarray, channel: str, epsilon: float, seed: int
) -> np.ndarray:
    """ℓ̂, (A, A), antisymmetric; 0 for pairs that nobody judged, except with the mechanism.

    Local: ε-DP for each label. Central: ε-DP for each judgement under ``replace``, since the loss
    of one is in [0, 4].
    """
    generator = np.random.default_rng([45, seed])
    low_N, high_N = pairs_N2.min(axis=1), pairs_N2.max(axis=1)
    sign_N = np.where(pairs_N2[:, 0] == low_N, 1.0, -1.0)
    c = 1.0
    if channel == "local":
        c = 1.0 / math.tanh(epsilon / 2.0)
        flipped_N = generator.random(len(stated_N)) < 1.0 / (math.exp(epsilon) + 1.0)
        stated_N = np.where(flipped_N, -stated_N, stated_N)
    size = len(REFERENCE_A)
    count_AA, sum_AA = np.zeros((size, size)), np.zeros((size, size))
    np.add.at(count_AA, (low_N, high_N), 1.0)
    np.add.at(sum_AA, (low_N, high_N), sign_N * stated_N)
    ell_AA = np.zeros((size, size))
    for a in range(size):
        for b in range(a + 1, size):
            if channel == "central":  # labels are ±1: Σ (v − y)² is n·v² − 2v·Σy and a constant
                loss = count_AA[a, b] * GRID**2 - 2.0 * GRID * sum_AA[a, b]
                weight = np.exp(-epsilon / 8.0 * (loss - loss.min()))
                ell_AA[a, b] = generator.choice(GRID, p=weight / weight.sum())
            elif count_AA[a, b]:
                ell_AA[a, b] = np.clip(c * sum_AA[a, b] / count_AA[a, b], -1.0, 1.0)
    return ell_AA - ell_AA.T


def self_play(
    ell_RAA: np.ndarray, iterations: int, scale: float, seed: int
) -> dict[str, np.ndarray]:
    """The mean policy of Algorithm 3, (R, A), with β = 1/(scale·√T) and η = 1/T."""
    generator = np.random.default_rng([46, seed])
    beta, eta = 1.0 / (scale * math.sqrt(iterations)), 1.0 / iterations
    reference_RA = np.broadcast_to(REFERENCE_A, (len(ell_RAA), len(REFERENCE_A)))
    phi_RA, policy_RA = np.ones_like(reference_RA), reference_RA
    mean_RA, place_R = np.zeros_like(reference_RA), np.arange(len(ell_RAA))
    for _ in range(iterations):
        mean_RA = mean_RA + policy_RA / iterations
        coin_R1 = generator.random((len(ell_RAA), 1))
        drawn_R = (policy_RA.cumsum(axis=1) < coin_R1).sum(axis=1).clip(max=len(REFERENCE_A) - 1)
        reward_RA = ell_RAA[place_R, :, drawn_R]
        phi_RA = (eta / beta * reward_RA + phi_RA) / (1.0 + eta)
        ratio_RA = np.exp(log_ratios(phi_RA, reference_RA, 1.0, chi=True))
        policy_RA = reference_RA * ratio_RA
    return {SELF_PLAY: mean_RA}


def iterative_dpo(
    ell_RAA: np.ndarray, iterations: int, scale: float, seed: int
) -> dict[str, np.ndarray]:
    """The last policy of iterative DPO with 1/β = scale/√T, and the mean; without random draws."""
    step = scale / math.sqrt(iterations)
    chance_RAA = ((1.0 + ell_RAA) / 2.0).clip(0.01, 0.99)
    policy_RA = np.repeat(REFERENCE_A[None], len(ell_RAA), axis=0)
    reward_RA, mean_RA = np.zeros_like(policy_RA), np.zeros_like(policy_RA)
    for _ in range(iterations):
        mean_RA += policy_RA / iterations
        weight_RAA = policy_RA[:, :, None] * policy_RA[:, None, :]
        for _ in range(4):  # Newton's steps, from the rewards of the iteration before
            sigma_RAA = 1.0 / (1.0 + np.exp(reward_RA[:, None, :] - reward_RA[:, :, None]))
            slope_RA = (weight_RAA * (sigma_RAA - chance_RAA)).sum(axis=2)
            bend_RAA = -weight_RAA * sigma_RAA * (1.0 - sigma_RAA)
            places = np.arange(len(REFERENCE_A))
            bend_RAA[:, places, places] = 0.0
            bend_RAA[:, places, places] = 1e-6 - bend_RAA.sum(axis=2)
            move_RA = np.linalg.solve(bend_RAA, (slope_RA + 1e-6 * reward_RA)[:, :, None])[:, :, 0]
            reward_RA = reward_RA - move_RA.clip(-1.0, 1.0)
        policy_RA = policy_RA * np.exp(step * (reward_RA - reward_RA.max(axis=1, keepdims=True)))
        policy_RA /= policy_RA.sum(axis=1, keepdims=True)
    return {DPO: policy_RA, DPO + MEAN: mean_RA}


def nash_md(ell_RAA: np.ndarray, iterations: int, scale: float, seed: int) -> dict[str, np.ndarray]:
    """The last policy of Nash-MD with steps of scale/√T and τ = 1/√T, and the mean."""
    step = scale / math.sqrt(iterations)
    pull = min(1.0, step / math.sqrt(iterations))  # beyond, it would leave the reference behind
    policy_RA = np.repeat(REFERENCE_A[None], len(ell_RAA), axis=0)
    mean_RA = np.zeros_like(policy_RA)
    for _ in range(iterations):
        mean_RA += policy_RA / iterations
        mixed_RA = policy_RA ** (1.0 - pull) * REFERENCE_A**pull
        mixed_RA /= mixed_RA.sum(axis=1, keepdims=True)
        policy_RA = mixed_RA * np.exp(step * np.einsum("rab,rb->ra", ell_RAA, mixed_RA))
        policy_RA /= policy_RA.sum(axis=1, keepdims=True)
    return {NASH: policy_RA, NASH + MEAN: mean_RA}


Algorithm = Callable[[np.ndarray, int, float, int], dict[str, np.ndarray]]
#: And which policies each gives.
ALGORITHMS: dict[Algorithm, tuple[str, ...]] = {
    self_play: (SELF_PLAY,),
    iterative_dpo: (DPO, DPO + MEAN),
    nash_md: (NASH, NASH + MEAN),
}


def chipo_selfplay(
    quick: bool = False,
    *,
    seeds: int = 20,
    n: int = 5000,
    iterations: Sequence[int] = (3, 10, 30, 100, 300, 1000),
) -> list[dict[str, Any]]:
    """Rows ``channel, epsilon, algorithm, scale, iterations, gap_mean, gap_sd, below_first,
    below_first_low, below_self_play, below_self_play_low, below_self_play_high``.

    ``below_first``: the gap after the fewest iterations less this one, and ``below_self_play``
    self-play's after equally many less this one; with ends of the intervals, None if there is no
    comparison. ``quick``: 6 seeds, up to 100 iterations.
    """
    if quick:
        seeds, iterations = min(seeds, 6), [count for count in iterations if count <= 100]
    tuning = [(n, seeds, count) for count in iterations]
    best = tracked(in_processes(tuned, tuning), "steps", len(tuning))
    own = dict(zip(iterations, best, strict=True))
    tasks = [
        (*channel, n, seeds, count, own[count]) for channel in CHANNELS for count in iterations
    ]
    gap_R: dict[tuple[Any, ...], np.ndarray] = {}
    played_by_all = tracked(in_processes(played, tasks), "playing", len(tasks))
    for (channel, epsilon, *_, count, _), gaps in zip(tasks, played_by_all, strict=True):
        gap_R |= {(channel, epsilon, name, count): result_R for name, result_R in gaps.items()}
    return [
        {
            "channel": channel,
            "epsilon": None if math.isinf(epsilon) else epsilon,
            "algorithm": name,
            "scale": own[count][name],
            "iterations": count,
            **mean_sd("gap", result_R.tolist()),
            **_paired("below_first", gap_R[channel, epsilon, name, min(iterations)], result_R),
            **_paired("below_self_play", gap_R[channel, epsilon, SELF_PLAY, count], result_R),
        }
        for (channel, epsilon, name, count), result_R in gap_R.items()
    ]


def tuned(task: tuple[int, int, int]) -> dict[str, float]:
    """Each policy's scale, for numbers of judgements, seeds and iterations."""
    n, seeds, count = task
    made = [
        estimated(*judged(n, seed), "none", math.inf, seed) for seed in range(1000, 1000 + seeds)
    ]
    return own_scales(np.stack(made), count)


def played(task: tuple[str, float, int, int, int, dict[str, float]]) -> dict[str, np.ndarray]:
    """Gaps over seeds, (R,), by policy, for a channel, its ε, numbers of judgements, seeds and
    iterations, and each policy's scale.
    """
    channel, epsilon, n, seeds, count, own = task
    made = [estimated(*judged(n, seed), channel, epsilon, seed) for seed in range(seeds)]
    ell_RAA = np.stack(made)
    result = {}
    for run, names in ALGORITHMS.items():
        for scale in sorted({own[name] for name in names}):
            policies = run(ell_RAA, count, scale, 0)
            result |= {name: duality_gap(policies[name]) for name in names if own[name] == scale}
    return result


def own_scales(ell_RAA: np.ndarray, iterations: int) -> dict[str, float]:
    """The scale with the least mean gap, for each policy."""
    result = {}
    for run, names in ALGORITHMS.items():
        policies_of = {scale: run(ell_RAA, iterations, scale, 1) for scale in SCALES}
        for name in names:
            gaps = {s: duality_gap(policies[name]).mean() for s, policies in policies_of.items()}
            result[name] = min(gaps, key=gaps.__getitem__)
    return result


def _paired(name: str, other_R: np.ndarray, gap_R: np.ndarray) -> dict[str, float | None]:
    """Columns for the mean difference of two gaps, and its 95 % interval."""
    less_R = other_R - gap_R
    if other_R is gap_R:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    mean, half = float(less_R.mean()), half_width(less_R.tolist())
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}


def verdict(low: float, high: float) -> str:
    """The rule's word for an interval of a difference that should be above zero."""
    return "yes" if low > 0.0 else "no" if high < 0.0 else "undecided"


def remarks(rows: Rows) -> list[str]:
    """A sentence for each channel: whether the gap falls, and how rivals compare."""
    most, result = max(distinct(rows, "iterations")), []
    for channel, epsilon in dict.fromkeys((row["channel"], row["epsilon"]) for row in rows):
        last = where(rows, channel=channel, epsilon=epsilon, iterations=most)
        (own,) = where(last, algorithm=SELF_PLAY)
        (first,) = where(
            rows, channel=channel, epsilon=epsilon, algorithm=SELF_PLAY,
            iterations=min(distinct(rows, "iterations")),
        )  # fmt: skip
        falls = verdict(own["below_first_low"], own["below_first_high"])
        rivals = "; ".join(
            f"{row['algorithm']} {row['gap_mean']:.3f} (smaller: "
            f"{verdict(row['below_self_play_low'], row['below_self_play_high'])})"
            for row in last
            if row is not own
        )
        at = "" if epsilon is None else f", ε = {epsilon:g}"
        result.append(
            f"{channel}{at}: self-play's gap goes from {first['gap_mean']:.3f} to "
            f"{own['gap_mean']:.3f} in {most:,} iterations (falls: {falls}); {rivals}."
        )
    steps = {(row["algorithm"], row["iterations"]): row["scale"] for row in rows}
    ends = (SCALES[0], SCALES[-1])
    parts = [
        f"{name} "
        + ", ".join(f"{v:g}{'*' * (v in ends)}" for (n, _), v in steps.items() if n == name)
        for name in _STYLES
    ]
    return [*result, f"Steps at each number of iterations (* an end): {'; '.join(parts)}."]


_STYLES = {
    SELF_PLAY: ("C0", "o-"),
    DPO: ("C3", "s-"),
    DPO + MEAN: ("C3", "s--"),
    NASH: ("C2", "^-"),
    NASH + MEAN: ("C2", "^--"),
}


def plot(rows: Rows) -> Figure:
    """The duality gap against iterations: a panel for each channel."""
    channels = list(dict.fromkeys((row["channel"], row["epsilon"]) for row in rows))
    figure = Figure(figsize=(2.9 * len(channels), 3.6), layout="constrained")
    panels = figure.subplots(1, len(channels), sharey=True, squeeze=False)[0]
    for axes, (channel, epsilon) in zip(panels, channels, strict=True):
        for name, (colour, style) in _STYLES.items():
            same = where(rows, channel=channel, epsilon=epsilon, algorithm=name)
            line(axes, same, "iterations", "gap_mean", style, color=colour, ms=3, label=name)
        axes.set_title(channel if epsilon is None else f"{channel}, ε = {epsilon:g}", fontsize=10)
        logarithmic(axes)
        axes.set_xlabel("iterations, T")
    panels[0].set_ylabel("duality gap")
    legend_below(figure, 5)
    return figure
