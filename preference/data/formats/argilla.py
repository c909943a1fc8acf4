"""Choices and rankings among the fields of a record, or ratings of one, as Argilla exports them.

Who answered stands beside each answer. Suggestions are a model's and are not read, nor are answers
that are drafts or were discarded. A record is several people's, so no node reads it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.preference.data.cells import label_text, number_cell
from murmuration.preference.data.column_meanings import PROMPT_COLUMNS
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, first_of

_PROMPTS = ("prompt", *PROMPT_COLUMNS)
_NUMBERED = re.compile(r"( ?\d+| [a-z])$")  # of names as `label_text` writes them


def rows(row: Mapping[str, Any]) -> Iterator[Cells | BadRow]:
    """Yield what each person answered."""
    fields = row["fields"]
    prompt = first_of(fields, _PROMPTS)
    shown = _responses(fields)
    if prompt is None or not shown:
        raise BadRow("'fields' needs a 'prompt' (or 'instruction', …) and a response, or several")
    answers = _answers(row["responses"])
    preferring = [
        question
        for question, replies in answers.items()
        if any(_prefers(value, shown) for _, value in replies)
    ]
    if len(preferring) != 1 and any(answers.values()):
        wanted = "name fields, or rank them" if len(shown) > 1 else "rate the response in numbers"
        raise BadRow(f"not exactly one question has answers that {wanted}")
    for who, value in answers[preferring[0]] if preferring else ():
        try:
            if who is None:
                raise BadRow("an answer does not say who gave it ('user_id')")
            yield {"user_id": who, "prompt": prompt, **_judgement(value, shown)}
        except BadRow as reason:
            yield reason


def _responses(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the responses that were shown: fields that are numbered or lettered alike, as
    `response_a` and `response_b`, if there are any; else all but the prompt."""
    shown = {
        label_text(name): text
        for name, text in fields.items()
        if name not in _PROMPTS and text is not None
    }
    alike: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for name, text in shown.items():
        alike[_NUMBERED.sub("", name)][name] = text
    several = [group for group in alike.values() if len(group) > 1]
    return several[0] if len(several) == 1 else shown


def _answers(responses: Any) -> Mapping[str, list[tuple[object, Any]]]:
    """Return who answered, and what, by question; versions 1 and 2 keep them by person, or so."""
    answers: defaultdict[str, list[tuple[object, Any]]] = defaultdict(list)
    if isinstance(responses, Mapping):
        by_question = [
            (question, each, each) for question, given in responses.items() for each in given
        ]
    else:
        by_question = [
            (q, each, value) for each in responses for q, value in each["values"].items()
        ]
    for question, each, answer in by_question:
        if each.get("status", "submitted") == "submitted":
            answers[question].append((each.get("user_id"), answer["value"]))
    return answers


def _prefers(value: Any, shown: Mapping[str, object]) -> bool:
    """Return whether an answer names fields: other questions rate, or ask for words."""
    try:
        return bool(_judgement(value, shown))
    except BadRow:
        return False


def _judgement(value: Any, shown: Mapping[str, object]) -> dict[str, object]:
    names, texts = list(shown), list(shown.values())
    if len(texts) == 1:
        rating = number_cell(value)
        if rating != rating:
            raise BadRow("an answer is no number")
        return {"completion": texts[0], "label": rating}
    if isinstance(value, str):
        meant = [
            place
            for place, name in enumerate(names)
            if _closed(value) in (_closed(name), name.rpartition(" ")[2])
        ]
        if len(meant) == 1:
            first = texts.pop(meant[0])
            if len(texts) == 1:
                return {"chosen": first, "rejected": texts[0]}
            return {"responses": [first, *texts], "best": 0}
        if label_text(value) == "tie" and len(texts) == 2:
            return {"chosen": texts[0], "rejected": texts[1], "tie": True}
        raise BadRow("an answer names none of the fields")
    if not isinstance(value, list):
        raise BadRow("an answer is neither the name of a field nor a ranking")
    if all(isinstance(each, str) for each in value):  # version 2: from the best to the worst
        value = [{"value": each, "rank": place} for place, each in enumerate(value, start=1)]
    if not all(isinstance(each, Mapping) for each in value):
        raise BadRow("an answer is neither the name of a field nor a ranking")
    places = {_closed(name): name for name in names}
    ranks = {places.get(_closed(each["value"])): each["rank"] for each in value}
    if {*ranks} != {*names} or len(value) != len(names):
        raise BadRow("a ranking does not rank exactly the fields that are there")
    if len(names) > 2:
        return {"responses": texts, "ranking": [ranks[name] for name in names]}
    ahead = ranks[names[0]] <= ranks[names[1]]
    chosen, rejected = texts if ahead else texts[::-1]
    return {"chosen": chosen, "rejected": rejected, "tie": ranks[names[0]] == ranks[names[1]]}


def _closed(name: object) -> str:
    """Return a name without its blanks: the field `response1` has the title `Response 1`."""
    return label_text(name).replace(" ", "")


ARGILLA = Format("argilla", forms=(("fields", "responses"),), of_row=rows)
