"""Policies that learn from people's judgements what to argue: SmolLM2 by DPO, Square-χPO, and PPO's
kin, at several ε.

The same people, questions and judges as of `research.reproductions.alignment.arguments`, where the
best of n stands for policies; here there are policies. ``dpo`` and ``square-chipo`` learn from
judgements (``run --task policy``), ``align`` climbs a reward that did (``align``), each with the
promise of one run. At the largest ε there is next to no noise, and all else is the same.

Questions are in three parts, none of them in the data: on the first, policies are judged; on the
second, each way's step is chosen, at each ε, out of the same few, by the judge on MiniLM's
features; on the third, ``align`` writes and learns. A win is over an answer of the base.

Each policy's figures are kept in a folder as it comes, and an interrupted run goes on. It is meant
for a GPU, where users share batches; on two cores a policy takes an hour.

Legend: S seeds, P prompts, N answers to each.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

import murmuration
from murmuration.alignment.comparisons.comparison import log_ratios
from murmuration.alignment.reinforce import Steps
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.language.generation import Sampling
from murmuration.preference.language.likelihood import SavedLikelihood
from murmuration.research.reproductions.alignment import arguments
from murmuration.research.reproductions.alignment.argument_pool import (
    Answer,
    requests,
    written,
)
from murmuration.research.reproductions.alignment.arguments import (
    DELTA,
    GROUPS,
    LONGER,
    Judge,
    Pool,
    ends_of,
    learned,
    length_alone,
    shown,
)
from murmuration.research.reproductions.alignment.crossed_draws import CrossedDraws, interval
from murmuration.research.reproductions.entry import (
    Reproduction,
    Row,
    Rows,
    distinct,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.sims.population.population import Population

ALIGN = "align"
_CHOOSER = "minilm"  # whose judge chooses steps


@dataclass(frozen=True)
class Plan:
    """Sizes and settings of a comparison.

    Attributes:
        steps: the steps that are tried, by way of training: learning rates; of ``align`` the number
            of steps.
        epsilons: the last is next to no noise.
        seeds: of policies.
        judged, choosing, climbing: the number of questions for each.
        samples: answers of a policy to each.
        judges: features of the judges, beside length alone.
        rounds, cohort, group_size: of policies.
        lora: of their adapters.
        climbs: further settings of ``align``.
        features, reward_rounds, reward_cohort: of the rewards that it optimizes.
        workers: processes; None: one for each core.
    """

    steps: Mapping[str, Sequence[float]] = field(
        default_factory=lambda: {
            "dpo": (1000.0, 2500.0, 5000.0),
            "square-chipo": (1000.0, 2500.0, 5000.0),
            ALIGN: (20,),
        }
    )
    epsilons: Sequence[float] = (3.0, 8.0, 1000.0)
    seeds: int = 3
    judged: int = 150
    choosing: int = 30
    climbing: int = 120
    samples: int = 2
    judges: Sequence[str] = ("minilm", "smollm2")
    rounds: int = 12
    cohort: int = 1300
    group_size: int = 16
    lora: Mapping[str, Any] = field(
        default_factory=lambda: {
            "lora_layers": "last:2",
            "lora_targets": "down_proj",
            "lora_rank": 4,
        }
    )
    climbs: Mapping[str, Any] = field(
        default_factory=lambda: {
            "lora_layers": "last:8",
            "sampling": Sampling(max_new_tokens=64),
            "evaluate_on": 8,
            "evaluate_every": 1000,
        }
    )
    features: str = "smollm2"
    reward_rounds: int = 200
    reward_cohort: int = 540
    workers: int | None = None

    @property
    def written(self) -> int:
        """The number of questions that a policy answers."""
        return self.judged + self.choosing


@dataclass(frozen=True)
class Cell:
    """One policy: its way of training, ε, step and seed."""

    way: str
    epsilon: float
    step: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.way}-epsilon-{self.epsilon:g}-step-{self.step:g}-seed-{self.seed}"


@dataclass(frozen=True, eq=False)
class Made:
    """A policy's answers, (P, N), and their mean log-ratio to its base, in nats."""

    answers: Sequence[Sequence[Answer]]
    log_ratio: float


@dataclass(frozen=True)
class Task:
    """The making of one policy: of training judgements in a file, on a base, into a
    folder."""

    plan: Plan
    data: Path
    base: str
    folder: Path
    cell: Cell


