"""The quantities in Tables 1 and 2 of AUP-RLHF, recomputed.

The paper sets the "effective noise" of its algorithm (Table 1) beside that of user-wise DP-SGD
(Table 2) and concludes that it adds less. Recomputed from its settings (TL;DR, N = 92,858
comparisons in groups of m, n = ⌊N/m⌋ users, ñ = 100, T = 5⌈n/ñ⌉, δ = 1e-5), Table 2 is a noise
*multiplier*: standard deviation over the clip norm, on a sum. Table 1 is a *variance* on a mean:
8τ² log(e^ε T/δ) ς²/ñ² with τ = 3. Cells of the two cannot be compared.

Here both are brought to one unit: the standard deviation of the noise on the averaged gradient per
unit of what bounds a user's vector (C for DP-SGD, τ for AUP). And Table 2 is computed again with a
privacy loss distribution accountant, which needs less noise than the RDP accountant for the same
epsilon; and its multiplier is accounted under replacement, which is how the paper defines privacy,
though its accountant took users to come and go.
"""

import math
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from scipy import optimize

from murmuration.privacy.accounting import accountant as accounting
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.research.reproductions.entry import Rows, distinct, where
from murmuration.research.reproductions.plots import line, logarithmic

COMPARISONS, COHORT, EPOCHS, DELTA, TAU = 92_858, 100, 5, 1e-5, 3.0
#: Those orders of the accountant with which Table 2 comes out that are ever the best one here; its
#: list begins at 1.1, where the series for fractional orders converges slowly or not at all.
_ORDERS = [1 + x / 10 for x in range(10, 100)] + list(range(12, 64))

#: Judgements of each user, over ε; as printed.
TABLE_1 = {
    1: {5: 0.366, 10: 0.586, 20: 1.051, 50: 2.429},
    3: {5: 0.139, 10: 0.175, 20: 0.246, 50: 0.461},
    8: {5: 0.086, 10: 0.102, 20: 0.128, 50: 0.189},
}
TABLE_2 = {
    1: {5: 1.101, 10: 1.284, 20: 1.631, 50: 2.402},
    3: {5: 0.726, 10: 0.809, 20: 0.928, 50: 1.182},
    8: {5: 0.531, 10: 0.578, 20: 0.639, 50: 0.750},
}

REMARKS = (
    "Table 1 is a variance on a mean, Table 2 a noise multiplier on a sum: their cells are not in "
    "one unit, and which is smaller says nothing.",
    "In one unit (the last two columns: standard deviation on the averaged gradient, in units of τ "
    "and of the clip norm C) AUP as published adds 17 to 21 times the noise of user-wise DP-SGD: "
    "less of it, then, where τ is below C/21. Which C its runs had is not printed.",
    "A privacy loss distribution accountant needs less noise than the RDP accountant of Table 2.",
    "The paper defines privacy by replacing a user, and Table 2 was accounted for users who come "
    "and go: under replacement its noise gives the larger epsilon in the column for it.",
)


def aup_tables(quick: bool = False) -> list[dict[str, Any]]:
    """One row for each cell: the printed numbers, recomputed ones, and both in one unit.

    Columns: ``epsilon``, ``m``, ``users``, ``rounds``; ``table_1`` as printed and
    ``table_1_recomputed`` (a variance); ``table_2`` as printed and ``table_2_recomputed`` (a noise
    multiplier, by RDP); ``table_2_pld``, by privacy loss distributions;
    ``epsilon_under_replace`` of Table 2's noise; ``aup_noise_over_tau`` and
    ``dpsgd_noise_over_clip``, the standard deviation on the averaged gradient. With ``quick`` only
    m = 5 and m = 50.
    """
    return list(_rows((5, 50) if quick else (5, 10, 20, 50)))


def _rows(groups: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    for epsilon in TABLE_1:
        for m in groups:
            users = COMPARISONS // m
            rounds = EPOCHS * math.ceil(users / COHORT)
            multiplier = rdp_multiplier(epsilon, DELTA, COHORT / users, rounds)
            variance = published_variance(epsilon, users, rounds)
            yield {
                "epsilon": epsilon,
                "m": m,
                "users": users,
                "rounds": rounds,
                "table_1": TABLE_1[epsilon][m],
                "table_1_recomputed": variance,
                "table_2": TABLE_2[epsilon][m],
                "table_2_recomputed": multiplier,
                "table_2_pld": accounting.noise_multiplier_for(
                    epsilon,
                    delta=DELTA,
                    probability=COHORT / users,
                    rounds=rounds,
                    adjacency=Adjacency.ADD_REMOVE,
                ),
                "epsilon_under_replace": accounting.epsilon(
                    [(PoissonGaussian(COHORT / users, TABLE_2[epsilon][m]), rounds)],
                    adjacency=Adjacency.REPLACE,
                    delta=DELTA,
                    interval=1e-3,
                ),
                "aup_noise_over_tau": math.sqrt(variance) / TAU,
                "dpsgd_noise_over_clip": multiplier / COHORT,
            }


def rdp_multiplier(epsilon: float, delta: float, probability: float, rounds: int) -> float:
    """The noise multiplier that the RDP accountant asks for, for users who come and go."""
    import dp_accounting  # dear to import, for this alone
    from dp_accounting.rdp import RdpAccountant

    def excess(sigma: float) -> float:
        gaussian = dp_accounting.GaussianDpEvent(sigma)
        step = dp_accounting.PoissonSampledDpEvent(probability, gaussian)
        accountant = RdpAccountant(_ORDERS)
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, rounds))
        return accountant.get_epsilon(delta) - epsilon

    return float(optimize.brentq(excess, 0.4, 20.0, xtol=1e-4))  # type: ignore[arg-type]


def published_variance(epsilon: float, users: int, rounds: int) -> float:
    """Algorithm 2, line 15: 8τ² log(e^ε T/δ) ς²/ñ², with ς for (ε/2, δ/2)."""
    multiplier = rdp_multiplier(epsilon / 2, DELTA / 2, COHORT / users, rounds)
    log_term = epsilon + math.log(rounds / DELTA)
    return 8.0 * TAU**2 * log_term * multiplier**2 / COHORT**2


def plot(rows: Rows) -> Figure:
    """A plot of both tables in one unit, recomputed and as printed, against the judgements of each
    user.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for column, style, told in (
        ("aup_noise_over_tau", "o-", "AUP as published, in units of τ"),
        ("dpsgd_noise_over_clip", "s--", "user-wise DP-SGD, in units of C"),
    ):
        for index, epsilon in enumerate(sorted(distinct(rows, "epsilon"))):
            label, same = f"{told}, ε = {epsilon}", where(rows, epsilon=epsilon)
            line(axes, same, "m", column, style, color=f"C{index}", ms=4, label=label)
    printed = [
        (row["m"], noise)
        for row in rows
        for noise in (math.sqrt(row["table_1"]) / TAU, row["table_2"] / COHORT)
    ]
    label = "as printed (τ = 3 and a division by the batch are inferred)"
    axes.plot(*zip(*printed, strict=True), "kx", ms=7, label=label)
    logarithmic(axes)
    axes.set(xlabel="judgements of each user, m")
    axes.set_ylabel("noise on the averaged gradient (std)")
    axes.legend(frameon=False, fontsize=7)
    return figure
