"""Comparisons of two texts (left or right), or ratings of one, as Label Studio exports its tasks.

A task is several people's where several annotated it, so no node reads it. Annotations that were
cancelled are none.
"""

from collections.abc import Collection, Iterator, Mapping
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
_RATED = ("response", "answer", "completion", "output")
_KINDS = ("pairwise", "choices")
_KINDS_OF_RATINGS = ("rating", "choices")


def rows(row: Mapping[str, Any]) -> Iterator[Cells | BadRow]:
    """Yield the pair, or the rated text, of each annotation."""
    data = row["data"]
    pairs = [both for both in _PAIRS if {*both} <= {*data}]
    single = [column for column in _RATED if column in data]
    if len(pairs or single) != 1:
        raise BadRow(
            "'data' has not exactly one pair of texts, as 'answer1' and 'answer2', nor a 'response'"
        )
    prompt = first_of(data, _PROMPTS)
    for annotation in row["annotations"]:
        if annotation.get("was_cancelled"):
            continue
        try:
            who = annotation.get("completed_by")
            who = who.get("id", who.get("email")) if isinstance(who, Mapping) else who
            if who is None:
                raise BadRow("an annotation does not say who completed it ('completed_by')")
            if pairs:
                first, second = (data[column] for column in pairs[0])
                judged = pair(prompt, first, second, _won(annotation, pairs[0]))
            else:
                label = _selected(annotation, _KINDS_OF_RATINGS)
                judged = {"prompt": prompt, "completion": data[single[0]], "label": label}
            yield {"user_id": who, **judged}
        except BadRow as reason:
            yield reason


def _won(annotation: Mapping[str, Any], columns: tuple[str, str]) -> float:
    words = [
        (name, column, column.replace("_", " "))
        for name, column in zip(("left", "right"), columns, strict=True)
    ]
    return side(_selected(annotation, _KINDS), "value", *words)


def _selected(annotation: Mapping[str, Any], kinds: Collection[str]) -> object:
    """Return what an annotation's only result of these types says, None for several choices."""
    results = [each for each in annotation["result"] if each.get("type") in kinds]
    if len(results) != 1:
        raise BadRow(f"an annotation needs exactly one result of type {' or '.join(kinds)}")
    value = results[0]["value"]
    label = next((value[key] for key in ("selected", "rating", "choices") if key in value), None)
    if isinstance(label, list):
        label = label[0] if len(label) == 1 else None
    return label


LABEL_STUDIO = Format("label-studio", forms=(("id", "data", "annotations"),), of_row=rows)
