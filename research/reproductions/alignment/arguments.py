"""Better arguments by private rewards: SmolLM2 writes, and people's judgements choose.

Everything is public and can be repeated: crowd workers' judgements of arguments (UKPConvArg1, in
the files that ``examples/ukp_judgements.py`` makes), the 300 questions of the package, and a
language model of 135 M weights. Rewards learn by ``uls`` from the workers of ``train.jsonl``, and
are tried on those of ``test.jsonl`` (the same debates) and ``unseen.jsonl`` (others), and with each
debate left out of their training in turn (`alignment.left_out`). From one pool
of the base's own answers each reward chooses the best of n; best of n stands for policies, as
nothing in it is tuned (see `research.reproductions.alignment.answers`).

Wins are judged by **gold rewards**, which were trained without privacy on workers of
``gold.jsonl``, on whom no other reward was trained. They are models too: their accuracy on people
is a row of the result. A win is over another answer of the base to the same prompt, on average over
several that are not chosen from; equals are half a win. Length-controlled wins are those at equal
length by a logistic regression (`alignment.comparisons.length_control`, with the spread of lengths
of all pairs).

Intervals are at 95 %, over prompts *and* seeds (`crossed_draws`).

Legend: S seeds, P prompts, N answers to each, K answers that they meet, I heads, D features.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.alignment.best_of_n import chances, kl_bound
from murmuration.planning.judgement_statistics import longer_wins
from murmuration.preference.accuracy import Accuracy
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import FeatureMap, feature_map, parse_features
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.reward import rewards_at
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.alignment import left_out
from murmuration.research.reproductions.alignment.argument_pool import Answer, requests, written
from murmuration.research.reproductions.alignment.crossed_draws import CrossedDraws, interval
from murmuration.research.reproductions.btl import Training
from murmuration.research.reproductions.entry import (
    Reproduction,
    Row,
    Rows,
    distinct,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.research.reproductions.rivals.clustered import clustered
from murmuration.research.reproductions.rivals.real_people import Runs, digest
from murmuration.sims.population.population import Population
from murmuration.strategies.config import RunConfig

DELTA = 1e-5
#: A judge that prefers the longer of two answers, beside the gold rewards.
LONGER = "length alone"
#: Rewards on the base's own states, of which only the accuracy is measured.
HEAD = "--train head"
GROUPS = ("train", "test", "unseen", "gold")
_EXAMPLES = 12


@dataclass(frozen=True)
class Plan:
    """Sizes and settings of a comparison.

    Attributes:
        features: that rewards read; for each there is also a gold reward, which judges all.
        epsilons: None is without privacy, and comes last.
        seeds: of rewards.
        prompts: the number of public questions.
        best_of: the numbers of answers from which a reward chooses; the last is that of all.
        met: the number of other answers of the base that each of these is compared with.
        rounds, cohort: of rewards and gold rewards.
        folds: sizes of the comparison on debates and pairs that are left out.
    """

    features: Sequence[str] = ("hashing", "minilm", "smollm2")
    epsilons: Sequence[float | None] = (1.0, 3.0, 8.0, None)
    seeds: int = 5
    prompts: int = 300
    best_of: Sequence[int] = (2, 4, 16)
    met: int = 5
    rounds: int = 200
    cohort: int = 540
    folds: left_out.Sizes = field(default_factory=left_out.Sizes)


#: By ε, of each seed: how often a reward is right, on seen and on unseen debates.
Accuracies = Mapping[float | None, Sequence[tuple[Accuracy, Accuracy]]]


@dataclass(frozen=True, eq=False)
class Rewards:
    """Rewards on one kind of features, and what they say of a pool.

    Attributes:
        rewards_SPN: of the pool's answers, by ε.
        accuracies: of the rewards.
    """

    rewards_SPN: Mapping[float | None, np.ndarray]
    accuracies: Accuracies


@dataclass(frozen=True, eq=False)
class Judge:
    """A judge of answers.

    Attributes:
        name: of the features that it reads.
        seen: its accuracy by user on other people, in debates of its training.
        unseen: the same, on others.
        gain_PNK: its reward of each answer of the pool over that of each which it meets.
    """

    name: str
    seen: float
    unseen: float
    gain_PNK: np.ndarray

    @property
    def gain_PN(self) -> np.ndarray:
        """The gains over those that are met, on average: in the order of the judge's rewards."""
        return self.gain_PNK.mean(2)

    @property
    def wins_PNK(self) -> np.ndarray:
        """1, 0, or 0.5 of equals."""
        return (np.sign(self.gain_PNK) + 1) / 2


