"""Writes docs/explanation/what-is-proven.md from the table in privacy/theorems.py.

    python docs/write_what_is_proven.py

A test compares it with what would be written.
"""

from collections.abc import Iterator
from pathlib import Path

from murmuration.privacy.accounting import accountant, second_opinion
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    Event,
    MixtureGaussian,
    PoissonGaussian,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import TABLE, Status, Theorem
from murmuration.research.plugin import BRINGS
from murmuration.strategies import registry

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "what-is-proven.md"
#: For figures by two accountants: 200 rounds.
_ROUNDS, _DELTA = 200, 1e-5
_FIGURES: dict[str, tuple[Event, int]] = {
    "q = 0.1, σ = 4": (PoissonGaussian(0.1, 4.0), _ROUNDS),
    "p = 0.01, G = 4, σ = 2": (MixtureGaussian(2.0, 4, 0.01), _ROUNDS),
    "4 bands, q = 0.1, σ = 4": (BandedGaussian(4, 0.4, 4.0), _ROUNDS // 4),
    "turns 4 rounds apart, σ = 4": (BufferedGaussian(_ROUNDS, 4, 4.0), 1),
}


def page() -> str:
    """docs/explanation/what-is-proven.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    brought = [row for s in registry.OURS for row in s.theorems if row not in TABLE]
    rows = [*TABLE, *dict.fromkeys(brought)]
    yield "# What is proven"
    yield ""
    yield "Written by `python docs/write_what_is_proven.py` from `privacy/theorems.py`. A release"
    yield "without a row here cannot be built, and a run of it is refused before any data are read."
    yield ""
    yield "A row says how much of one user can be in a release, who takes part, and what is added"
    yield "or drawn. `murmuration audit NAME` attacks it. Strategies stand where their rounds are"
    yield "such releases; other releases of a run (a median, a threshold, a hold-out) have rows"
    yield "of their own. Words are in the [glossary](glossary.md)."
    yield ""
    yield "| | of one user | who takes part | added or drawn | under | strategies | audit |"
    yield "|---|---|---|---|---|---|---|"
    for number, row in enumerate(rows, start=1):
        under = ", ".join(f"`{a}`" for a in Adjacency if a in row.adjacencies)
        cells = (row.unit, row.participation, row.mechanism, under, _strategies(row), _audit(row))
        yield f"| {number} | {' | '.join(cells)} |"
    yield ""
    yield "What each says, and where it comes from:"
    yield ""
    for number, row in enumerate(rows, start=1):
        source = f" *{row.source}.*" if row.source else ""
        status = "" if row.status is Status.PROVEN else f" **{_STATUS[row.status]}**"
        yield f"{number}. {row.says}{status}{source}"
    yield ""
    yield "## By two accountants"
    yield ""
    yield f"ε of {_ROUNDS} rounds at δ = {_DELTA:g}, here and by dp-accounting:"
    yield ""
    yield "| | adjacency | here | dp-accounting |"
    yield "|---|---|---|---|"
    for about, charge in _FIGURES.items():
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
            if figures := _figures(charge, adjacency):
                yield f"| {about} | `{adjacency}` | {figures} |"


_STATUS = {
    Status.CLAIMED: "Claimed; the proof does not hold.",
    Status.NONE: "No promise.",
}


def _strategies(row: Theorem) -> str:
    names = [s for s in registry.OURS if row in s.theorems]
    checkout = BRINGS["murmuration.strategies"]
    return ", ".join(
        f"`{s.name}`" + (" (in a checkout)" if s.name in checkout else "") for s in names
    )


def _audit(row: Theorem) -> str:
    return f"`{row.audit}`" if row.audit else ""


def _figures(charge: tuple[Event, int], adjacency: Adjacency) -> str:
    try:
        ours = accountant.epsilon([charge], adjacency=adjacency, delta=_DELTA)
    except ValueError:  # no row
        return ""
    found = second_opinion.of_run([charge], adjacency=adjacency, delta=_DELTA)
    theirs = "no such event" if found.theirs is None else f"{found.theirs:.4f}"
    return f"{ours:.4f} | {theirs}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