def argument_policies(quick: bool) -> Reproduction:
    """Run a miniature of the embedded population with a tiny base, if quick.

    Raises:
        InputError: it is not quick, so that people's judgements are needed.
    """
    if not quick:
        raise InputError(
            "argument-policies needs --data, the folder that examples/ukp_judgements.py makes, and "
            "--out; or --quick"
        )
    plan = Plan(
        steps={"dpo": (1000.0,), ALIGN: (1,)},
        epsilons=(3.0, 1000.0),
        seeds=2,
        judged=6,
        choosing=3,
        climbing=12,
        samples=1,
        judges=("hashing",),
        rounds=2,
        cohort=20,
        group_size=2,
        lora={"lora_targets": "down_proj", "lora_rank": 2},
        climbs={"sampling": Sampling(max_new_tokens=8), "evaluate_on": 2, "lora_rank": 2},
        features="hashing",
        reward_rounds=5,
        reward_cohort=15,
        workers=1,
    )
    population, splits = Population(), ("train", "test", "unseen-topics", "test")
    people = {
        group: Judgements.from_rows(itertools.islice(population.rows(split), 3000))
        for group, split in zip(GROUPS, splits, strict=True)
    }
    with TemporaryDirectory() as folder, reference(population.texts("train", 300)) as base:
        few = Path(folder, "train.jsonl")
        rows = itertools.islice(population.rows("train"), 300)
        few.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return compared(people, few, base, Path(folder), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """Compare policies on people's judgements; models and answers are kept in ``out``.

    Args:
        data: with train.jsonl, test.jsonl, unseen.jsonl and gold.jsonl.
        out: the folder of models and answers, from which an interrupted run continues.
    """
    people = {
        group: read_judgements(str(data / f"{group}.jsonl"), "btl", "", {}) for group in GROUPS
    }
    return compared(people, data / "train.jsonl", "smollm2", out / "policies", Plan())


def compared(
    people: Mapping[str, Judgements], data: Path, base: str, folder: Path, plan: Plan
) -> Reproduction:
    """A row for each step that was tried, and for each way, ε and judge; remarks and a plot.

    Args:
        people: judgements by `arguments.GROUPS`.
        data: a file of those that policies learn from.
        base: that learns.
        folder: of models and answers.
        plan: of the comparison.
    """
    made = policies(data, base, folder, plan)
    # By draws that no policy's answers are of.
    first = [
        row[-1] for row in written(folder / "base", base, requests(plan.written), plan.samples + 1)
    ]
    gold = arguments.Plan(plan.judges, (), best_of=(1,))
    chooser = _CHOOSER if _CHOOSER in plan.judges else plan.judges[0]
    for_choice = _pool(first, made, slice(plan.judged, plan.written))
    tried = _tried(made, learned(people, chooser, for_choice, gold)[1], plan)
    chosen = {
        cell: one
        for cell, one in made.items()
        if where(tried, way=cell.way, epsilon=cell.epsilon, step=cell.step, chosen=True)
    }
    pool = _pool(first, chosen, slice(plan.judged))
    judges = {
        name: learned(people, name, pool, gold)[1]
        for name in tracked(plan.judges, "judges", len(plan.judges))
    }
    judges[LONGER] = length_alone(people, pool)
    rows = [*tried, *_win_rows(chosen, judges, pool, plan)]
    extra = {"questions": plan.judged, "samples": plan.samples, "seeds": plan.seeds,
             "examples": _examples(chosen, pool, judges[chooser], plan)}  # fmt: skip
    return Reproduction(rows, remarks(rows, extra), extra=extra, plot=plot(rows))


def _pool(first: Sequence[Answer], made: Mapping[Cell, Made], questions: slice) -> Pool:
    """Answers of policies to some questions, each beside the base's own."""
    return Pool(
        [
            [first[at], *itertools.chain.from_iterable(one.answers[at] for one in made.values())]
            for at in range(len(first))[questions]
        ]
    )


def policies(data: Path, base: str, folder: Path, plan: Plan) -> dict[Cell, Made]:
    """All policies of a plan; those that are missing are trained."""
    cells = [
        Cell(way, epsilon, step, seed)
        for way, steps in plan.steps.items()
        for epsilon, step, seed in itertools.product(plan.epsilons, steps, range(plan.seeds))
    ]
    tasks = [Task(plan, data, base, folder, cell) for cell in cells]
    result = in_processes(make, tasks, plan.workers)
    return dict(zip(cells, tracked(result, "policies", len(cells)), strict=True))


def make(task: Task) -> Made:
    """Train one policy, or read its stored result."""
    cell, plan = task.cell, task.plan
    figures = task.folder / "figures" / f"{cell.name}.json"
    prompts = requests(plan.written)
    answers, model = task.folder / "answers" / cell.name, _model(task)
    result = written(answers, str(model), prompts, plan.samples)
    if not figures.exists():
        pairs = [(one.prompt, one.response) for row in result for one in row]
        prompt_R, response_R = [prompt for prompt, _ in pairs], [text for _, text in pairs]
        both = SavedLikelihood.load(model), SavedLikelihood.load(task.base)
        ratios = log_ratios(*both, prompt_R, response_R)
        assert ratios is not None  # the policy has its base's words
        figures.parent.mkdir(parents=True, exist_ok=True)
        figures.write_text(json.dumps({"log_ratio": float(np.nanmean(ratios))}), encoding="utf-8")
    return Made(result, json.loads(figures.read_text(encoding="utf-8"))["log_ratio"])


def _model(task: Task) -> Path:
    """The folder of a policy, which is trained if it is missing."""
    cell, plan, folder = task.cell, task.plan, task.folder / "runs" / task.cell.name
    if (folder / "result.json").exists():
        return folder / "model"
    ledgered = {"epsilon": cell.epsilon, "delta": DELTA, "seed": cell.seed}
    resume = (folder / "config.json").exists()
    if cell.way != ALIGN:
        murmuration.train(
            str(task.data),
            out=folder,
            resume=resume,
            base=task.base,
            task="policy",
            loss=cast(Any, cell.way),
            rounds=plan.rounds,
            cohort=plan.cohort,
            group_size=plan.group_size,
            learning_rate=cell.step,
            once_per_text=True,
            batch_users=True,
            heldout=0.0,
            **plan.lora,
            **ledgered,
        )
        return folder / "model"
    reward = task.folder / "rewards" / f"{cell.name}"
    if not (reward / "result.json").exists():
        murmuration.train(
            str(task.data),
            out=reward,
            resume=(reward / "config.json").exists(),
            features=plan.features,
            rounds=plan.reward_rounds,
            cohort=plan.reward_cohort,
            heldout=0.0,
            **ledgered,
        )
    prompts = folder.with_suffix(".prompts.jsonl")
    climbed = requests(plan.written + plan.climbing)[plan.written :]
    prompts.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps({"prompt": prompt}) + "\n" for prompt in climbed)
    prompts.write_text("".join(lines), encoding="utf-8")
    murmuration.align(
        reward / "model",
        base=task.base,
        base_privacy="public",
        prompts=str(prompts),
        prompts_public=True,
        out=folder,
        resume=resume,
        truth="none",
        steps=Steps(steps=int(cell.step)),
        seed=cell.seed,
        **plan.climbs,
    )
    return folder / "model"


