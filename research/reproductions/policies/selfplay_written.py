"""Zhou et al. 2025, Algorithm 3, with a small generative model and preferences that are not
transitive.

Source: "S", Algorithm 3; the paper has no experiment with it. A small reference answers the
embedded population's prompts, twice each. Its answers are cautious, daring in plain words, or
daring in technical words; each kind is preferred to the next with probability 0.9, in a circle, so
no reward orders them, and to mix them evenly is the equilibrium. What cannot be read loses with
probability 0.9 against what can. People state which response of 1,500 pairs they prefer, behind
randomized response (or truly, without ε). From the same statements come

- self-play as ``--loss selfplay`` has it (`research.strategies.self_play`): the last policy,
  which a run saves, and one drawn from π_1, …, π_T, which is the paper's result;
- iterative DPO, on the same estimate of the general preference: in as many iterations the policy
  writes as many pairs, and DPO goes on from it, with it as the reference, and with the estimated
  chance that the first is preferred as the label;
- robust DPO and Square-χPO, one pass over all statements: for rewards.

**Each has the step size and β whose gap is least on a seed of its own**, at each ε, out of the same
four, by the truth and uncharged. Everything is written at temperature 1. The gap is twice the
preference ℓ in [−1, 1] of the best responding kind over the policy's answers; 0 for an even mixture
of readable kinds. An opponent of the paper's may answer each prompt with another kind, so this is a
lower bound of its duality gap; and it is of shares that are counted among a few hundred answers, of
which the greatest of three differences is above 0 even at the equilibrium. *Ours:* kinds, their
circle, sizes, and one pass of Adam where the paper has a minimiser. Nash-MD is left out: it writes
from mixtures of two policies.

Legend: J pairs, R answers, K kinds.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.language.policies import PolicyExamples, policy_examples
from murmuration.preference.language.policy_fit import PolicyFit
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
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.research.reproductions.policies.written import (
    FIT,
    SAMPLING,
    TUNING_SEED,
    cautions,
    trained,
)
from murmuration.research.strategies.self_play.general_preference import GeneralPreference
from murmuration.research.strategies.self_play.play import SelfPlay
from murmuration.sims.population.population import Population
from murmuration.sims.population.reading import read, topic_of

SELF_PLAY, ITERATIVE, ROBUST, SQUARE = "self-play", "iterative DPO", "robust DPO", "Square-χPO"
DRAWN = "self-play, drawn from all iterations"
METHODS = {
    SELF_PLAY: "selfplay",
    DRAWN: "selfplay",
    ITERATIVE: "dpo",
    ROBUST: "robust-dpo",
    SQUARE: "square-chipo",
}
BASE = "the base"
#: Step size and β.
SETTINGS = ((0.1, 1.0), (0.3, 1.0), (0.3, 0.35), (0.3, 0.1))
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
    """Numbers of one seed."""

    pairs: int = 1500
    prompts: int = 500
    iterations: int = 8
    played: int = 256


class Written(NamedTuple):
    """A policy's answers: the gap, how often they are preferred to the base's, and shares."""

    gap: float
    wins: float
    shares_K: np.ndarray


def selfplay_written(
    quick: bool = False,
    *,
    epsilons: Sequence[float | None] = (2.0,),
    seeds: int = 5,
    sizes: Sizes = Sizes(),
) -> list[dict[str, Any]]:
    """Rows ``epsilon, method, step, beta, tuned_gap, chosen`` of each setting tried; then rows
    ``epsilon, method, step, beta, gap_mean, gap_interval, below_mean, below_interval, wins_mean,
    wins_interval, unreadable`` and a share of each kind.

    ``below``: that row's gap less self-play's, paired by seed. Rows without ε are of true labels.
    ``quick``: two seeds of a reference with little text, and one setting.
    """
    texts, settings = EXCHANGES, SETTINGS
    if quick:
        texts, settings, seeds = FEW_EXCHANGES, SETTINGS[:1], 2
        sizes = Sizes(pairs=60, prompts=20, iterations=2, played=8)
    cells = list(itertools.product(epsilons, METHODS))
    with reference(Population().texts("train", texts)) as path:
        trials = [(path, TUNING_SEED, dict.fromkeys(cells, setting), sizes) for setting in settings]
        tried = list(tracked(in_processes(one_seed, trials), "settings", len(trials)))
        rows = [
            row
            for cell in cells
            for row in tuning(cell, settings, [one[cell].gap for one in tried])
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
                    "below", [each.gap - one.gap for each, one in zip(same, ours, strict=True)]
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


def kinds(prompts: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """The kinds of generated answers, (R,), including `UNREADABLE`."""
    result = []
    for prompt, answer in zip(prompts, answers, strict=True):
        topic = topic_of(prompt)
        axes = None if topic is None else read(topic, answer).axes
        result.append(UNREADABLE if axes is None else 0 if axes[0] < 0 else 1 + int(axes[2] > 0))
    return np.array(result)


def shares(prompts: Sequence[str], answers: Sequence[str]) -> np.ndarray:
    """The shares of kinds among generated answers, (K,)."""
    return np.bincount(kinds(prompts, answers), minlength=len(TRUTH_KK)) / len(prompts)


def gap(shares_K: np.ndarray) -> float:
    """The duality gap of a policy whose answers have these shares of kinds, against opponents that
    write kinds independently of the prompt: both ends are equal, as ℓ(b, a) = −ℓ(a, b); the best
    response is a single kind.
    """
    return 2.0 * float((TRUTH_KK @ shares_K).max())


class Played:
    """Policies from statements about the same pairs, which answer the same prompts."""

    def __init__(self, path: str, sizes: Sizes, seed: int) -> None:
        self._path, self._sizes, self._seed = path, sizes, seed
        prompts = list(Population(seed=1000 + seed).prompts("train", sizes.pairs + sizes.prompts))
        self._asked, self._prompts = prompts[: sizes.pairs], prompts[sizes.pairs :]
        base = trained(path, METHODS[SELF_PLAY])
        first, other = (self._answers(base, None, self._asked, stream) for stream in (0, 1))
        self._shown = list(zip(first, other, strict=True))
        ell_J = TRUTH_KK[kinds(self._asked, first), kinds(self._asked, other)]
        drawn_J = np.random.default_rng([seed, _TRUTH]).random(sizes.pairs)
        self._first_J = drawn_J < (1.0 + ell_J) / 2.0
        self._base_K = shares(self._prompts, self._answers(base, None, self._prompts, 2))
        self._played: dict[tuple[float | None, Setting], tuple[Written, Written]] = {}

    def base(self) -> Written:
        """The result of the base's own answers."""
        return Written(gap(self._base_K), 0.5, self._base_K)

    def written(self, cell: Cell, setting: Setting) -> Written:
        """The result of a policy that a method made from statements at an ε."""
        epsilon, method = cell
        if method in (SELF_PLAY, DRAWN):
            known = (epsilon, setting)
            if known not in self._played:
                self._played[known] = self._self_play(epsilon, setting)
            return self._played[known][method == DRAWN]
        base, fit = self._fit(method, setting)
        if method == ITERATIVE:
            theta_D = iterative_dpo(
                SelfPlay(self._sizes.iterations, self._sizes.played, fit),
                self._estimate(epsilon),
                self._asked,
                base,
            )
        else:
            first_J, flip = self._stated(epsilon)
            examples = policy_examples(_judgements(self._asked, self._shown, first_J), base)
            flip_J = torch.full((len(first_J),), flip, dtype=torch.float64)
            theta_D = fit(replace(examples, flip_J=flip_J))
        return self._of(self._answers(base, theta_D, self._prompts, 3))

    def _self_play(self, epsilon: float | None, setting: Setting) -> tuple[Written, Written]:
        """The results of the last policy, and of one that is drawn from π_1, …, π_T."""
        base, fit = self._fit(SELF_PLAY, setting)
        play = SelfPlay(self._sizes.iterations, self._sizes.played, fit)
        later = play.iterates(
            self._estimate(epsilon),
            self._asked,
            base,
            lambda judgements: policy_examples(judgements, base),
            SAMPLING.max_new_tokens,
        )
        *iterates, last_D = [np.zeros(base.dimension, np.float32), *later]
        drawn = [""] * len(self._prompts)
        for place, theta_D in enumerate(iterates):
            prompts = self._prompts[place :: len(iterates)]
            drawn[place :: len(iterates)] = self._answers(base, theta_D, prompts, 4 + place)
        return self._of(self._answers(base, last_D, self._prompts, 3)), self._of(drawn)

    def _fit(self, method: str, setting: Setting) -> tuple[LanguageBase, PolicyFit]:
        rate, beta = setting
        base = trained(self._path, METHODS[method], beta)
        return base, replace(FIT, seed=self._seed, rate=rate)

    def _stated(self, epsilon: float | None) -> tuple[np.ndarray, float]:
        """The statements on whether the first is preferred, (J,), and the flip probability."""
        if epsilon is None:
            return self._first_J, 0.0
        coins = Corruption(epsilon=epsilon)
        generator = np.random.default_rng([self._seed, _LABELS])
        return coins.stated(self._first_J, generator), coins.flip_probability

    def _estimate(self, epsilon: float | None) -> GeneralPreference:
        first_J, flip = self._stated(epsilon)
        stated = [
            (one, other) if first else (other, one)
            for (one, other), first in zip(self._shown, first_J, strict=True)
        ]
        return GeneralPreference.fit(stated, np.full(len(stated), 1.0 - 2.0 * flip))

    def _of(self, answers: Sequence[str]) -> Written:
        shares_K = shares(self._prompts, answers)
        ahead = float(shares_K @ TRUTH_KK @ self._base_K)
        return Written(gap(shares_K), (1.0 + ahead) / 2.0, shares_K)

    def _answers(
        self, base: LanguageBase, theta_D: np.ndarray | None, prompts: Sequence[str], stream: int
    ) -> list[str]:
        """Answers at temperature 1; of the reference without θ."""
        put_D = np.zeros(base.dimension, np.float32) if theta_D is None else theta_D
        base.put(torch.from_numpy(put_D))
        sampling = Sampling(max_new_tokens=SAMPLING.max_new_tokens)
        return Writer(base.model, base.texts).write(prompts, sampling, (self._seed, 10 + stream))


