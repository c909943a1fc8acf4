"""A policy chosen with central privacy: its sub-optimality, as the number of people and ε grow.

Source: Zhou et al. 2025, Algorithm 2 and Theorem 3.7: an exponential mechanism over a finite class
of policies by the loss of Square-χPO, whose sub-optimality falls like (1 + 1/√ε)·√(log|Π|/n). They
have one judgement a user. Here users have one to sixteen, and count as the mean of theirs (user
level) or by each judgement (item level, where a user of sixteen has sixteen times the ε).

The class is drawn before any data are used, with a seed of its own: policies that χPO would make of
rewards φ(prompt, response)·θ for random θ; the true reward is another such. The mechanism's
expected sub-optimality is computed from its exact probabilities, so repetitions differ only in the
users. The sums of losses are made by ``contribution``, user by user, as in a deployment. Class and
rule were changed once, after a quick run in which the reward that is missed flattened out.

Legend: P policies, S prompts, A responses, K kinds of judgement (prompt, two responses, who won),
J judgements of a user, N users, R repetitions, D dimensions.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from scipy import special

from murmuration.preference.policy_losses import PolicyLoss
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.entry import Rows, distinct, mean_sd, tracked, where
from murmuration.research.reproductions.plots import legend_below, line, logarithmic
from murmuration.research.reproductions.policies.chipo_toy import log_ratios
from murmuration.research.strategies.choice.exponential_mechanism import (
    ExponentialMechanism,
    span_of,
)

POLICIES, PROMPTS, RESPONSES, DIMENSION = 1000, 8, 5, 5
R_MAX, BETA = 2.0, 0.2
#: The most judgements of a user.
MOST = 16
ADJACENCIES = (Adjacency.ADD_REMOVE, Adjacency.REPLACE)
LEVELS = {"user": 0, "item": MOST}
#: Of what a policy drawn blindly misses: next to nothing, as a cost of privacy.
_NEGLIGIBLE = 0.05
#: To each prompt each response is as likely.
_REFERENCE_1A = np.full((1, RESPONSES), 1.0 / RESPONSES)


def chipo_cdp(
    quick: bool = False,
    *,
    sizes: Sequence[int] = (100, 300, 1000, 3000, 10_000),
    epsilons: Sequence[float] = (0.1, 0.3, 1.0, 3.0),
    repetitions: int = 20,
) -> list[dict[str, Any]]:
    """Rows ``level, adjacency, epsilon, user_epsilon, n, gap_mean, gap_sd, excess, bound``.

    ``n`` is users. ``gap``: J(best of the class) − J(chosen), in true reward. ``excess``: by how
    much the mean loss of what is chosen exceeds the least, and ``bound`` what that is at most,
    expected; means over users, at item level over judgements. ``epsilon`` is of the level,
    ``user_epsilon`` of a user. Rows without an adjacency are of the choice with the least loss.
    """
    if quick:
        sizes, epsilons, repetitions = (100, 1000, 10_000), tuple(epsilons)[::2], 5
    ratio_PSA, value_P = policies()
    loss_KP, gap_P = losses(ratio_PSA), value_P.max() - value_P
    result: dict[tuple[Any, ...], list[tuple[float, float, float]]] = {}
    for repetition in tracked(range(repetitions), "asking people", repetitions):
        people = asked(max(sizes), repetition)
        for level, cap in LEVELS.items():
            sums = _sums(people, loss_KP, cap, sizes)
            for n, (sum_P, units) in zip(sizes, sums, strict=True):
                best = float(gap_P[sum_P == sum_P.min()].mean())
                result.setdefault((level, None, None, n), []).append((best, 0.0, 0.0))
                for adjacency, epsilon in itertools.product(ADJACENCIES, epsilons):
                    made = mechanism(epsilon, adjacency, cap)
                    chosen = (
                        float(made.probabilities(sum_P) @ gap_P),
                        made.expected_gap(sum_P) / units,
                        made.gap_bound() / units,
                    )
                    result.setdefault((level, adjacency, epsilon, n), []).append(chosen)
    return [
        {
            "level": level,
            "adjacency": adjacency and adjacency.value,
            "epsilon": epsilon,
            "user_epsilon": epsilon and epsilon * max(1, LEVELS[level]),
            "n": n,
            **mean_sd("gap", [gap for gap, _, _ in values]),
            "excess": fmean(excess for _, excess, _ in values),
            "bound": fmean(bound for _, _, bound in values),
        }
        for (level, adjacency, epsilon, n), values in result.items()
    ]


def mechanism(epsilon: float, adjacency: Adjacency, cap: int) -> ExponentialMechanism:
    """The one that chooses among the class."""
    return ExponentialMechanism(epsilon, span_of(R_MAX), POLICIES, adjacency, cap)


@cache
def policies() -> tuple[np.ndarray, np.ndarray]:
    """The class: log-ratios (P, S, A), and the true expected rewards (P,)."""
    reward_SAP = np.clip(R_MAX / 2 * (1.0 + _features() @ _directions(11, POLICIES).T), 0.0, R_MAX)
    flat_SA = np.moveaxis(reward_SAP, 2, 0).reshape(-1, RESPONSES)
    ratio_PSA = log_ratios(flat_SA, _REFERENCE_1A, BETA, chi=True).reshape(-1, PROMPTS, RESPONSES)
    share_PSA = _REFERENCE_1A * np.exp(ratio_PSA)
    return ratio_PSA, (share_PSA * truth()).sum(axis=(1, 2)) / PROMPTS


def truth() -> np.ndarray:
    """The true reward, (S, A), in [0, R_max]; none of the class was made for it."""
    return np.clip(R_MAX / 2 * (1.0 + _features() @ _directions(12, 1)[0]), 0.0, R_MAX)


def _features() -> np.ndarray:
    return np.random.default_rng([3, 0]).standard_normal((PROMPTS, RESPONSES, DIMENSION))


def _directions(seed: int, count: int) -> np.ndarray:
    drawn = np.random.default_rng([3, seed]).standard_normal((count, DIMENSION))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) / math.sqrt(DIMENSION) * 2.0


#: Prompt, preferred response, other response, of each kind of judgement.
KINDS = np.array(
    [
        (prompt, first, other)
        for prompt in range(PROMPTS)
        for first in range(RESPONSES)
        for other in range(RESPONSES)
        if first != other
    ]
)


def losses(ratio_PSA: np.ndarray) -> np.ndarray:
    """Square-χPO's loss of each policy on each kind of judgement, (K, P)."""
    prompt_K, first_K, other_K = KINDS.T
    loss, y_K1 = PolicyLoss("square-chipo", BETA, R_MAX), torch.ones(len(KINDS), 1).double()
    columns = [
        loss.loss(
            torch.from_numpy(np.stack([r[prompt_K, first_K], r[prompt_K, other_K]], axis=1)), y_K1
        )
        for r in ratio_PSA
    ]
    return torch.stack(columns, dim=1).numpy()


