"""Choices and rankings among the fields of a record, as Argilla exports its records.

Who answered stands beside each answer. Suggestions are a model's and are not read, nor are answers
that are drafts or were discarded. A record is several people's, so no node reads it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.preference.data.cells import label_text
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, first_of
from murmuration.preference.data.rows import PROMPT_COLUMNS

_PROMPTS = ("prompt", *PROMPT_COLUMNS)


def rows(row: Mapping[str, Any]) -> Iterator[Cells | BadRow]:
    """Yield what each person answered."""
    fields = row["fields"]
    prompt = first_of(fields, _PROMPTS)
    shown = {
        label_text(name): text
        for name, text in fields.items()
        if name not in _PROMPTS and text is not None
    }
    if prompt is None or len(shown) < 2:
        raise BadRow("'fields' needs a 'prompt' (or 'instruction', …) and two responses or more")
    for who, value in _answers(row["responses"]):
        try:
            if who is None:
                raise BadRow("an answer does not say who gave it ('user_id')")
            yield {"user_id": who, "prompt": prompt, **_judgement(value, shown)}
        except BadRow as reason:
            yield reason


def _answers(responses: Any) -> Iterator[tuple[object, Any]]:
    """Yield who answered, and what, of either version: by question, or by person."""
    by_person = not isinstance(responses, Mapping)
    answers: list[tuple[Any, Any]] = []
    if by_person:
        for each in responses:
            answers += [(each, answer["value"]) for answer in each["values"].values()]
    else:
        for question in responses.values():
            answers += [(each, each["value"]) for each in question]
    for each, value in answers:
        if each.get("status", "submitted") == "submitted" and _prefers(value):
            yield each.get("user_id"), value


def _prefers(value: Any) -> bool:
    """Return whether an answer is a choice by name or a ranking: other questions rate, or ask for
    words."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, Mapping) for each in value)
    return isinstance(value, str)


def _judgement(value: Any, shown: Mapping[str, object]) -> dict[str, object]:
    names, texts = list(shown), list(shown.values())
    if isinstance(value, str):
        meant = [
            place
            for place, name in enumerate(names)
            if label_text(value) in (name, name.rpartition(" ")[2])
        ]
        if len(meant) == 1:
            first = texts.pop(meant[0])
            if len(texts) == 1:
                return {"chosen": first, "rejected": texts[0]}
            return {"responses": [first, *texts], "best": 0}
        if label_text(value) == "tie" and len(texts) == 2:
            return {"chosen": texts[0], "rejected": texts[1], "tie": True}
        raise BadRow("an answer names none of the fields")
    ranks = {label_text(each["value"]): each["rank"] for each in value}
    if {*ranks} != {*names}:
        raise BadRow("a ranking does not rank exactly the fields that are there")
    if len(names) > 2:
        return {"responses": texts, "ranking": [ranks[name] for name in names]}
    ahead = ranks[names[0]] <= ranks[names[1]]
    chosen, rejected = texts if ahead else texts[::-1]
    return {"chosen": chosen, "rejected": rejected, "tie": ranks[names[0]] == ranks[names[1]]}


ARGILLA = Format("argilla", forms=(("fields", "responses"),), of_row=rows)
