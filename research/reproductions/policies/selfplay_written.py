"""Zhou et al. 2025, Algorithm 3, by a small model that writes, where nobody is best.

Source: "S", Algorithm 3; the paper has no experiment with it. The embedded population's answers are
of three kinds: cautious ones, daring ones in plain words, and daring ones in technical words. Each
kind is preferred to the next with probability 0.9, in a circle, so no reward orders them, and to
mix them evenly is the equilibrium; what cannot be read loses against what can. About 3,000 pairs
people state who is preferred, behind randomized response (or truly, where no ε is given). From the
same statements come

- self-play as ``--loss selfplay`` has it (`preference.estimation.self_play`);
- iterative DPO, on the same estimate of the general preference: in as many iterations the policy
  writes as many pairs, one of each is preferred as the estimate has it, and DPO goes on from there;
- robust DPO and Square-χPO, one pass over all statements: for rewards.

**Each has the step size and β whose gap is least on a seed of its own**, at each ε, out of the same
four. The gap is that of the shares of kinds among a policy's own answers at temperature 0.5: twice
by how much the answer that is hardest on the policy is preferred, ℓ in [−1, 1]; 0 of the
equilibrium. It is exact for these shares, which are counted among a few hundred answers: even of
the equilibrium itself the greatest of three counted numbers is above 0. Nash-MD is left out: it
writes from mixtures of two policies.

Legend: J pairs, R answers, K kinds.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.estimation.general_preference import GeneralPreference
from murmuration.preference.estimation.self_play import SelfPlay
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.policies import policy_examples
from murmuration.research.reproductions.alignment.answers import EXCHANGES, FEW_EXCHANGES
from murmuration.research.reproductions.alignment.claims import mean_interval
from murmuration.research.reproductions.bandits.corruption import Corruption
from murmuration.research.reproductions.entry import (
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import legend_below, open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.research.reproductions.policies.written import (
    FIT,
    SAMPLING,
    TUNING_SEED,
    cautions,
    trained,
)
from murmuration.sims.population.population import Answer, Population
from murmuration.sims.population.reading import read, topic_of

SELF_PLAY, ITERATIVE, ROBUST, SQUARE = "self-play", "iterative DPO", "robust DPO", "Square-χPO"
METHODS = {SELF_PLAY: "selfplay", ITERATIVE: "dpo", ROBUST: "robust-dpo", SQUARE: "square-chipo"}
BASE = "the base"
#: Step size and β.
SETTINGS = ((0.1, 1.0), (0.3, 1.0), (0.1, 0.1), (0.3, 0.1))
Setting = tuple[float, float]
#: ℓ of a kind over a kind; the last is what cannot be read.
TRUTH_KK = np.array(
    [[0.0, 0.8, -0.8, 0.8], [-0.8, 0.0, 0.8, 0.8], [0.8, -0.8, 0.0, 0.8], [-0.8, -0.8, -0.8, 0.0]]
)
KINDS = ("cautious", "daring, plain", "daring, technical")
UNREADABLE = len(KINDS)
_LABELS, _TRUTH = 1, 2  # of a seed, streams of coins and of what people prefer
#: An ε, None of true labels, and a method.
Cell = tuple[float | None, str]


@dataclass(frozen=True)
class Sizes:
    """Of one seed."""

    pairs: int = 3000
    prompts: int = 500
    iterations: int = 8
    played: int = 256


class Written(NamedTuple):
    """Of a policy's answers: the gap, how often they are preferred to the base's, and shares."""

    gap: float
    wins: float
    shares_K: np.ndarray


def selfplay_written(
    quick: bool = False,
    *,
    epsilons: Sequence[float | None] = (2.0,),
    seeds: int = 5,
    sizes: Sizes = Sizes(),
    tuning_seeds: int = 1,
) -> list[dict[str, Any]]:
    """Rows ``epsilon, method, step, beta, tuned_gap, chosen`` of each setting tried; then rows
    ``epsilon, method, step, beta, gap_mean, gap_interval, below_mean, below_interval, wins_mean,
    wins_interval, unreadable`` and a share of each kind.

    ``below``: by how much self-play's gap is smaller than that row's, paired by seed. Rows without
    ε are of true labels. ``quick``: two seeds of a reference with little text, and one setting.
    """
    texts, settings = EXCHANGES, SETTINGS
    if quick:
        texts, settings, seeds = FEW_EXCHANGES, SETTINGS[:1], 2
        sizes = Sizes(pairs=200, prompts=40, iterations=2, played=32)
    cells = list(itertools.product(epsilons, METHODS))
    with reference(Population().texts("train", texts)) as path:
        trials = [
            (path, TUNING_SEED + seed, dict.fromkeys(cells, setting), sizes)
            for setting in settings
            for seed in range(tuning_seeds)
        ]
        tried = list(tracked(in_processes(one_seed, trials), "settings", len(trials)))
        rows = [
            row
            for cell in cells
            for row in tuning(
                cell,
                settings,
                [
                    fmean(won[cell].gap for won in tried[at : at + tuning_seeds])
                    for at in range(0, len(tried), tuning_seeds)
                ],
            )
        ]
        own = {
            (row["epsilon"], row["method"]): (row["step"], row["beta"])
            for row in rows
            if row["chosen"]
        }
        tasks = [(path, seed, own, sizes) for seed in range(seeds)]
        result = list(tracked(in_processes(one_seed, tasks), "policies", seeds))
    for cell in result[0]:
        same = [each[cell] for each in result]
        ours = [each[cell[0] if cell[1] != BASE else epsilons[0], SELF_PLAY] for each in result]
        shares_K = np.mean([each.shares_K for each in same], axis=0)
        rows.append(
            {
                "epsilon": cell[0],
                "method": cell[1],
                **dict(zip(("step", "beta"), own.get(cell, (None, None)), strict=True)),
                **mean_interval("gap", [each.gap for each in same]),
                **mean_interval(
                    "below", [each.gap - own.gap for each, own in zip(same, ours, strict=True)]
                ),
                **mean_interval("wins", [each.wins for each in same]),
                **dict(zip((*KINDS, "unreadable"), shares_K.tolist(), strict=True)),
            }
        )
    return rows


def tuning(cell: Cell, settings: Sequence[Setting], gaps: Sequence[float]) -> list[dict[str, Any]]:
    """Rows ``epsilon, method, step, beta, tuned_gap, chosen``, the least gap chosen."""
    return [
        {
            "epsilon": cell[0],
            "method": cell[1],
            "step": step,
            "beta": beta,
            "tuned_gap": gap,
            "chosen": place == gaps.index(min(gaps)),
        }
        for place, ((step, beta), gap) in enumerate(zip(settings, gaps, strict=True))
    ]


def kind(answer: Answer) -> int:
    """Return which of `KINDS` an answer of the population is."""
    daring, _, technical = answer.axes
    return 0 if daring < 0 else 1 + int(technical > 0)


def kinds(prompts: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """Return kinds of written answers, (R,); `UNREADABLE` among them."""
    result = []
    for prompt, answer in zip(prompts, answers, strict=True):
        topic = topic_of(prompt)
        axes = None if topic is None else read(topic, answer).axes
        result.append(UNREADABLE if axes is None else kind(Answer(answer, axes)))
    return np.array(result)


def gap(shares_K: np.ndarray) -> float:
    """Return the duality gap of a policy that writes kinds with these shares: both ends are alike,
    since ℓ(b, a) = −ℓ(a, b), and the best answer is of one kind."""
    return 2.0 * float((TRUTH_KK @ shares_K).max())


class Played:
    """Policies from statements about the same pairs, which answer the same prompts."""

    def __init__(self, path: str, sizes: Sizes, seed: int) -> None:
        self._path, self._sizes, self._seed = path, sizes, seed
        population, generator = Population(seed=1000 + seed), np.random.default_rng([seed, 0])
        given = list(population.judgements("train"))
        some = [given[place] for place in generator.choice(len(given), sizes.pairs, replace=False)]
        self._asked = [one.prompt for one in some]
        coins_J = generator.random(sizes.pairs) < 0.5
        pairs = [
            (one.chosen, one.rejected)[:: 1 if coin else -1]
            for one, coin in zip(some, coins_J, strict=True)
        ]
        self._shown = [(first.text, other.text) for first, other in pairs]
        ell_J = TRUTH_KK[[kind(first) for first, _ in pairs], [kind(other) for _, other in pairs]]
        drawn_J = np.random.default_rng([seed, _TRUTH]).random(sizes.pairs)
        self._first_J = drawn_J < (1.0 + ell_J) / 2.0
        self._prompts = list(population.prompts("train", sizes.prompts))
        self._base_K = self._shares(trained(path, "dpo"), np.zeros(0, np.float32), 3)

    def base(self) -> Written:
        """Return what the base writes."""
        return Written(gap(self._base_K), 0.5, self._base_K)

    def written(self, cell: Cell, setting: Setting) -> Written:
        """Return what a policy writes that a method made of statements at an ε."""
        epsilon, method = cell
        first_J, flip = self._first_J, 0.0
        if epsilon is not None:
            coins = Corruption(epsilon=epsilon)
            generator = np.random.default_rng([self._seed, _LABELS])
            first_J, flip = coins.stated(first_J, generator), coins.flip_probability
        rate, beta = setting
        base = trained(self._path, METHODS[method], beta)
        fit = replace(FIT, seed=self._seed, rate=rate)
        if method in (ROBUST, SQUARE):
            told = policy_examples(_judgements(self._asked, self._shown, first_J), base)
            flip_J = torch.full((len(first_J),), flip, dtype=torch.float64)
            theta_D = fit(replace(told, flip_J=flip_J))
        else:
            stated = [
                pair[:: 1 if first else -1]
                for pair, first in zip(self._shown, first_J, strict=True)
            ]
            preference = GeneralPreference.fit(stated, np.full(len(stated), 1.0 - 2.0 * flip))
            play = SelfPlay(self._sizes.iterations, self._sizes.played, fit)
            made = play_against_itself if method == SELF_PLAY else iterative_dpo
            theta_D = made(play, preference, sorted(set(self._asked)), base)
        shares_K = self._shares(base, theta_D, 4)
        ahead = float(shares_K @ TRUTH_KK @ self._base_K)
        return Written(gap(shares_K), (1.0 + ahead) / 2.0, shares_K)

    def _shares(self, base: LanguageBase, theta_D: np.ndarray, stream: int) -> np.ndarray:
        """Return shares of kinds among what is written, (K,)."""
        put = theta_D if theta_D.size else np.zeros(base.dimension, np.float32)
        base.put(torch.from_numpy(put))
        answers = Writer(base.model, base.texts).write(
            self._prompts, SAMPLING, (self._seed, stream)
        )
        counts_K = np.bincount(kinds(self._prompts, answers), minlength=len(TRUTH_KK))
        return counts_K / counts_K.sum()


def play_against_itself(
    play: SelfPlay, preference: GeneralPreference, prompts: Sequence[str], base: LanguageBase
) -> np.ndarray:
    """Return θ of the product's self-play."""

    def examples_of(judgements: Judgements) -> Any:
        return policy_examples(judgements, base)

    return play(preference, prompts, base, examples_of, SAMPLING.max_new_tokens)


