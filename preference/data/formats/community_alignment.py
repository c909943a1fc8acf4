"""The best of four responses, as Community Alignment publishes them, in one turn or in several.

Each turn is a judgement. What was said before, with the response that the person preferred, is part
of the prompt of the next.
"""

from collections.abc import Iterator

from murmuration.preference.data.cells import is_empty, label_text
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows

_LETTERS = ("a", "b", "c", "d")
_TURNS = ("first_turn_", "second_turn_", "third_turn_", "fourth_turn_")


def rows(row: Cells) -> Iterator[Cells]:
    """Yield the choice made in each turn."""
    history: list[dict[str, object]] = []
    for turn in _TURNS if "first_turn_prompt" in row else ("",):
        if is_empty(row.get(f"{turn}prompt")):
            return
        history.append({"role": "user", "content": row[f"{turn}prompt"]})
        shown = [letter for letter in _LETTERS if not is_empty(row.get(f"{turn}response_{letter}"))]
        column = f"{turn}preferred_response"
        label = label_text(row.get(column)).removeprefix("response ")
        if label not in shown:
            raise BadRow(f"{column!r} names none of the responses that are there")
        responses = [row[f"{turn}response_{letter}"] for letter in shown]
        best = shown.index(label)
        yield {"prompt": list(history), "responses": responses, "best": best}
        history.append({"role": "assistant", "content": responses[best]})


def _columns(turn: str) -> tuple[str, ...]:
    names = ("prompt", *(f"response_{letter}" for letter in _LETTERS), "preferred_response")
    return tuple(f"{turn}{name}" for name in names)


COMMUNITY_ALIGNMENT = Format(
    "community-alignment",
    forms=(_columns(""), _columns(_TURNS[0])),
    reads=OwnRows(rows),
    also=tuple(column for turn in _TURNS[1:] for column in _columns(turn)),
)