class Pool:
    """Answers of the base that are chosen from, and others to the same prompts that these meet."""

    def __init__(self, answers: Sequence[Sequence[Answer]], met: int) -> None:
        """Take the first ``met`` answers of each row apart; rewards choose from the others."""
        self.met = [row[:met] for row in answers]
        self.others = [row[met:] for row in answers]

    def per_answer(self, figure: Any) -> np.ndarray:
        """A figure of each answer of the pool, (P, N)."""
        return np.array([[figure(answer) for answer in row] for row in self.others], dtype=float)

    @cached_property
    def longer_PNK(self) -> np.ndarray:
        """The length of each answer less that of each which it meets, in characters."""
        met_PK = np.array([[len(answer.response) for answer in row] for row in self.met])
        return self.per_answer(lambda answer: len(answer.response))[:, :, None] - met_PK[:, None]

    def rewards(self, theta_ID: Sequence[np.ndarray], features: FeatureMap) -> np.ndarray:
        """The rewards by each head of the answers that are met and all others, (I, P, K + N)."""
        rows = [[*met, *row] for met, row in zip(self.met, self.others, strict=True)]
        flat = [answer for row in rows for answer in row]
        rewards_IR = rewards_at(
            theta_ID, features, [one.prompt for one in flat], [one.response for one in flat]
        )
        return rewards_IR.reshape(len(theta_ID), len(rows), -1)


