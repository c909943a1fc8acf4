"""Comparisons of two texts, as Label Studio exports its tasks as JSON: left or right, by annotator.

A task is several people's where several annotated it, so no node reads it. Annotations that were
cancelled are none.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, first_of, pair, side

_PROMPTS = ("prompt", "question", "instruction", "text")
_PAIRS = (
    ("answer1", "answer2"),
    ("answer_1", "answer_2"),
    ("response1", "response2"),
    ("response_1", "response_2"),
    ("response_a", "response_b"),
    ("answer_a", "answer_b"),
    ("left", "right"),
)
_KINDS = ("pairwise", "choices")


def rows(row: Mapping[str, Any]) -> Iterator[Cells | BadRow]:
    """Yield the pair of each annotation."""
    data = row["data"]
    pairs = [both for both in _PAIRS if {*both} <= {*data}]
    if len(pairs) != 1:
        raise BadRow("'data' has not exactly one pair of texts, as 'answer1' and 'answer2'")
    first, second = (data[column] for column in pairs[0])
    for annotation in row["annotations"]:
        if annotation.get("was_cancelled"):
            continue
        try:
            who = annotation.get("completed_by")
            who = who.get("id", who.get("email")) if isinstance(who, Mapping) else who
            if who is None:
                raise BadRow("an annotation does not say who completed it ('completed_by')")
            won = _won(annotation, pairs[0])
            yield {"user_id": who, **pair(first_of(data, _PROMPTS), first, second, won)}
        except BadRow as reason:
            yield reason


def _won(annotation: Mapping[str, Any], columns: tuple[str, str]) -> float:
    results = [each for each in annotation["result"] if each.get("type") in _KINDS]
    if len(results) != 1:
        raise BadRow("an annotation needs exactly one result of type pairwise or choices")
    value = results[0]["value"]
    selected = value.get("selected", value.get("choices"))
    if isinstance(selected, list):
        selected = selected[0] if len(selected) == 1 else None
    words = [
        (name, column, column.replace("_", " "))
        for name, column in zip(("left", "right"), columns, strict=True)
    ]
    return side(selected, "value", *words)


LABEL_STUDIO = Format("label-studio", forms=(("id", "data", "annotations"),), of_row=rows)