def asked(users: int, seed: int) -> list[np.ndarray]:
    """The kinds of judgement that each of ``users`` users gave, (J,) each, J heavy-tailed."""
    generator = np.random.default_rng([2505, seed])
    count_N = np.minimum(generator.geometric(0.2, users), MOST)
    total = int(count_N.sum())
    prompt_T = generator.integers(PROMPTS, size=total)
    first_T = generator.integers(RESPONSES, size=total)
    other_T = (first_T + generator.integers(1, RESPONSES, size=total)) % RESPONSES
    apart_T = truth()[prompt_T, first_T] - truth()[prompt_T, other_T]
    won_T = generator.random(total) < special.expit(apart_T)
    first_T, other_T = np.where(won_T, first_T, other_T), np.where(won_T, other_T, first_T)
    later_T = other_T > first_T  # the preferred response has no kind with itself
    kind_T = (prompt_T * RESPONSES + first_T) * (RESPONSES - 1) + other_T - later_T
    return np.split(kind_T, np.cumsum(count_N)[:-1])


def _sums(
    people: list[np.ndarray], loss_KP: np.ndarray, cap: int, sizes: Sequence[int]
) -> list[tuple[np.ndarray, int]]:
    """The sums (P,) of the first people, for each of ``sizes``, and the number of users or
    judgements in each.
    """
    made = mechanism(1.0, ADJACENCIES[0], cap)  # neither matters to what is contributed
    total_P, units, result = np.zeros(POLICIES), 0, {}
    for count, kinds_J in enumerate(people, start=1):
        total_P += made.contribution(loss_KP[kinds_J])
        units += len(kinds_J) if cap else 1
        if count in sizes:
            result[count] = total_P.copy(), units
    return [result[n] for n in sizes]