def miniature(quick: bool = True) -> Reproduction:
    """Run it in small on the embedded population."""
    del quick  # the only form there is without people
    plan = Plan(
        ("hashing",), (3.0, None), 2, 8, (2, 4), rounds=20, cohort=100,
        folds=left_out.Sizes(("hashing",), (3.0, None), 2, 3),
    )  # fmt: skip
    splits = ("train", "test", "unseen-topics", "test")
    people = {
        group: Judgements.from_rows(itertools.islice(Population().rows(split), 3000))
        for group, split in zip(GROUPS, splits, strict=True)
    }
    with TemporaryDirectory() as folder, reference(Population().texts("train", 300)) as base:
        return compared(people, base, Path(folder), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """Compare rewards and best of n on people's judgements.

    Args:
        data: with train.jsonl, test.jsonl, unseen.jsonl and gold.jsonl.
        out: the folder of answers and runs, with which an interrupted command continues.
    """
    people = {
        group: read_judgements(str(data / f"{group}.jsonl"), "btl", "", {}) for group in GROUPS
    }
    return compared(people, "smollm2", out, Plan())


def compared(people: Mapping[str, Judgements], base: str, out: Path, plan: Plan) -> Reproduction:
    """Rows of rewards, judges and wins, remarks, and examples among the further results.

    Args:
        people: judgements by `GROUPS`.
        base: that writes.
        out: the folder where its answers are kept, and runs of what is left out.
        plan: of the comparison.
    """
    others, differences, debates = of_left_out(people, out, plan)
    samples = plan.met + max(plan.best_of)
    answers = written(out / "answers", base, requests(plan.prompts), samples)
    pool = Pool(answers, plan.met)
    rewards: dict[str, Rewards] = {}
    judges: dict[str, Judge] = {}
    for name in tracked(plan.features, "rewards", len(plan.features)):
        rewards[name], judges[name] = learned(people, name, pool, plan)
    judges[LONGER] = length_alone(people, pool)
    right = {name: each.accuracies for name, each in rewards.items()} | alone(people, base, plan)
    rows = [
        *_reward_rows(right, judges[LONGER]),
        *others,
        *_judge_rows(judges, plan),
        *(
            row
            for judge in judges.values()
            if judge.name != LONGER
            for row in _win_rows(rewards, judge, pool, plan)
        ),
    ]
    examples = _examples(rewards, judges, pool, plan)
    extra = {
        "prompts": plan.prompts,
        "cut_off": float(pool.per_answer(lambda answer: answer.cut_off).mean()),
        "words": float(pool.per_answer(lambda answer: len(answer.response.split())).mean()),
        "examples": examples,
        "differences": reward_differences(right, longer_right(people)),
        "left_out_differences": differences,
        "debates": debates,
    }
    return Reproduction(rows, remarks(rows, extra), extra=extra, plot=plot(rows))


def of_left_out(
    people: Mapping[str, Judgements], out: Path, plan: Plan
) -> tuple[list[Row], list[Row], list[Row]]:
    """Rows of accuracies on what nobody was trained on, of differences, and of each debate."""
    about = {group: digest(people[group]) for group in ("train", "test", "unseen")}
    about |= {"rounds": str(plan.rounds), "cohort": str(plan.cohort)}
    runs = Runs(out / left_out.RUNS, about)
    return left_out.compared(
        people,
        plan.folds,
        lambda examples, epsilon, seed: _head(examples, plan, epsilon, seed),
        runs,
    )


def alone(people: Mapping[str, Judgements], base: str, plan: Plan) -> dict[str, Accuracies]:
    """The accuracies of the base's heads, rewards that choose no answers."""
    examples = examples_of(people, LanguageHead(path=base))
    return {HEAD: accuracies(examples, heads_of(examples["train"], plan))}


def examples_of(people: Mapping[str, Judgements], features: FeatureMap) -> dict[str, PairExamples]:
    """Judgements as features, by group."""
    return {group: pair_examples(people[group], features) for group in GROUPS}


def heads_of(examples: PairExamples, plan: Plan) -> dict[float | None, list[np.ndarray]]:
    """The heads of all seeds, by ε."""
    return {
        epsilon: [_head(examples, plan, epsilon, seed) for seed in range(plan.seeds)]
        for epsilon in plan.epsilons
    }


def right_about(
    examples: Mapping[str, PairExamples], theta_D: np.ndarray
) -> tuple[Accuracy, Accuracy]:
    """The accuracy of a head, on seen and on unseen debates."""
    seen, unseen = (examples[group].accuracy(theta_D) for group in ("test", "unseen"))
    return seen, unseen


def accuracies(
    examples: Mapping[str, PairExamples], theta_SD: Mapping[float | None, Sequence[np.ndarray]]
) -> Accuracies:
    """The accuracies of all heads."""
    return {e: [right_about(examples, theta_D) for theta_D in some] for e, some in theta_SD.items()}


def longer_right(people: Mapping[str, Judgements]) -> tuple[Accuracy, Accuracy]:
    """The accuracy of preferring the longer response, on seen and on unseen debates."""
    length = feature_map(parse_features("hashing:1"))
    seen, unseen = (
        pair_examples(people[group], length).accuracy(np.ones(1)) for group in ("test", "unseen")
    )
    return seen, unseen


def length_alone(people: Mapping[str, Judgements], pool: Pool) -> Judge:
    """The judge that prefers the longer answer."""
    seen, unseen = (longer_wins(people[group]).by_user for group in ("test", "unseen"))
    return Judge(LONGER, seen, unseen, pool.longer_PNK)


def learned(
    people: Mapping[str, Judgements], name: str, pool: Pool, plan: Plan
) -> tuple[Rewards, Judge]:
    """Rewards at each ε and seed on some features, and the gold reward on them."""
    features = feature_map(parse_features(name))
    examples = examples_of(people, features)
    theta_SD = heads_of(examples["train"], plan)
    gold_D = _head(examples["gold"], plan, None, 0)
    seen, unseen = right_about(examples, gold_D)
    theta_ID = [gold_D, *(theta_D for some in theta_SD.values() for theta_D in some)]
    met_IPK, others_IPN = np.split(pool.rewards(theta_ID, features), [plan.met], axis=2)
    by_epsilon = others_IPN[1:].reshape(len(plan.epsilons), plan.seeds, *others_IPN.shape[1:])
    gold_PNK = others_IPN[0, :, :, None] - met_IPK[0, :, None]
    return (
        Rewards(
            dict(zip(plan.epsilons, by_epsilon, strict=True)),
            accuracies(examples, theta_SD),
        ),
        Judge(name, seen.by_user, unseen.by_user, gold_PNK),
    )


def _head(examples: PairExamples, plan: Plan, epsilon: float | None, seed: int) -> np.ndarray:
    """The head of one run, by the messages that users get."""
    config = RunConfig(
        strategy="uls" if epsilon else "nonprivate",
        epsilon=epsilon or 1.0,
        delta=DELTA,
        rounds=plan.rounds,
        cohort=min(plan.cohort, len(examples.counts_U)),
        seed=seed,
        test="other users",
    )
    strategy, _ = Training(examples, Randomness(seed)).run(config)
    return strategy.optimizer.result_D


def _reward_rows(rewards: Mapping[str, Accuracies], longer: Judge) -> list[Row]:
    rows: list[Row] = [
        {
            "features": name,
            "epsilon": epsilon,
            **_by_user("seen", [seen for seen, _ in some]),
            **_by_user("unseen", [unseen for _, unseen in some]),
        }
        for name, each in rewards.items()
        for epsilon, some in each.items()
    ]
    baseline = {"features": LONGER, "epsilon": None}
    return [*rows, baseline | {"seen": longer.seen, "unseen": longer.unseen}]


def _by_user(name: str, of_seeds: Sequence[Accuracy]) -> Row:
    """The accuracy by user with its interval over users and seeds, and that of all judgements."""
    shares_SU = np.stack([one.share_U for one in of_seeds])
    estimate = clustered(shares_SU, np.ones(shares_SU.shape[1]))
    pooled = float(np.mean([one.pooled for one in of_seeds]))
    return {**estimate.columns(name), f"{name}_pooled": pooled}


def reward_differences(
    right: Mapping[str, Accuracies], longer: tuple[Accuracy, Accuracy]
) -> list[Row]:
    """Rows of the differences of all accuracies at the same ε, user by user."""
    rows: list[Row] = []
    for epsilon in dict.fromkeys(epsilon for each in right.values() for epsilon in each):
        accuracies_of = {name: each[epsilon] for name, each in right.items() if epsilon in each}
        for one, other in itertools.combinations([*accuracies_of, LONGER], 2):
            row: dict[str, Any] = {"first": one, "second": other, "epsilon": epsilon}
            for at, where_ in enumerate(("seen", "unseen")):
                shares_SU = np.stack([each[at].share_U for each in accuracies_of[one]])
                others_SU = np.stack(
                    [longer[at].share_U]
                    if other == LONGER
                    else [e[at].share_U for e in accuracies_of[other]]
                )
                estimate = clustered(shares_SU - others_SU, np.ones(shares_SU.shape[1]))
                row |= estimate.columns(where_)
            rows.append(row)
    return rows


def _win_rows(rewards: Mapping[str, Rewards], judge: Judge, pool: Pool, plan: Plan) -> list[Row]:
    draws = CrossedDraws(len(pool.others), plan.seeds)
    wins_PN, pairs = judge.wins_PNK.mean(2), (len(pool.others), -1)
    cut_off_PN = pool.per_answer(lambda answer: answer.cut_off)
    words_PN = pool.per_answer(lambda answer: len(answer.response.split()))
    rows: list[Row] = []
    for name, each in rewards.items():
        for n in plan.best_of:
            chance_SPN = {
                epsilon: np.stack([chances(one_PN, n) for one_PN in each.rewards_SPN[epsilon]])
                for epsilon in plan.epsilons
            }
            free_B = draws.means(chance_SPN[None], judge.gain_PN)
            for epsilon in plan.epsilons:
                gain_B = draws.means(chance_SPN[epsilon], judge.gain_PN)
                controlled_B = draws.length_controlled(
                    np.repeat(chance_SPN[epsilon] / plan.met, plan.met, axis=2),
                    judge.wins_PNK.reshape(pairs),
                    pool.longer_PNK.reshape(pairs),
                )
                rows.append(
                    {
                        "judge": judge.name,
                        "rewards": name,
                        "epsilon": epsilon,
                        "best_of": n,
                        "kl_at_most": kl_bound(n),
                        **interval("win", draws.means(chance_SPN[epsilon], wins_PN)),
                        **interval("controlled", controlled_B),
                        **interval("gain", gain_B),
                        **interval("of_nonprivate", gain_B / free_B),
                        "cut_off": draws.means(chance_SPN[epsilon], cut_off_PN)[0],
                        "words": draws.means(chance_SPN[epsilon], words_PN)[0],
                    }
                )
    return rows


def _judge_rows(judges: Mapping[str, Judge], plan: Plan) -> list[Row]:
    """The accuracy of each judge, and the win rate by each judge of the best of all that it chooses
    itself: by itself this is the largest possible.
    """
    n = max(plan.best_of)
    rows: list[Row] = []
    for judge in judges.values():
        row: dict[str, Any] = {"judge": judge.name, "seen": judge.seen, "unseen": judge.unseen}
        chance_PN = chances(judge.gain_PN, n)
        for other in judges.values():
            wins_PN = other.wins_PNK.mean(2)
            row[f"wins_by_{other.name}"] = float((chance_PN * wins_PN).sum(1).mean())
        rows.append(row)
    return rows


def _examples(
    rewards: Mapping[str, Rewards], judges: Mapping[str, Judge], pool: Pool, plan: Plan
) -> list[dict[str, Any]]:
    """Prompts, spread evenly over the list, each with the first answer that is met and the best of
    all by the first seed's private reward (ε nearest 3) on the last kind of features.
    """
    name = plan.features[-1]
    private = min(filter(None, plan.epsilons), key=lambda epsilon: abs(epsilon - 3.0))
    best_P = rewards[name].rewards_SPN[private][0].argmax(1)
    count = min(_EXAMPLES, len(pool.others))
    return [
        {
            "prompt": pool.met[at][0].prompt,
            "base": pool.met[at][0].response,
            "best": pool.others[at][best_P[at]].response,
            "reward": f"{name}, ε = {private:g}",
            "gains": {
                judge.name: float(judge.gain_PNK[at, best_P[at], 0])
                for judge in judges.values()
                if judge.name != LONGER
            },
        }
        for at in np.linspace(0, len(pool.others) - 1, count).astype(int).tolist()
    ]


def remarks(rows: Rows, extra: Mapping[str, Any]) -> list[str]:
    """Sentences on the accuracy of judges and on win rates, and examples."""
    result = [
        f"Judge {row['judge']}: right about {row['seen']:.1%} of other people's judgements in "
        f"debates that it knows, {row['unseen']:.1%} in others."
        for row in rows
        if "wins_by_" + LONGER in row
    ]
    result += [
        f"{row['features']}, {_privacy(row['epsilon'])}, {row['left_out']} left out in turn: "
        f"{shown(row, 'accuracy', '.1%')} by user."
        for row in rows
        if "left_out" in row
    ]
    result += [
        f"{row['rewards']}, {_privacy(row['epsilon'])}, judged on {row['judge']}: best of "
        f"{row['best_of']} wins {shown(row, 'win', '.1%')}, at equal length "
        f"{shown(row, 'controlled', '.1%')}, {shown(row, 'of_nonprivate', '.2f')} of the gain "
        "without privacy."
        for row in rows
        if "controlled" in row
    ]
    result.append(
        f"{extra['cut_off']:.1%} of the pool's answers are cut off; they have "
        f"{extra['words']:.1f} words."
    )
    result += [
        f"{one['prompt']}\n  base: {one['base']}\n  best ({one['reward']}): {one['best']}"
        for one in extra["examples"]
    ]
    return result


def plot(rows: Rows) -> Figure:
    """A plot of wins of the best of all by ε, a line for each kind of rewards, a panel for each
    judge.
    """
    wins = [row for row in rows if "controlled" in row]
    wins = where(wins, best_of=max(row["best_of"] for row in wins))
    judges, epsilons = distinct(wins, "judge"), list(dict.fromkeys(row["epsilon"] for row in wins))
    figure = Figure(figsize=(3.2 * len(judges), 3.4), layout="constrained")
    panels = figure.subplots(1, len(judges), sharey=True, squeeze=False)[0]
    for axes, judge in zip(panels, judges, strict=True):
        for place, name in enumerate(distinct(wins, "rewards")):
            same = where(wins, judge=judge, rewards=name)
            win = [100 * row["win"] for row in same]
            ends = [[100 * abs(row[f"win_{end}"] - row["win"]) for row in same]
                    for end in ("low", "high")]  # fmt: skip
            at = [x + 0.08 * place for x in range(len(same))]
            axes.errorbar(at, win, yerr=ends, fmt="o-", ms=4, lw=1, label=name)
        axes.axhline(50, color="0.6", lw=1, ls=":")
        axes.set_xticks(range(len(epsilons)), ["none" if e is None else f"{e:g}" for e in epsilons])
        axes.set(title=f"judged on {judge}", xlabel="ε")
        open_corner(axes)
    panels[0].set_ylabel("wins over the base, %")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def shown(row: Row, name: str, form: str) -> str:
    """A figure and its interval."""
    value, low, high = (format(row[name + end], form) for end in ("", "_low", "_high"))
    return f"{value} ({low} to {high})"


def _privacy(epsilon: float | None) -> str:
    return "without privacy" if epsilon is None else f"ε = {epsilon:g}"
