"""Two responses and a preference from -3 (the first is much better) to 3, as HelpSteer2 and
HelpSteer3 publish them, without saying who judged."""

from collections.abc import Iterator

from murmuration.preference.data.cells import number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows, pair

_FORMS = (
    ("context", "response1", "response2", "overall_preference"),
    ("prompt", "response_1", "response_2", "preference_strength"),
)


def rows(row: Cells) -> Iterator[Cells]:
    """Yield the pair of a preference."""
    prompt, first, second, column = next(form for form in _FORMS if {*form} <= {*row})
    strength = number_cell(row[column])
    if strength not in range(-3, 4):
        raise BadRow(f"{column!r} is no whole number from -3 to 3")
    won = 0.5 if strength == 0.0 else float(strength < 0.0)
    yield pair(row[prompt], row[first], row[second], won)


HELPSTEER = Format(
    "helpsteer",
    forms=_FORMS,
    reads=OwnRows(rows),
    nobody="it publishes what several people said as one figure, and not who they were",
)
