"""Comparisons of two texts (left or right), or ratings of one, as Label Studio exports its tasks.

A task is several annotators', so no node reads it. Annotations that were cancelled, or rejected by
a reviewer, are left out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from murmuration.preference.data.cells import list_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import (
    Cells,
    Format,
    SharedRecords,
    first_of,
    pair,
    side,
)
from murmuration.preference.data.formats.marks import Mark

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
#: A prompt, and by their columns the two texts, or the one, that were shown.
Shown = tuple[object, Mapping[str, object]]


def annotations(row: Cells) -> Iterator[tuple[object, object]]:
    """Yield the annotator of each annotation, and the annotation."""
    given = list_cell(row["annotations"])
    if given is None:
        raise BadRow("'annotations' is no list")
    for annotation in given:
        who = None
        if isinstance(annotation, Mapping):
            who = annotation.get("completed_by")
            who = who.get("id", who.get("email")) if isinstance(who, Mapping) else who
        yield who, annotation


def shown(row: Mapping[str, Any]) -> Shown:
    """The prompt and the texts of a task."""
    data = row["data"]
    shown = [both for both in _PAIRS if {*both} <= {*data}]
    shown = shown or [(column,) for column in _RATED if column in data]
    if len(shown) != 1:
        raise BadRow(
            "'data' has not exactly one pair of texts, as 'answer1' and 'answer2', nor a 'response'"
        )
    return first_of(data, _PROMPTS), {column: data[column] for column in shown[0]}


def judgement(shown: Shown, annotation: Mapping[str, Any]) -> Cells:
    """The pair, or the rated text, of an annotation."""
    prompt, texts = shown
    columns, first, *second = [*texts], *texts.values()
    if second:
        return pair(prompt, first, second[0], _won(annotation, columns))
    label = _selected(annotation, _KINDS_OF_RATINGS)
    return {"prompt": prompt, "completion": first, "label": label}


def _won(annotation: Mapping[str, Any], columns: Sequence[str]) -> float:
    words = [
        (name, column, column.replace("_", " "))
        for name, column in zip(("left", "right"), columns, strict=True)
    ]
    return side(_selected(annotation, _KINDS), "value", *words)


def _selected(annotation: Mapping[str, Any], kinds: Collection[str]) -> object:
    """Read an annotation's only result of these types; None for several choices."""
    results = [each for each in annotation["result"] if each.get("type") in kinds]
    if len(results) != 1:
        raise BadRow(f"an annotation needs exactly one result of type {' or '.join(kinds)}")
    value = results[0]["value"]
    label = next((value[key] for key in ("selected", "rating", "choices") if key in value), None)
    if isinstance(label, list):
        label = label[0] if len(label) == 1 else None
    return label


LABEL_STUDIO = Format(
    "label-studio",
    forms=(("id", "data", "annotations"),),
    reads=SharedRecords(annotations, shown, judgement),
    marks=(
        Mark("annotations.*.was_cancelled", (True,), "its annotator skipped the task"),
        Mark("annotations.*.last_action", ("skipped",), "its annotator skipped the task"),
        Mark("annotations.*.last_action", ("rejected",), "a reviewer rejected it"),
        Mark("annotations.*.reviews.-1.accepted", (False,), "a reviewer rejected it"),
    ),
)
