"""All audits in turn, and the page that tells of them."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from privacy import audit_discrete
from privacy.adjacency import Adjacency
from privacy.audit import CONFIDENCE, Target, Task
from privacy.discrete import installed
from privacy.randomness import Randomness
from sims.audit_faults import FAULTS, NEED_OPENDP, Fault
from sims.audit_targets import TARGETS
from sims.audit_words import INTRODUCTION, READING

Row = dict[str, Any]
#: Relations under which neighbouring data sets are the same inputs to a mechanism: one is audited.
_SAME = {Adjacency.ZERO_OUT: Adjacency.ADD_REMOVE, Adjacency.REPLACE_LABELS: Adjacency.REPLACE}


def audit_row(name: str, target: Target, task: Task, seed: int) -> Row:
    """One audit, as it is printed and written."""
    started = time.monotonic()
    measured = target.measure(task)
    return {
        "target": name,
        "adjacency": task.adjacency.value,
        "epsilon_claimed": measured.claimed,
        "epsilon_lower": measured.lower,
        "confidence": task.confidence,
        "trials": measured.trials,
        "verdict": target.verdict(measured),
        "delta": measured.delta,
        "epsilon_gaussian_fit": measured.fit,
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
    }


def fault_row(name: str, fault: Fault, seed: int, confidence: float = CONFIDENCE) -> Row:
    """The audit of one seeded fault; ``caught`` or ``missed``."""
    started = time.monotonic()
    task = Task(fault.adjacency, fault.epsilon, fault.trials, Randomness(seed), confidence)
    measured = fault.measure(task)
    return {
        "fault": name,
        "about": fault.about,
        "epsilon_claimed": measured.claimed,
        "epsilon_lower": measured.lower,
        "verdict": "caught" if measured.lower > measured.claimed else "missed",
        "test": fault.test,
        "construction": fault.construction,
        "seconds": round(time.monotonic() - started, 1),
    }


def distinct(target: Target) -> list[Adjacency]:
    """The relations under which the target has claims, one of each two that are audited alike."""
    return [a for a in Adjacency if a in target.adjacencies and not _twin(a, target)]


def _twin(adjacency: Adjacency, target: Target) -> bool:
    return _SAME.get(adjacency) in target.adjacencies


def audit_all(
    seed: int, confidence: float, say: Callable[[Row], None]
) -> tuple[list[Row], list[Row]]:
    """Every target under every distinct relation, then every fault; ``say`` gets each row.

    Discrete noise only where the library that draws it is installed.
    """
    audits, faults = [], []
    for name, target in TARGETS.items():
        if name in audit_discrete.TARGETS and not installed():
            continue
        for adjacency in distinct(target):
            source = Randomness(seed)
            task = Task(adjacency, target.epsilon, target.trials, source, confidence)
            audits.append(audit_row(name, target, task, seed))
            say(audits[-1])
    for name, fault in FAULTS.items():
        if name in NEED_OPENDP and not installed():
            continue
        faults.append(fault_row(name, fault, seed, confidence))
        say(faults[-1])
    return audits, faults


def failed(audits: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of what is claimed sound and is not, and of faults that were missed."""
    broken = [row["target"] for row in audits if row["verdict"] == "violated"]
    return broken + [row["fault"] for row in faults if row["verdict"] == "missed"]


def page(audits: Sequence[Row], faults: Sequence[Row], seed: int, confidence: float) -> str:
    """The Markdown page."""
    seconds = sum(row["seconds"] for row in (*audits, *faults))
    date = datetime.now(UTC).date().isoformat()
    lines = [
        *INTRODUCTION.splitlines(),
        "",
        f"Written by `murmuration audit --all --seed {seed}` on {date} in "
        f"{seconds / 60:.1f} minutes, at {confidence:.0%} confidence for each bound.",
        "",
        "## What is claimed and what can be shown",
        "",
        "| target | adjacency | ε claimed | ε at least | of it | δ | trials | verdict |",
        "|---|---|---|---|---|---|---|---|",
        *(_audit_line(row) for row in audits),
        "",
        *_about_targets(),
        "",
        "## Seeded faults",
        "",
        "Each was put into the honest code, which was then audited against the honest claim. "
        "The test is one that fails when the fault is put in; the last column says what else "
        "stands in its way.",
        "",
        "| fault | ε claimed | ε at least | audit | test | construction |",
        "|---|---|---|---|---|---|",
        *(_fault_line(row) for row in faults),
        "",
        *READING.splitlines(),
        "",
    ]
    return "\n".join(lines)


def _audit_line(row: Row) -> str:
    share = row["epsilon_lower"] / row["epsilon_claimed"]
    return (
        f"| `{row['target']}` | {row['adjacency']} | {row['epsilon_claimed']:.3g} | "
        f"{row['epsilon_lower']:.3g} | {share:.0%} | {row['delta']:g} | {row['trials']:,} | "
        f"{row['verdict']} |"
    )


def _fault_line(row: Row) -> str:
    return (
        f"| {row['about']} | {row['epsilon_claimed']:.3g} | {row['epsilon_lower']:.3g} | "
        f"{row['verdict']} | `{row['test']}` | {row['construction'] or '–'} |"
    )


def _about_targets() -> list[str]:
    return [f"- `{name}`: {target.about}." for name, target in TARGETS.items()]
