"""Two responses and what several people said of them in one row, as MultiPref publishes them.

Each entry of a list is a separate judgement, by the annotator that it names. A row is several
people's, so no node reads it.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from murmuration.preference.data.cells import is_empty, list_cell
from murmuration.preference.data.columns import with_user
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import (
    Cells,
    Format,
    SharedRecords,
    first_of,
    pair,
    side,
)

_LISTS = ("normal_worker_annotations", "expert_worker_annotations", "annotations", "judgements")
_PROMPTS = ("prompt", "text")
_PAIRS = (("completion_a", "completion_b"), ("response_a", "response_b"))
_WINNERS = ("overall_pref", "winner", "preference")
_DEGREES = ("", " is slightly better", " is clearly better", " is better")
_FIRST, _SECOND = (
    frozenset(f"{word}{end}{degree}" for word in ("", "response ") for degree in _DEGREES)
    for end in ("a", "b")
)
#: A prompt and two responses.
Shown = tuple[object, object, object]


def entries(row: Cells) -> Iterator[tuple[object, object]]:
    """Yield the annotator of each judgement, and its entry."""
    if not {*_LISTS} & {*row}:
        raise BadRow(f"a row needs one of {', '.join(_LISTS)}")
    for name in _LISTS:
        given = [] if is_empty(row.get(name)) else list_cell(row[name])
        if given is None:
            raise BadRow(f"{name!r} is no list")
        for entry in given:
            who = None
            if isinstance(entry, Mapping):
                with suppress(BadRow):  # several columns may say it
                    who = entry.get(with_user(entry, {"user_id": "user_id"})["user_id"])
            yield who, entry


def shown(row: Cells) -> Shown:
    """The prompt and the two responses of a row."""
    first, second = next(both for both in _PAIRS if {*both} <= {*row})
    return first_of(row, _PROMPTS), row[first], row[second]


def judgement(shown: Shown, entry: object) -> Cells:
    """The pair of an entry."""
    winners = [name for name in _WINNERS if name in entry] if isinstance(entry, Mapping) else []
    if not isinstance(entry, Mapping) or len(winners) != 1:
        raise BadRow(f"a judgement needs exactly one of {', '.join(_WINNERS)}")
    return pair(*shown, side(entry[winners[0]], winners[0], _FIRST, _SECOND))


MULTIPREF = Format(
    "multipref",
    forms=tuple((prompt, *both, name) for name in _LISTS for prompt in _PROMPTS for both in _PAIRS),
    reads=SharedRecords(entries, shown, judgement),
    also=_LISTS,
)