def iterative_dpo(
    play: SelfPlay, preference: GeneralPreference, prompts: Sequence[str], base: LanguageBase
) -> np.ndarray:
    """θ after ``play``'s number of iterations of DPO; each starts from the policy before, which is
    its reference, on as many pairs that this policy generated.
    """
    generator = np.random.default_rng([play.fit.seed, 5])
    order: list[int] = generator.permutation(len(prompts)).tolist()
    repeated = [prompts[order[place % len(order)]] for place in range(play.pairs)]
    sampling = Sampling(max_new_tokens=SAMPLING.max_new_tokens)
    theta_D = np.zeros(base.dimension, np.float32)
    for iteration in range(play.iterations):
        base.put(torch.from_numpy(theta_D))
        first, other = (
            Writer(base.model, base.texts).write(repeated, sampling, (play.fit.seed, 100 + stream))
            for stream in (2 * iteration, 2 * iteration + 1)
        )
        likely_J = (1.0 + preference(first, other)) / 2.0
        pairs = _judgements(repeated, list(zip(first, other, strict=True)), likely_J)
        theta_D = play.fit(_from(policy_examples(pairs, base), theta_D), start_D=theta_D)
    return theta_D


def _from(examples: PolicyExamples, theta_D: np.ndarray) -> PolicyExamples:
    """Examples whose reference is the policy at θ."""
    examples = examples.in_public()
    ratio_JK = examples.ratios(torch.from_numpy(theta_D)).numpy()
    moved_T = np.array(examples.reference_T)
    moved_T[examples.text_JK] += ratio_JK
    return replace(examples, reference_T=moved_T)


