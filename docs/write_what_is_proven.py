"""Writes docs/explanation/what-is-proven.md from the table in privacy/theorems.py.

    python docs/write_what_is_proven.py

A test compares it with what would be written.
"""

from collections.abc import Iterator, Sequence
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
from murmuration.privacy.theorems import TABLE, Mechanism, Status, Theorem
from murmuration.research.plugin import BRINGS
from murmuration.strategies import registry

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "what-is-proven.md"
#: Forms of noise that take the place of continuous Gaussian noise.
_IN_PLACE = (Mechanism.DISCRETE_GAUSSIAN, Mechanism.SHARES)
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
    yield "A row is one kind of release. What has no row cannot be built: a run"
    yield "that needs it is refused before any data are read. `murmuration audit NAME` attacks the"
    yield "theorem with that audit. Words are in the [glossary](glossary.md). This page is written"
    yield "by `python docs/write_what_is_proven.py` from `privacy/theorems.py`."
    yield ""
    yield "| | one user contributes | sampled | noise | adjacency | strategies | audit |"
    yield "|---|---|---|---|---|---|---|"
    says = []
    for number, alike in enumerate(_alike(rows), start=1):
        row = alike[0]
        adjacencies = [f"`{a}`" for a in Adjacency if a in row.adjacencies]
        under = "all" if len(adjacencies) == len(Adjacency) else ", ".join(adjacencies)
        under = _UNDER.get(row.status, under)
        added = "; ".join(each.mechanism for each in alike)
        audits = ", ".join(dict.fromkeys(_audit(each) for each in alike))
        cells = (row.unit, row.participation, added, under, _strategies(alike), audits)
        yield f"| {number} | {' | '.join(cells)} |"
        source = f" *{row.source}.*" if row.source else ""
        status = "" if row.status is Status.PROVEN else f" **{_STATUS[row.status]}**"
        says.append(f"{number}. {row.says}{status}{source}")
    yield ""
    yield "The theorems, with Gaussian noise where a row has several kinds:"
    yield ""
    yield from says
    yield ""
    yield "The same with other noise:"
    yield ""
    for mechanism in _IN_PLACE:
        row = next(row for row in rows if row.mechanism is mechanism)
        yield f"- *{mechanism}*: {row.says} *{row.source}.*"
    yield ""
    yield "## Compared with dp-accounting"
    yield ""
    yield f"ε of {_ROUNDS} rounds at δ = {_DELTA:g}, by both accountants:"
    yield ""
    yield "| | adjacency | Murmuration | dp-accounting |"
    yield "|---|---|---|---|"
    for about, charge in _FIGURES.items():
        for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE):
            if figures := _figures(charge, adjacency):
                yield f"| {about} | `{adjacency}` | {figures} |"


def _alike(rows: Sequence[Theorem]) -> Iterator[list[Theorem]]:
    """Group rows that differ only in the form of Gaussian noise."""
    for row in rows:
        if row.mechanism not in _IN_PLACE:
            others = (r for r in rows if r.mechanism in _IN_PLACE and _sum(r) == _sum(row))
            yield [row, *(others if row.mechanism is Mechanism.GAUSSIAN else ())]


def _sum(row: Theorem) -> tuple:
    return row.unit, row.participation, row.adjacencies


#: In place of adjacencies, where nothing is proven under any.
_UNDER = {Status.CLAIMED: "none (claimed under all)", Status.NONE: "none"}
_STATUS = {
    Status.CLAIMED: "Claimed by the paper; the proof does not hold.",
    Status.NONE: "No guarantee.",
}


def _strategies(alike: Sequence[Theorem]) -> str:
    """Name the strategies that have these rows, and those that have only the first."""
    named = [s for s in registry.OURS if alike[0] in s.theorems]
    checkout = BRINGS["murmuration.strategies"]
    return ", ".join(
        f"`{s.name}`"
        + (" (in a checkout)" if s.name in checkout else "")
        + ("" if all(row in s.theorems for row in alike) else f" ({alike[0].mechanism} alone)")
        for s in named
    )


def _audit(row: Theorem) -> str:
    return f"`{row.audit}`" if row.audit else ""


def _figures(charge: tuple[Event, int], adjacency: Adjacency) -> str:
    try:
        ours = accountant.epsilon([charge], adjacency=adjacency, delta=_DELTA)
    except ValueError:  # no row
        return ""
    opinion = second_opinion.of_run([charge], adjacency=adjacency, delta=_DELTA)
    theirs = "no such event" if opinion.theirs is None else f"{opinion.theirs:.4f}"
    return f"{ours:.4f} | {theirs}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
