"""Choices and rankings among the fields of a record, or ratings of one, as Argilla exports them.

Who answered stands beside each answer. Suggestions are a model's and are not read, nor are answers
that are drafts or were discarded. Of an annotator's answers to a record the one is read that names
fields, ranks or rates. A record is several people's, so no node reads it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from murmuration.preference.data.cells import label_text, list_cell, number_cell
from murmuration.preference.data.columns import PROMPT_COLUMNS
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, SharedRecords, first_of
from murmuration.preference.data.formats.marks import Mark
from murmuration.preference.data.user_ids import user_cell

_PROMPTS = ("prompt", *PROMPT_COLUMNS)
#: The prompt and the responses of a record.
Shown = tuple[object, Mapping[str, object]]
_NUMBERED = re.compile(r"( ?\d+| [a-z])$")  # of names as `label_text` writes them


def answers(row: Cells) -> Iterator[tuple[object, list[Any]]]:
    """Yield each annotator with their answers to all questions."""
    by_annotator: dict[object, tuple[object, list[Any]]] = {}
    for place, (who, given) in enumerate(_given(row["responses"])):
        name: object = place  # of nobody that could be read
        with suppress(BadRow):
            name = user_cell(who, "user_id")
        by_annotator.setdefault(name, (who, []))[1].extend(given)
    yield from (each for each in by_annotator.values() if each[1])


def _given(responses: object) -> Iterator[tuple[object, list[Any]]]:
    """Yield annotators with their answers: version 1 keeps them by annotator, version 2 by
    question.
    """
    by_question = isinstance(responses, Mapping)
    for given in responses.values() if by_question else [responses]:
        listed = [] if given is None else list_cell(given)
        if listed is None:
            raise BadRow("'responses' is no list of answers")
        for each in listed:
            if not isinstance(each, Mapping):
                yield None, [each]
            else:
                values = None if by_question else each.get("values")
                whole = [*values.values()] if isinstance(values, Mapping) else [each]
                yield each.get("user_id"), whole


def shown(row: Mapping[str, Any]) -> Shown:
    """The prompt and the responses of a record."""
    prompt, responses = first_of(row["fields"], _PROMPTS), _responses(row["fields"])
    if prompt is None or not responses:
        raise BadRow("'fields' needs a 'prompt' (or 'instruction', …) and a response, or several")
    return prompt, responses


def judgement(shown: Shown, given: Sequence[Any]) -> Cells:
    """Read the one answer that prefers: other questions rate, or ask for words."""
    prompt, responses = shown
    preferred: list[dict[str, object]] = []
    reasons: list[BadRow] = []
    for answer in given:
        try:
            preferred.append(_judgement(answer["value"], responses))
        except BadRow as reason:
            reasons.append(reason)
    if len(given) == len(reasons) == 1:
        raise reasons[0]
    if len(preferred) != 1:
        wanted = "names fields, or ranks them" if len(responses) > 1 else "rates the response"
        raise BadRow(f"not exactly one of an annotator's answers {wanted}")
    return {"prompt": prompt, **preferred[0]}


def _responses(fields: Mapping[str, object]) -> dict[str, object]:
    """The responses of a record: the fields that are numbered or lettered, as `response_a` and
    `response_b`, if there are any; else all except the prompt.
    """
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
    """The name without blanks: the field `response1` has the title `Response 1`."""
    return label_text(name).replace(" ", "")


ARGILLA = Format(
    "argilla",
    forms=(("fields", "responses"),),
    reads=SharedRecords(answers, shown, judgement),
    marks=(
        Mark("status", ("discarded",), "its record was discarded"),
        *(
            Mark(f"{answers}.status", (status,), reason)
            for answers in ("responses.*", "responses.*.*")
            for status, reason in (
                ("discarded", "its annotator discarded it"),
                ("draft", "it is a draft"),
            )
        ),
    ),
)