def iterative_dpo(
    play: SelfPlay, preference: GeneralPreference, prompts: Sequence[str], base: LanguageBase
) -> np.ndarray:
    """Return θ after as many iterations of DPO, each on as many pairs that the policy wrote, of
    which one is preferred with the estimated probability."""
    generator = np.random.default_rng([play.fit.seed, 5])
    order: list[int] = generator.permutation(len(prompts)).tolist()
    asked = [prompts[order[place % len(order)]] for place in range(play.pairs)]
    theta_D = np.zeros(base.dimension, np.float32)
    for iteration in range(play.iterations):
        base.put(torch.from_numpy(theta_D))
        first, other = (
            Writer(base.model, base.texts).write(
                asked,
                Sampling(max_new_tokens=SAMPLING.max_new_tokens),
                (play.fit.seed, 10 + 2 * iteration + which),
            )
            for which in range(2)
        )
        likely_J = (1.0 + preference(first, other)) / 2.0
        first_J = generator.random(len(asked)) < likely_J
        pairs = _judgements(asked, list(zip(first, other, strict=True)), first_J)
        theta_D = play.fit(policy_examples(pairs, base), start_D=theta_D)
    return theta_D


def _judgements(
    prompts: Sequence[str], pairs: Sequence[tuple[str, str]], first_J: np.ndarray
) -> Judgements:
    """Statements, each of a user of its own."""
    return Judgements(
        user_ids=tuple(map(str, range(len(prompts)))),
        start_U=np.arange(len(prompts) + 1),
        prompts=[*prompts],
        responses=[*pairs],
        y_R=first_J.astype(np.float32),
    )


