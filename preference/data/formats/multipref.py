"""Two responses and what several people said of them in one row, as MultiPref publishes them.

Each entry of a list is a judgement of its own, by whom it names. A row is several people's, so no
node reads it.
"""

from collections.abc import Iterator, Mapping

from murmuration.preference.data.cells import is_empty, list_cell
from murmuration.preference.data.column_meanings import with_user
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, first_of, pair, side

_LISTS = ("normal_worker_annotations", "expert_worker_annotations", "annotations", "judgements")
_PROMPTS = ("prompt", "text")
_PAIRS = (("completion_a", "completion_b"), ("response_a", "response_b"))
_WINNERS = ("overall_pref", "winner", "preference")
_DEGREES = ("", " is slightly better", " is clearly better", " is better")
_FIRST, _SECOND = (
    frozenset(f"{word}{end}{degree}" for word in ("", "response ") for degree in _DEGREES)
    for end in ("a", "b")
)


def rows(row: Cells) -> Iterator[Cells | BadRow]:
    """Yield the pair of each who judged."""
    prompt = first_of(row, _PROMPTS)
    columns = next(both for both in _PAIRS if {*both} <= {*row})
    first, second = (row[column] for column in columns)
    for name in _LISTS:
        for entry in [] if is_empty(row.get(name)) else list_cell(row[name]) or ():
            try:
                yield _judged(entry, prompt, first, second)
            except BadRow as reason:
                yield reason


def _judged(entry: object, prompt: object, first: object, second: object) -> Cells:
    winners = [name for name in _WINNERS if name in entry] if isinstance(entry, Mapping) else []
    if not isinstance(entry, Mapping) or len(winners) != 1:
        raise BadRow(f"a judgement needs exactly one of {', '.join(_WINNERS)}")
    who = with_user(entry, {"user_id": "user_id"})["user_id"]
    if is_empty(entry.get(who)):
        raise BadRow("a judgement does not say whose it is: an 'evaluator', 'annotator_id' or such")
    won = side(entry[winners[0]], winners[0], _FIRST, _SECOND)
    return {"user_id": entry[who], **pair(prompt, first, second, won)}


MULTIPREF = Format(
    "multipref",
    forms=tuple((prompt, *both, name) for name in _LISTS for prompt in _PROMPTS for both in _PAIRS),
    of_row=rows,
    also=_LISTS,
)
