"""A promise (``privacy.promise``) for cards, pages and programs.

The same entries whatever made the model, so that cards can be compared; None where there is no
figure. Every figure is rounded up. What an attacker can find (``privacy.attack_bounds``) follows
from a run's whole privacy curve on its own card and on its exports, and from (ε, δ) on what stands
on several runs.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting.terms import Caveat, Trust, Unit
from murmuration.privacy.promise import (
    Promise,
    ReleasedRun,
    composed_text,
    delta_text,
    epsilon_text,
    together,
    with_seed_known,
)
from murmuration.reporting.evidence import attack_rows, second_opinion_text

NO_AUDIT = "none was made of this model"
_LOSSES = "privacy loss distributions, rounded up"
_UNITS = {
    Unit.USER: "a user, with all their {rows}",
    Unit.ROW: "a single row, not a person",
    Unit.NOBODY: "nobody",
}

#: Entries of a promise, for the head of a card and its table.
Details = dict[str, Any]


def details(
    promise: Promise,
    *,
    result: Mapping[str, Any] | None = None,
    sampling: str | None = None,
    audit: str = NO_AUDIT,
    rows: str = "judgements",
) -> Details:
    """The details of a guarantee, for cards and reports.

    Args:
        promise: of a run, or of a model made from several.
        result: of the run, if it is a single one: bounds on attacks from its curve, and
            dp-accounting's epsilon of its training.
        sampling: a description of a run's rounds.
        audit: the result of one.
        rows: what users have.
    """
    epsilon = promise.epsilon
    several = len(promise.composed) > 1 or len(promise.counted) > 1
    basic = f"basic composition of {len(promise.counted)} runs, each by {_LOSSES}"
    return {
        "statement": promise.statement,
        "private": promise.private,
        "unit": _UNITS[promise.unit].format(rows=rows),
        "adjacency": promise.adjacency.value if promise.adjacency else None,
        **_figures(promise, (result or {}).get("attack")),
        "accountant": (basic if several else _LOSSES) if epsilon is not None else None,
        "second_opinion": second_opinion_text(result) if result else None,
        "sampling": sampling,
        "trust": _trust(promise) if epsilon is not None else None,
        "together": composed_text(promise) if several else None,
        "caveats": sorted(map(str, promise.caveats)),
        "runs": [run.name for run in promise.counted],
        "audit": audit,
    }


def audited(row: Mapping[str, Any]) -> str:
    """A line of ``murmuration audit --json`` as a sentence, for a promise's ``audit``."""
    return (
        f"epsilon is at least {float(row['epsilon_lower']):.3g} with {float(row['confidence']):.0%}"
        f" confidence, where {float(row['epsilon_claimed']):.3g} is claimed: of {row['target']}, "
        "not of this model"
    )


def table(told: Mapping[str, Any]) -> str:
    """Details of a promise as Markdown."""
    epsilon, delta, seeded = told["epsilon"], told["delta"], not told["private"]
    attacks = attack_rows(told) if epsilon is not None else {}
    cells = {
        "statement": told["statement"],
        "unit": told["unit"],
        "adjacency": told["adjacency"],
        "ε": with_seed_known(epsilon_text(epsilon), seeded) if epsilon is not None else None,
        "δ (failure probability)": delta_text(delta) if delta is not None else None,
        "accountant": told["accountant"],
        "second opinion": told.get("second_opinion"),
        "sampling": told["sampling"],
        "trust": told["trust"],
        "runs together": told["together"],
        "caveats": "; ".join(told["caveats"]) or "none",
        "audit": told["audit"],
        **{name: with_seed_known(value, seeded) for name, value in attacks.items()},
    }
    lines = [f"| {name} | {_cell(value)} |" for name, value in cells.items() if value is not None]
    return "\n".join(["| promise | |", "|---|---|", *lines])


def paragraphs(promise: Promise) -> list[str]:
    """The guarantee as paragraphs in Markdown: epsilon and its unit, the composition, and every
    caveat.
    """
    told = [f"**{promise.statement}.**"]
    if promise.adjacency and promise.unit is not Unit.NOBODY:
        each_row = promise.unit is Unit.ROW
        told[0] += f" {promise.adjacency.sentence(each_row=each_row)}"
    if len(promise.composed) == 1 and promise.populations:
        told[0] += f" It is about {promise.composed[0].who}."
    if len(promise.composed) > 1 or len(promise.counted) > 1:
        told.append(together(promise))
        told.append(
            "Runs: " + "; ".join(_run_in_words(run) for run in promise.counted) + "."
        )  # fmt: skip
    return [*told, *promise.sentences]


def _run_in_words(run: ReleasedRun) -> str:
    cost = "no figure" if run.epsilon is None else f"ε = {epsilon_text(run.epsilon)}"
    cost = f"{cost}, δ = {delta_text(run.delta)}, {run.adjacency}"
    return (
        f"{run.name}: {with_seed_known(cost, Caveat.SEEDED in run.terms.caveats)}, population "
        f"{run.terms.population or 'not declared'}"
    )


def _figures(promise: Promise, attack: Mapping[str, Any] | None) -> Details:
    if promise.epsilon is None or promise.delta is None:
        return dict.fromkeys(("epsilon", "delta", "attack"))
    if attack is None or len(promise.counted) > 1:
        bounds = attack_bounds.of_point(promise.epsilon, promise.delta)
        attack = dataclasses.asdict(bounds)
    epsilon = float(epsilon_text(promise.epsilon))
    return {"epsilon": epsilon, "delta": promise.delta, "attack": dict(attack)}


def _trust(promise: Promise) -> str:
    kinds = {run.terms.trust for run in promise.counted}
    return "; or, of another run: ".join(kind.sentence for kind in Trust if kind in kinds)


def _cell(value: object) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return " ".join(text.split()).replace("|", "/").replace("<", "&lt;").replace("`", "'")