def _places(made: Mapping[Cell, Made], cell: Cell, plan: Plan) -> slice:
    at = list(made).index(cell) * plan.samples
    return slice(at, at + plan.samples)


def _of(made: Mapping[Cell, Made], way: str, epsilon: float) -> list[Cell]:
    return [cell for cell in made if (cell.way, cell.epsilon) == (way, epsilon)]


def _tried(made: Mapping[Cell, Made], chooser: Judge, plan: Plan) -> list[Row]:
    """The gain of each step on the questions for choosing; the largest is ``chosen``."""
    rows: list[Row] = []
    for way, steps in plan.steps.items():
        for epsilon in plan.epsilons:
            gains = {
                step: [
                    float(chooser.gain_PN[:, _places(made, cell, plan)].mean())
                    for cell in (Cell(way, epsilon, step, seed) for seed in range(plan.seeds))
                ]
                for step in steps
            }
            best = max(steps, key=lambda step: float(np.mean(gains[step])))
            rows += [
                {
                    "way": way,
                    "epsilon": epsilon,
                    "step": step,
                    **mean_sd("choosing_gain", gains[step]),
                    "log_ratio": float(
                        np.mean(
                            [
                                made[Cell(way, epsilon, step, seed)].log_ratio
                                for seed in range(plan.seeds)
                            ]
                        )
                    ),
                    "chosen": step == best,
                }
                for step in steps
            ]
    return rows