def agrees(rows: Rows) -> bool:
    """The rule, at each level and relation.

    The expected excess loss falls with n and with ε throughout, and keeps to its bound. So does the
    true reward that is missed, except where privacy costs next to nothing (``_NEGLIGIBLE``): the
    best for the loss is not quite the best in truth. With the most people and the largest ε it
    costs next to nothing.
    """
    private = [row for row in rows if row["adjacency"]]
    sizes, epsilons = sorted(distinct(rows, "n")), sorted(distinct(private, "epsilon"))
    at = {(r["level"], r["adjacency"], r["epsilon"], r["n"]): r for r in private}
    cases = dict.fromkeys((row["level"], row["adjacency"]) for row in private)
    steps = [
        (at[*case, epsilon, few], at[*case, epsilon, many])
        for case in cases
        for epsilon in epsilons
        for few, many in itertools.pairwise(sizes)
    ] + [
        (at[*case, less, n], at[*case, more, n])
        for case in cases
        for n in sizes
        for less, more in itertools.pairwise(epsilons)
    ]
    little = _NEGLIGIBLE * _blind()
    return (
        all(row["excess"] <= row["bound"] for row in private)
        and all(after["excess"] < before["excess"] for before, after in steps)
        and all(
            after["gap_mean"] < before["gap_mean"] or _cost(rows, after) <= little
            for before, after in steps
        )
        and all(_cost(rows, at[*case, epsilons[-1], sizes[-1]]) <= little for case in cases)
    )


def _cost(rows: Rows, row: Any) -> float:
    """The increase in missed true reward over the choice without privacy."""
    (clean,) = where(rows, level=row["level"], n=row["n"], adjacency=None)
    return row["gap_mean"] - clean["gap_mean"]


def _blind() -> float:
    """The expected true reward missed by a policy drawn from the class without data."""
    value_P = policies()[1]
    return float((value_P.max() - value_P).mean())


def remarks(rows: Rows) -> list[str]:
    """Sentences on the verdict, the number of people needed, and the guarantees of both levels."""
    private = [row for row in rows if row["adjacency"]]
    most = max(distinct(rows, "n"))
    result = [
        f"Agrees by the rule: {'yes' if agrees(rows) else 'NO'}. A policy drawn blindly from the "
        f"class misses {_blind():.3f}; without privacy, {most:,} users' choice misses "
        + " and ".join(
            f"{row['gap_mean']:.3f} ({row['level']} level)"
            for row in where(rows, adjacency=None, n=most)
        )
        + "."
    ]
    for level, adjacency in itertools.product(LEVELS, ADJACENCIES):
        told = []
        for epsilon in distinct(private, "epsilon"):
            enough = [
                row["n"]
                for row in where(rows, level=level, adjacency=adjacency.value, epsilon=epsilon)
                if _cost(rows, row) <= _NEGLIGIBLE * _blind()
            ]
            told.append(f"{f'{min(enough):,}' if enough else f'> {most:,}'} at ε = {epsilon:g}")
        result.append(
            f"{level.capitalize()} level, {adjacency}: privacy costs under {_NEGLIGIBLE:.0%} of "
            f"that from so many users on: {', '.join(told)}."
        )
    largest = max(row["excess"] / row["bound"] for row in private)
    result.append(f"The expected excess loss is at most {largest:.0%} of its bound.")
    result.append(
        f"At item level ε is of one judgement: who gave {MOST} of them has {MOST} times as much "
        "(user_epsilon). Equal ε are other promises."
    )
    return result


def plot(rows: Rows) -> Figure:
    """True reward missed (above) and excess loss with its bound (below), for each level."""
    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    panels = figure.subplots(2, len(LEVELS), sharex=True, sharey="row")
    for column, level in enumerate(LEVELS):
        above, below = panels[:, column]
        line(above, where(rows, level=level, adjacency=None), "n", "gap_mean", color="0.3", lw=2.5)
        for place, epsilon in enumerate(sorted(distinct(rows, "epsilon"))):
            for adjacency, dashes in zip(ADJACENCIES, ("-", "--"), strict=True):
                same = where(rows, level=level, adjacency=adjacency.value, epsilon=epsilon)
                style = {"color": f"C{place}", "ls": dashes, "marker": "o", "ms": 3}
                line(above, same, "n", "gap_mean", label=f"ε = {epsilon:g}, {adjacency}", **style)
                line(below, same, "n", "excess", **style)
            bound = where(rows, level=level, adjacency="replace", epsilon=epsilon)
            line(below, bound, "n", "bound", color=f"C{place}", ls=":", lw=1)
        for axes in (above, below):
            logarithmic(axes)
            axes.xaxis.set_major_locator(LogLocator())
        below.yaxis.set_major_locator(LogLocator())
        above.set_title(f"ε of a {'user' if level == 'user' else 'judgement'} ({level} level)")
        below.set_xlabel("users, n")
    panels[0, 0].set_ylabel("true reward missed\n(grey: no privacy)")
    panels[1, 0].set_ylabel("excess mean loss, expected\n(dotted: bound under replace)")
    legend_below(figure, 4)
    return figure