def one_seed(task: tuple[str, int, Mapping[Cell, Setting], Sizes]) -> dict[Cell, Written]:
    """Return what policies write: of a reference's folder, a seed, settings and sizes."""
    path, seed, settings, sizes = task
    played = Played(path, sizes, seed)
    result = {cell: played.written(cell, setting) for cell, setting in settings.items()}
    return {**result, (None, BASE): played.base()}


def remarks(rows: Rows) -> list[str]:
    """Gaps, and by the interval of paired differences whose is smaller."""
    final = [row for row in rows if "gap_mean" in row]
    result = []
    for epsilon in (None, *distinct(final, "epsilon")):
        if not (here := where(final, epsilon=epsilon, method=tuple(METHODS))):
            continue
        named = "true labels" if epsilon is None else f"ε = {epsilon:g} a label"
        said = ", ".join(
            f"{row['method']} {row['gap_mean']:.2f} ± {row['gap_interval']:.2f} "
            f"(wins {row['wins_mean']:.0%}, {row['unreadable']:.0%} unreadable"
            + ("" if row["method"] == SELF_PLAY else f"; {verdict(row)}")
            + ")"
            for row in here
        )
        result.append(f"{named}: gap of {said}.")
    (base,) = where(final, method=BASE)
    result.append(
        f"The base: {base['gap_mean']:.2f} ± {base['gap_interval']:.2f}, {base['unreadable']:.0%} "
        f"unreadable; beside it {verdict(base)}."
    )
    return [
        *cautions(final),
        *result,
        "± is Student's 95 % interval over seeds. Each has the step size and β of least gap on "
        "another seed, out of "
        + ", ".join(f"{step:g} and {beta:g}" for step, beta in SETTINGS)
        + ".",
    ]