def _win_rows(
    made: Mapping[Cell, Made], judges: Mapping[str, Judge], pool: Pool, plan: Plan
) -> list[Row]:
    """The win rates of policies with the chosen steps."""
    draws = CrossedDraws(plan.judged, plan.seeds)
    cut_off_PN = pool.per_answer(lambda answer: answer.cut_off)
    words_PN = pool.per_answer(lambda answer: len(answer.response.split()))
    rows: list[Row] = []
    for name, judge in judges.items():
        for way in plan.steps:
            free_B = None
            for epsilon in reversed(plan.epsilons):
                cells = _of(made, way, epsilon)
                chance_SPN = np.zeros((plan.seeds, *judge.gain_PN.shape))
                for cell in cells:
                    chance_SPN[cell.seed, :, _places(made, cell, plan)] = 1 / plan.samples
                gain_B = draws.means(chance_SPN, judge.gain_PN)
                free_B = gain_B if free_B is None else free_B
                controlled_B = draws.length_controlled(chance_SPN, judge.wins_PN, pool.longer_PN)
                rows.append(
                    {
                        "judge": name,
                        "way": way,
                        "epsilon": epsilon,
                        "step": cells[0].step,
                        "log_ratio": float(np.mean([made[cell].log_ratio for cell in cells])),
                        **interval("win", draws.means(chance_SPN, judge.wins_PN)),
                        **interval("controlled", controlled_B),
                        **interval("gain", gain_B),
                        **interval("of_nonprivate", _share(gain_B, free_B)),
                        "cut_off": draws.means(chance_SPN, cut_off_PN)[0],
                        "words": draws.means(chance_SPN, words_PN)[0],
                    }
                )
    return rows


def _share(gain_B: np.ndarray, free_B: np.ndarray) -> np.ndarray:
    """The first over the second; infinite in a draw where the second is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share_B = gain_B / free_B
    return np.where(free_B == 0.0, np.copysign(np.inf, gain_B), share_B)


def _examples(
    made: Mapping[Cell, Made], pool: Pool, chooser: Judge, plan: Plan
) -> list[dict[str, Any]]:
    """Questions, spread evenly over the judged ones, with the base's answer and that of the first
    seed's policy of each way at the smallest ε.
    """
    epsilon, count = min(plan.epsilons), min(12, plan.judged)
    result = []
    for at in np.linspace(0, plan.judged - 1, count).astype(int).tolist():
        by_way = {}
        for way in plan.steps:
            place = _places(made, _of(made, way, epsilon)[0], plan).start
            by_way[way] = {
                "response": pool.others[at][place].response,
                "gain": float(chooser.gain_PN[at, place]),
            }
        first = pool.first[at]
        result.append({"prompt": first.prompt, "base": first.response, **by_way})
    return result


def remarks(rows: Rows, extra: Mapping[str, Any]) -> list[str]:
    """Sentences on win rates, and on the choice of steps."""
    result = [
        f"{row['way']}, ε = {row['epsilon']:g}, judged on {row['judge']}: wins "
        f"{shown(row, 'win', '.1%')}, at equal length {shown(row, 'controlled', '.1%')}; "
        f"step {row['step']:g}, "
        f"{row['log_ratio']:.2f} nats from the base, {row['words']:.0f} words, "
        f"{row['cut_off']:.0%} cut off."
        for row in rows
        if "win" in row
    ]
    ends = [
        row
        for row in rows
        if row.get("chosen")
        and len(same := where(rows, way=row["way"], epsilon=row["epsilon"], chosen=(True, False)))
        > 1
        and row["step"] in ends_of(same)
    ]
    if ends:
        at_ends = ", ".join(f"{row['way']} at ε = {row['epsilon']:g}" for row in ends)
        result.append(f"The chosen step is the least or largest that was tried: {at_ends}.")
    result.append(
        f"{extra['questions']} questions, {extra['samples']} answers of each of {extra['seeds']} "
        "policies."
    )
    return result


def plot(rows: Rows) -> Figure:
    """A plot of wins by ε, a line for each way, a panel for each judge."""
    wins = [row for row in rows if "win" in row]
    judges = distinct(wins, "judge")
    figure = Figure(figsize=(3.2 * len(judges), 3.4), layout="constrained")
    panels = figure.subplots(1, len(judges), sharey=True, squeeze=False)[0]
    for axes, judge in zip(panels, judges, strict=True):
        for place, way in enumerate(distinct(wins, "way")):
            same = sorted(where(wins, judge=judge, way=way), key=lambda row: row["epsilon"])
            win = [100 * row["win"] for row in same]
            ends = [[100 * abs(row[f"win_{end}"] - row["win"]) for row in same]
                    for end in ("low", "high")]  # fmt: skip
            at = [x + 0.08 * place for x in range(len(same))]
            axes.errorbar(at, win, yerr=ends, fmt="o-", ms=4, lw=1, label=way)
        axes.axhline(50, color="0.6", lw=1, ls=":")
        epsilons = sorted(distinct(wins, "epsilon"))
        axes.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
        axes.set(title=f"judged on {judge}", xlabel="ε")
        open_corner(axes)
    panels[0].set_ylabel("wins over the base, %")
    panels[0].legend(frameon=False, fontsize=8)
    return figure
