"""The number of a language model's last layers that LoRA should change, for rewards of people.

Settings that read users' judgements to be chosen would cost them privacy, so the default is chosen
on other people's, as in `research.reproductions.alignment.head_states`: a fifth of the users is
held out, anew for each seed, and the others train by ``uls``. Each number of layers is tried with
several steps, as noise in more parameters wants smaller ones. What lies below the first layer that
learns is computed once for each text, so fewer layers also cost less: the processor time stands
beside.
"""

import itertools
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.preference.data.errors import InputError
from murmuration.research.reproductions.alignment.arguments import ends_of
from murmuration.research.reproductions.alignment.lora_rewards import Cell, Plan, Task, accuracies
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

HELD_OUT = "held-out"
#: Of a few hundred people; with thousands more ε buys as much.
PLAN = Plan(
    layers=("last:1", "last:2", "last:4", "last:8"),
    steps=(2000.0, 4000.0, 8000.0),
    epsilons=(8.0,),
    seeds=2,
    rounds=6,
    cohort=313,
    groups=(HELD_OUT,),
)


def lora_layers(quick: bool) -> Reproduction:
    """Run a miniature of the embedded population with a tiny base, if quick.

    Raises:
        InputError: it is not quick, so that people's judgements are needed.
    """
    if not quick:
        raise InputError("lora-layers needs --data, a file of judgements, and --out; or --quick")
    few = {"lora_rank": 2}
    plan = replace(
        PLAN, layers=("last:1", "all"), steps=(300.0,), seeds=2, rounds=2, cohort=12, group_size=2,
        lora=few, workers=1,
    )  # fmt: skip
    rows = list(itertools.islice(Population().rows("train"), 300))
    with TemporaryDirectory() as folder, reference(Population().texts("train", 300)) as base:
        return compared(rows, base, Path(folder), plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """Compare SmolLM2's last layers on people's judgements; runs are kept in ``out``.

    Raises:
        InputError: the file is not one of JSON lines with a ``user_id`` each.
    """
    try:
        rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
        users = {row["user_id"] for row in rows}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{data}: lora-layers reads a file of JSON lines, each with user_id, prompt, chosen "
            f"and rejected: {error}"
        ) from None
    plan = replace(PLAN, cohort=min(PLAN.cohort, len(users) * 2 // 5))
    return compared(rows, "smollm2", out / "lora-layers", plan)


def compared(rows: list[dict[str, Any]], base: str, folder: Path, plan: Plan) -> Reproduction:
    """A row for each number of layers and step: accuracy on held-out users, and cost."""
    for seed in range(plan.seeds):
        divide(rows, people(folder, seed), seed)
    cells = [
        Cell(*one)
        for one in itertools.product(plan.layers, plan.epsilons, plan.steps, range(plan.seeds))
    ]
    tasks = [Task(plan, people(folder, cell.seed), base, folder, cell) for cell in cells]
    result = in_processes(accuracies, tasks, plan.workers)
    by_cell = dict(zip(cells, tracked(result, "rewards", len(cells)), strict=True))
    minutes: dict[str, list[float]] = {layers: [] for layers in plan.layers}
    for cell, figures in by_cell.items():
        if figures["processor_minutes"] is not None:
            minutes[cell.layers].append(figures["processor_minutes"])
    table: list[Row] = []
    for layers, epsilon, step in itertools.product(plan.layers, plan.epsilons, plan.steps):
        same = [by_cell[Cell(layers, epsilon, step, seed)] for seed in range(plan.seeds)]
        table.append(
            {
                "layers": layers,
                "epsilon": epsilon,
                "step": step,
                **mean_sd("accuracy", [figures[HELD_OUT] for figures in same]),
                # Of a run that had the states below: the first of them computes these.
                "processor_minutes": min(minutes[layers], default=None),
            }
        )
    extra = {"users": len({row["user_id"] for row in rows}), "seeds": plan.seeds}
    return Reproduction(table, remarks(table), extra=extra, plot=plot(table))


def people(folder: Path, seed: int) -> Path:
    """The folder of the judgements of a seed's users."""
    return folder / "people" / str(seed)


def divide(rows: Iterable[dict[str, Any]], folder: Path, seed: int) -> None:
    """Write the judgements of a fifth of the users, and of the others to train on."""
    by_user: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_user.setdefault(row["user_id"], []).append(row)
    held_U = np.random.default_rng([seed, 36]).permutation(len(by_user)) < len(by_user) / 5
    folder.mkdir(parents=True, exist_ok=True)
    for name, wanted in (("train", False), (HELD_OUT, True)):
        some = (
            judged for judged, held in zip(by_user.values(), held_U, strict=True) if held == wanted
        )
        text = "".join(json.dumps(row) + "\n" for row in itertools.chain.from_iterable(some))
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def remarks(rows: Rows) -> list[str]:
    """Sentences on each number of layers with its best step, and its cost."""
    result = []
    for layers in distinct(rows, "layers"):
        same = where(rows, layers=layers)
        best = max(same, key=lambda row: row["accuracy_mean"])
        cost = best["processor_minutes"]
        end = ", the least or largest" if len(same) > 1 and best["step"] in ends_of(rows) else ""
        result.append(
            f"{layers}: {best['accuracy_mean']:.1%} of held-out users' judgements at step "
            f"{best['step']:g}, the best of {len(same)}{end}"
            + ("." if cost is None else f", in {cost:.1f} processor minutes a run.")
        )
    return result


def plot(rows: Rows) -> Figure:
    """A plot of accuracy by layers, a line for each step."""
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    layers = distinct(rows, "layers")
    for number, step in enumerate(distinct(rows, "step")):
        same = where(rows, step=step)
        axes.errorbar(
            [layers.index(row["layers"]) + 0.06 * number for row in same],
            [100 * row["accuracy_mean"] for row in same],
            [100 * (row["accuracy_sd"] or 0.0) for row in same],
            fmt="o-",
            ms=4,
            lw=1,
            capsize=2,
            label=f"step {step:g}",
        )
    axes.set_xticks(range(len(layers)), layers)
    axes.set(xlabel="layers that LoRA changes", ylabel="right about held-out people, %")
    axes.legend(fontsize=8)
    open_corner(axes)
    return figure
