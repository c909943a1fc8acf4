"""Choices and rankings among the fields of a record, as Argilla exports its records.

Who answered stands beside each answer. Suggestions are a model's and are not read, nor are answers
that are drafts or were discarded. A record is several people's, so no node reads it.
"""

from collections import defaultdict
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
    answers = _answers(row["responses"])
    preferring = [
        question for question, given in answers.items() if any(_prefers(v, shown) for _, v in given)
    ]
    if len(preferring) != 1 and any(answers.values()):
        raise BadRow("not exactly one question has answers that name fields, or rank them")
    for who, value in answers[preferring[0]] if preferring else ():
        try:
            if who is None:
                raise BadRow("an answer does not say who gave it ('user_id')")
            yield {"user_id": who, "prompt": prompt, **_judgement(value, shown)}
        except BadRow as reason:
            yield reason


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
    if not (isinstance(value, list) and all(isinstance(each, Mapping) for each in value)):
        raise BadRow("an answer is neither the name of a field nor a ranking")
    ranks = {label_text(each["value"]): each["rank"] for each in value}
    if {*ranks} != {*names}:
        raise BadRow("a ranking does not rank exactly the fields that are there")
    if len(names) > 2:
        return {"responses": texts, "ranking": [ranks[name] for name in names]}
    ahead = ranks[names[0]] <= ranks[names[1]]
    chosen, rejected = texts if ahead else texts[::-1]
    return {"chosen": chosen, "rejected": rejected, "tie": ranks[names[0]] == ranks[names[1]]}


ARGILLA = Format("argilla", forms=(("fields", "responses"),), of_row=rows)
