"""Table 7 of AUP-RLHF: what more judgements of each user do to reward over KL divergence.

The paper has m = 10, 100, 250 and 500 on its film reviews, with the number of users fixed, and
reports reward / KL "at convergence" (in the copy at hand, reward and KL by themselves cannot be
read for most m). It does not say at which ε: here 8, as in its first figure. And here 250 users,
because 2,500 with 500 judgements would be 1.25 million; the smaller m are their first judgements.
The reward is the gain over the reference, in logits, of best of 16 answers, whose KL divergence is
at most ln 16 − 15/16 = 1.84.

The claim, judged as ``claims`` says: the ratio rises from each m to the next.
"""

import itertools
from collections.abc import Iterator, Sequence
from statistics import fmean

from matplotlib.figure import Figure

from murmuration.alignment.best_of_n import kl_bound
from murmuration.research.reproductions.alignment.answers import (
    Answers,
    written,
)
from murmuration.research.reproductions.alignment.claims import (
    Claim,
    apart,
    mean_interval,
    told,
)
from murmuration.research.reproductions.alignment.frontier import STYLES, Curve
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    CENTRED,
    EVERYBODY,
    NONPRIVATE,
    PUBLISHED,
    USERWISE,
    Learnt,
    People,
    Sizes,
    first_of_each,
    judged_in_training,
)
from murmuration.research.reproductions.entry import (
    Reproduction,
    Row,
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import (
    legend_below,
    log_ticks,
    open_corner,
    with_intervals,
)
from murmuration.research.reproductions.policies.written import cautions

EPSILON, BEST_OF = 8.0, 16
#: By m; as printed.
TABLE_7 = {10: 0.9198, 100: 0.9461, 250: 1.1486, 500: 1.4399}
NAMES = (PUBLISHED, AS_RUN, EVERYBODY, CENTRED, USERWISE)

Found = Sequence[dict[tuple[str, int], Learnt]]


def judgements_each(quick: bool = False) -> Reproduction:
    """Rows ``strategy, m, accuracy_mean, gain_mean, gain_interval, ratio_mean, ratio_interval,
    table_7``.

    ``quick``: a reference of few texts, fewer of everything.
    """
    users, each, seeds, prompts, samples = 250, tuple(TABLE_7), 5, 200, 2 * BEST_OF
    if quick:
        users, each, seeds, prompts, samples = 100, each[:2], 2, 20, BEST_OF
    answers = written(quick, prompts, samples)
    tasks = [(users, each, seed) for seed in range(seeds)]
    result = list(tracked(in_processes(one_seed, tasks), "rewards", seeds))
    return measured(answers, result)


def one_seed(task: tuple[int, Sequence[int], int]) -> dict[tuple[str, int], Learnt]:
    """Rewards by strategy and m, for a number of users, numbers of judgements, and a seed."""
    users, each, seed = task
    most = judged_in_training(users, max(each), seed)
    result = {}
    for m in each:
        people = People(Sizes(users, m), seed, first_of_each(most, m))
        for name in NAMES:
            result[name, m] = people.learnt(name, EPSILON)
        result[NONPRIVATE, m] = people.learnt(NONPRIVATE, None)
    return result


def measured(answers: Answers, found: Found) -> Reproduction:
    """Rows, remarks and plot of rewards on a pool."""
    kl = kl_bound(BEST_OF)
    ratios: dict[tuple[str, int], list[float]] = {}
    rows: list[Row] = []
    for name, m in found[0]:
        same = [learnt[name, m] for learnt in found]
        curves = [Curve.of(answers, one.theta_D) for one in same]
        gains = [float(curve.true_n[BEST_OF - 1] - curve.true_n[0]) for curve in curves]
        ratios[name, m] = [gain / kl for gain in gains]
        rows.append(
            {
                "strategy": name,
                "m": m,
                "accuracy_mean": fmean(one.accuracy for one in same),
                "rounds": fmean(one.rounds for one in same),
                **mean_interval("gain", gains),
                **mean_interval("ratio", ratios[name, m]),
                "table_7": TABLE_7.get(m),
            }
        )
    remarks = [
        *cautions(answers.unreadable),
        *told(list(claims(ratios))),
        f"Reward is the gain in logits of best of {BEST_OF}, at a KL divergence of at most "
        f"{kl:.2f}: which way the ratio goes compares with the paper's, its size does not.",
    ]
    extra = {
        "epsilon": EPSILON,
        "prompts": len(answers.truth_PN),
        "unreadable": answers.unreadable,
        "seeds": len(found),
    }
    return Reproduction(rows, remarks, extra=extra, plot=plot(rows))


def claims(ratios: dict[tuple[str, int], list[float]]) -> Iterator[Claim]:
    """The paper's, of every strategy."""
    each = sorted({m for _, m in ratios})
    for name in dict.fromkeys(name for name, _ in ratios):
        for m, more in itertools.pairwise(each):
            above = apart(ratios[name, more], ratios[name, m])
            yield Claim(name, f"{name}, m = {more} above {m}", above)


def plot(rows: Rows) -> Figure:
    """Reward over KL divergence against m, the paper's beside it."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axes = figure.subplots()
    for name in distinct(rows, "strategy"):
        colour, dashes, marker = STYLES[name]
        same = where(rows, strategy=name)
        style = {"color": colour, "ls": dashes, "marker": marker, "ms": 4}
        with_intervals(axes, same, "m", "ratio", label=name, **style)
    known = [row for row in where(rows, strategy=PUBLISHED) if row["table_7"]]
    printed = [row["table_7"] for row in known]
    axes.plot([row["m"] for row in known], printed, "k:*", label="Table 7 (another reward)")
    log_ticks(axes, distinct(rows, "m"))
    axes.set(xlabel="judgements of each user, m", ylabel="reward / KL divergence")
    open_corner(axes)
    legend_below(figure, 2)
    return figure