def verdict(row: Mapping[str, Any]) -> str:
    """Return whether self-play's gap is smaller than a row's."""
    below, interval = row["below_mean"], row["below_interval"]
    if abs(below) <= interval:
        return f"undecided, {below:+.2f} ± {interval:.2f}"
    return f"{'self-play has less' if below > 0 else 'self-play has more'}, {below:+.2f}"


def plot(rows: Rows) -> Figure:
    """The gap of each method, and what its policy writes."""
    final = [row for row in rows if "gap_mean" in row]
    final = [*where(final, method=BASE), *[row for row in final if row["method"] != BASE]]
    names = [_named(row) for row in final]
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    gaps, shares = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(final))
    gaps.errorbar(
        [row["gap_mean"] for row in final],
        places,
        xerr=[row["gap_interval"] for row in final],
        fmt="o",
        ms=4,
        color="C0",
    )
    gaps.axvline(0, color="0.85", lw=1, zorder=0)
    gaps.set_yticks(places, names)
    gaps.invert_yaxis()
    gaps.set_xlabel("duality gap of what is written (0: equilibrium)")
    left = np.zeros(len(final))
    for color, name in zip(("C0", "C1", "C2", "0.8"), (*KINDS, "unreadable"), strict=True):
        share = np.array([100 * row[name] for row in final])
        shares.barh(places, share, left=left, color=color, label=name, height=0.7)
        left += share
    shares.set_xlabel("% of answers")
    open_corner(gaps)
    open_corner(shares)
    legend_below(figure, 4)
    return figure


def _named(row: Mapping[str, Any]) -> str:
    if row["method"] == BASE:
        return BASE
    labels = "true labels" if row["epsilon"] is None else f"ε = {row['epsilon']:g}"
    return f"{row['method']}, {labels}"
