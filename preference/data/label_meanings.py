"""What labels and missing prompts mean: by what is declared, or by all rows together.

A scale that is declared says what each label stands for. Where none is, a set of labels that is
known as a whole (`true` and `false`, 1 and 0, two sides) does, and nothing is guessed from what is
left: such rows are refused with what would tell.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from murmuration.preference.choices import Kind
from murmuration.preference.data.cells import (
    THUMBS,
    WINNING_SIDES,
    Scale,
    is_number,
    recognised,
    shortened,
)
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.judgement_row import Row
from murmuration.preference.data.schema import Schema

NO_PROMPT = "no row has a prompt"
SHARED_WORDS = "no column 'prompt': it is the words that 'chosen' and 'rejected' both begin with"
_MOST_UNREAD = 0.05  # of rows with labels, that may be left out
_NUMBERS_AT_NODES = (
    "these numbers do not say what they stand for: declare it at the node, as scale=0..1 or 1..5"
)


def decide(rows: Sequence[Row], at_node: bool = False) -> tuple[list[Row | BadRow], str]:
    """Return rows with what their labels and missing prompts mean, for which all of them are looked
    at, and bad rows for those that stay open; and why rows are not read at all, if so many are.

    At a node ``rows`` are one user's, and nobody else's rows decide what they mean.
    """
    bare = all(row.whole for row in rows)
    if bare and any(row.prompt_problem and len({*row.whole}) == len(row.whole) for row in rows):
        rows = [without_prompt(row) for row in rows]
    if not any(row.label or row.prompt_problem for row in rows):
        return [*rows], ""
    scales: dict[str, Scale | None] = {}
    for kind, known in (("thumbs", THUMBS), ("pairs", WINNING_SIDES)):
        labelled = [row for row in rows if row.label and row.kind == kind]
        labels = {row.label for row in labelled}
        numbers = sorted(float(label) for label in labels if is_number(label))
        unread = [row for row in labelled if row.label_problem]
        scales[kind] = recognised(labels, known) if unread else {}
        unknown = bool(unread) and scales[kind] is None
        if not at_node:
            number = any(is_number(row.label) for row in unread)
            if unknown and (number or len(unread) > _MOST_UNREAD * len(labelled)):
                return [], _misread(kind, labels, numbers, unread)
        elif numbers and (unknown or (kind == "thumbs" and len(numbers) == 1)):
            problem, scales[kind] = _NUMBERS_AT_NODES, None
            rows = [
                replace(row, label_problem=problem)
                if row.kind == kind and is_number(row.label)
                else row
                for row in rows
            ]
    return [_decided(row, scales) for row in rows], ""


def _decided(row: Row, scales: Mapping[str, Scale | None]) -> Row | BadRow:
    scale = scales.get(row.kind)
    problem = row.prompt_problem
    if row.label_problem and not problem:
        if scale is not None:
            return first_preferred(row, scale[row.label])
        problem = row.label_problem
    if not problem:
        return row
    reason = BadRow(problem)
    reason.user_id = row.user_id
    return reason


def _misread(kind: str, labels: set[str], numbers: Sequence[float], unread: Sequence[Row]) -> str:
    """Return why labels are not read, and what would tell what they mean."""
    shown = shortened(", ".join(sorted(labels, key=lambda label: (len(label), label))), 100)
    if numbers:
        low, high = f"{numbers[0]:g}", f"{numbers[-1]:g}"
        above = next((n for n in numbers if 2 * n > numbers[0] + numbers[-1]), numbers[-1])
        if kind == "thumbs":
            return (
                f"labels are {shown}, which is no scale that is known: pass --positive-from "
                f"{above:g} if {above:g} and more are thumbs up, or --scale {low}..{high} if that "
                "is the whole scale and what lies above its middle is; --scale "
                f"{high}..{low} if {low} is the best"
            )
        return (
            f"winners are {shown}, which name no side: pass --scale {low}..{high} if what lies "
            "below its middle says that the first response won, and what lies above it the second"
        )
    share = f"{len(unread)} rows have labels that are not understood"
    if kind == "thumbs":
        return f"{share}: {shown}. Write true and false, or numbers and pass --positive-from NUMBER"
    return (
        f"{share}: winners are {shown}, and two columns of responses were found. Where more were "
        "shown, give them as a list, `responses`, with `best`, and pass --kind top-1"
    )


def is_declared(schema: Schema, kind: Kind) -> bool:
    """Return whether the schema says what labels of this kind stand for."""
    return bool(schema.scale or (schema.positive_from and kind == "thumbs"))


def meaning(label: str, kind: Kind, schema: Schema) -> float:
    """Return what a label stands for on the declared scale: 1 for liked, or for the first of two, 0
    for the other way, 0.5 for neither; BadRow for what is not on it."""
    low, high = schema.bounds
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and low <= number <= high):
        raise BadRow(f"the label {label!r} is not on the scale that is declared")
    if kind == "thumbs" and schema.positive_from:
        return float(number >= float(schema.positive_from))
    above = (number - (low + high) / 2.0) * (-1.0 if schema.falling else 1.0)
    return 0.5 if above == 0.0 else float((above > 0.0) == (kind == "thumbs"))


def first_preferred(row: Row, y: float) -> Row:
    """Return a row whose label stands for ``y``: of a pair 0 means that the second response was
    preferred."""
    if row.kind == "thumbs":
        return replace(row, y=y, label_problem="")
    if y == 1.0 == row.y:
        return row
    if y == 0.0:
        against = tuple(-covariate for covariate in row.covariates)
        row = replace(row, responses=row.responses[::-1], whole=row.whole[::-1], covariates=against)
    return replace(row, y=0.5 if y == 0.5 else 1.0, label_problem="")


def without_prompt(row: Row) -> Row:
    """Return a row of whole texts, where no prompt is to be looked for in what they share."""
    notes = (*(note for note in row.notes if note != SHARED_WORDS), NO_PROMPT)
    return replace(row, prompt="", responses=row.whole, prompt_problem="", notes=notes)
