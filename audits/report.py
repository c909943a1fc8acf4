"""All audits in turn, and their page: `templates/audits.md`."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from murmuration.audits.auditing import Fault, Target, Task, fault_row
from murmuration.audits.targets import TARGETS
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.reporting.jinja import markdown_templates

Row = dict[str, Any]
#: Relations under which neighbouring data sets are the same inputs to a mechanism: one is audited.
_SAME = {Adjacency.ZERO_OUT: Adjacency.ADD_REMOVE, Adjacency.REPLACE_LABELS: Adjacency.REPLACE}


def audit_row(name: str, target: Target, task: Task, seed: int) -> Row:
    """The row of one audit, as it is printed and written."""
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
        **({"base": task.base} if task.base else {}),
        "seconds": round(time.monotonic() - started, 1),
    }


def distinct(target: Target) -> list[Adjacency]:
    """The relations under which the target has claims, one of each two that are audited alike."""
    return [a for a in Adjacency if a in target.adjacencies and not _twin(a, target)]


def _twin(adjacency: Adjacency, target: Target) -> bool:
    return _SAME.get(adjacency) in target.adjacencies


def audit_all(
    seed: int, confidence: float, say: Callable[[Row], None], seeded: Mapping[str, Fault]
) -> tuple[list[Row], list[Row]]:
    """Audit every target under every distinct relation, then each ``seeded`` fault.

    ``say`` is given each row.

    What an optional library is needed for is left out where that is not installed.
    """
    audits, faults = [], []
    for name, target in TARGETS.items():
        if target.needs and not find_spec(target.needs):
            continue
        for adjacency in distinct(target):
            source = Randomness(seed)
            task = Task(adjacency, target.epsilon, target.trials, source, confidence)
            audits.append(audit_row(name, target, task, seed))
            say(audits[-1])
    for name, fault in seeded.items():
        if fault.needs and not find_spec(fault.needs):
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
    return _PAGE.render(
        audits=audits,
        faults=faults,
        targets=TARGETS,
        seed=seed,
        confidence=confidence,
        date=datetime.now(UTC).date().isoformat(),
        minutes=sum(row["seconds"] for row in (*audits, *faults)) / 60,
    )


def _bound(rows: Sequence[Row], *adjacencies: str) -> str:
    """The lower bound under one of these adjacencies, with its verdict unless it is consistent."""
    for row in rows:
        if row["adjacency"] in adjacencies:
            verdict = "" if row["verdict"] == "consistent" else f", {row['verdict']}"
            return f"{row['epsilon_lower']:.3g}{verdict}"
    return "–"


_FILTERS = {
    "digits": "{:.3g}".format,
    "number": "{:g}".format,
    "percent": "{:.0%}".format,
    "bound": _bound,
}
_PAGE = markdown_templates(Path(__file__).with_name("templates"), _FILTERS).get_template(
    "audits.md"
)
