"""Rewards of people's judgements by LoRA in a language model's last layers, at several ε.

The same people as of `research.reproductions.alignment.arguments`, whose rewards are heads on
frozen states. Here the last layers of SmolLM2 learn, too. The step is chosen out of the same few at
each ε, on workers of ``gold.jsonl``; then it is tried on those of ``test.jsonl`` (the same debates)
and of ``unseen.jsonl`` (others). At the largest ε there is next to no noise.

Each run's figures are kept in a folder as it ends, and an interrupted command goes on. It is meant
for a GPU, where users share batches; on two cores a run takes about a quarter of an hour.

Legend: T texts, J judgements, K responses of each, R rows.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

import murmuration
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples import token_examples
from murmuration.research.reproductions.alignment.arguments import DELTA, ends_of
from murmuration.research.reproductions.entry import (
    Reproduction,
    Row,
    Rows,
    in_processes,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.policies.reference import reference
from murmuration.sims.population.population import Population

#: Who chooses the step, and whom it is tried on.
GROUPS = ("gold", "test", "unseen")


@dataclass(frozen=True)
class Plan:
    """Sizes and settings of a comparison.

    Attributes:
        layers: which of the base's layers learn; each way of it is compared.
        steps: learning rates that are tried.
        epsilons: the last is next to no noise.
        seeds: of runs.
        rounds, cohort, group_size: of runs.
        lora: what else of the base learns.
        workers: processes; None: one for each core.
        groups: files of people that a reward is tried on.
    """

    layers: Sequence[str] = ("last:4",)
    steps: Sequence[float] = (2000.0, 4000.0, 8000.0, 16000.0)
    epsilons: Sequence[float] = (1.0, 3.0, 8.0, 1000.0)
    seeds: int = 3
    rounds: int = 12
    cohort: int = 1300
    group_size: int = 16
    lora: Mapping[str, Any] = field(default_factory=lambda: {"lora_rank": 4})
    workers: int | None = None
    groups: Sequence[str] = GROUPS


@dataclass(frozen=True)
class Cell:
    """One run: its trained layers, ε, step and seed."""

    layers: str
    epsilon: float
    step: float
    seed: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        layers = self.layers.replace(":", "-")
        return f"{layers}-epsilon-{self.epsilon:g}-step-{self.step:g}-seed-{self.seed}"


@dataclass(frozen=True)
class Task:
    """The making of one run: of a folder's judgements, on a base, into another folder."""

    plan: Plan
    data: Path
    base: str
    folder: Path
    cell: Cell


def lora_rewards(quick: bool) -> Reproduction:
    """Run a miniature of the embedded population with a tiny base, if quick.

    Raises:
        InputError: it is not quick, so that people's judgements are needed.
    """
    if not quick:
        raise InputError(
            "lora-rewards needs --data, the folder that examples/ukp_judgements.py makes, and "
            "--out; or --quick"
        )
    plan = Plan(("last:1",), (300.0,), (3.0, 1000.0), 2, 3, 12, 2, {"lora_rank": 2}, 1)
    population = Population()
    splits = {"train": "train", "gold": "test", "test": "test", "unseen": "unseen-topics"}
    with TemporaryDirectory() as folder, reference(population.texts("train", 300)) as base:
        for group, split in splits.items():
            rows = itertools.islice(population.rows(split), 300 if group == "train" else 60)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            Path(folder, f"{group}.jsonl").write_text(text, encoding="utf-8")
        return compared(Path(folder), base, Path(folder, "runs"), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """Compare rewards on people's judgements; runs are kept in ``out``.

    Args:
        data: with train.jsonl, gold.jsonl, test.jsonl and unseen.jsonl.
        out: the folder of runs, from which an interrupted command continues.
    """
    return compared(data, "smollm2", out / "lora", Plan())


def compared(data: Path, base: str, folder: Path, plan: Plan) -> Reproduction:
    """A row for each step that was tried, ``chosen`` for the best, and remarks."""
    cells = [
        Cell(*one)
        for one in itertools.product(plan.layers, plan.epsilons, plan.steps, range(plan.seeds))
    ]
    tasks = [Task(plan, data, base, folder, cell) for cell in cells]
    result = in_processes(accuracies, tasks, plan.workers)
    by_cell = dict(zip(cells, tracked(result, "rewards", len(cells)), strict=True))
    rows: list[Row] = []
    for layers, epsilon in itertools.product(plan.layers, plan.epsilons):
        same = {
            step: [by_cell[Cell(layers, epsilon, step, seed)] for seed in range(plan.seeds)]
            for step in plan.steps
        }
        best = max(plan.steps, key=lambda step: float(np.mean([a["gold"] for a in same[step]])))
        rows += [
            {"layers": layers, "epsilon": epsilon, "step": step, "chosen": step == best}
            | {
                k: v
                for group in GROUPS
                for k, v in mean_sd(group, [a[group] for a in some]).items()
            }
            for step, some in same.items()
        ]
    return Reproduction(rows, remarks(rows))


def accuracies(task: Task) -> dict[str, Any]:
    """The accuracy of one run's reward on other people, by the plan's groups, and its training
    time; the reward is trained if it is missing.
    """
    cell, plan, folder = task.cell, task.plan, task.folder / task.cell.name
    figures = task.folder / f"{cell.name}.json"
    if not figures.exists():
        begun, is_whole = process_time(), not folder.exists()
        if not (folder / "result.json").exists():
            murmuration.train(
                str(task.data / "train.jsonl"),
                out=folder,
                resume=(folder / "config.json").exists(),
                base=task.base,
                train="lora",
                lora_layers=cell.layers,
                epsilon=cell.epsilon,
                delta=DELTA,
                rounds=plan.rounds,
                cohort=plan.cohort,
                group_size=plan.group_size,
                learning_rate=cell.step,
                once_per_text=True,
                batch_users=True,
                heldout=0.0,
                seed=cell.seed,
                **plan.lora,
            )
        # Of what an earlier command began it is not known.
        minutes = (process_time() - begun) / 60.0 if is_whole else None
        result: dict[str, float | None] = _accuracies(task, folder / "model") | {
            "processor_minutes": minutes
        }
        figures.write_text(json.dumps(result), encoding="utf-8")
    return json.loads(figures.read_text(encoding="utf-8"))


def _accuracies(task: Task, model: Path) -> dict[str, float]:
    """The accuracy of a saved reward on each group, without ties. The adapter is put on its base,
    whose cache holds the states below the trained layers.
    """
    import peft

    base = LanguageBase(BaseSettings(task.base, layers=task.cell.layers, **_named(task.plan.lora)))
    peft.set_peft_model_state_dict(base.model, peft.utils.load_peft_weights(str(model)))
    theta_D, result = base.theta(), {}
    for group in task.plan.groups:
        judgements = read_judgements(str(task.data / f"{group}.jsonl"), "btl", "", {})
        result[group] = token_examples(judgements, base).accuracy(theta_D).pooled
    return result


def _named(lora: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("lora_"): value for name, value in lora.items()}


def remarks(rows: Rows) -> list[str]:
    """Sentences on the accuracies with the chosen step of each ε."""
    result = []
    for row in where(rows, chosen=True):
        end = ", the least or largest that was tried" if row["step"] in ends_of(rows) else ""
        result.append(
            f"{row['layers']}, ε = {row['epsilon']:g}: {row['test_mean']:.1%} ± "
            f"{row['test_sd']:.1%} of other people's judgements in debates that it knows, "
            f"{row['unseen_mean']:.1%} ± {row['unseen_sd']:.1%} in others; "
            f"step {row['step']:g}{end}."
        )
    return result