def _judgements(
    prompts: Sequence[str], pairs: Sequence[tuple[str, str]], first_J: np.ndarray
) -> Judgements:
    """Statements, or chances, that the first is preferred, each of a user of its own."""
    return Judgements(
        user_ids=tuple(map(str, range(len(prompts)))),
        start_U=np.arange(len(prompts) + 1),
        prompts=[*prompts],
        responses=[*pairs],
        y_R=first_J.astype(np.float32),
    )


def one_seed(task: tuple[str, int, Mapping[Cell, Setting], Sizes]) -> dict[Cell, Written]:
    """The results of policies, for a reference's folder, a seed, settings and sizes."""
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
        gaps = ", ".join(
            f"{row['method']} {row['gap_mean']:.2f} ± {row['gap_interval']:.2f} "
            f"(wins {row['wins_mean']:.0%}, {row['unreadable']:.0%} unreadable"
            + ("" if row["method"] == SELF_PLAY else f"; {verdict(row)}")
            + ")"
            for row in here
        )
        result.append(f"{named}: gap of {gaps}.")
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
    """The verdict on whether self-play's gap is smaller than a row's."""
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
    gaps, stacks = figure.subplots(1, 2, sharey=True)
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
    gaps.set_xlabel("duality gap (0: equilibrium)")
    left = np.zeros(len(final))
    for color, name in zip(("C0", "C1", "C2", "0.8"), (*KINDS, "unreadable"), strict=True):
        share = np.array([100 * row[name] for row in final])
        stacks.barh(places, share, left=left, color=color, label=name, height=0.7)
        left += share
    stacks.set_xlabel("% of answers")
    open_corner(gaps)
    open_corner(stacks)
    handles, labels = stacks.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _named(row: Mapping[str, Any]) -> str:
    if row["method"] == BASE:
        return BASE
    labels = "true labels" if row["epsilon"] is None else f"ε = {row['epsilon']:g}"
    return f"{row['method']}, {labels}"
