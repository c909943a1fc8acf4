"""Single responses on a scale from 1 to 5, as numbers or in the words of Likert; 5 is best.

4 and 5 are thumbs up, 1 and 2 thumbs down, 3 is neither, unless `--scale` or `--positive-from` says
otherwise.
"""

from collections.abc import Iterator

from murmuration.preference.data.cells import label_text, number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows, first_of

_WORDS = {
    "strongly disagree": 1.0,
    "disagree": 2.0,
    "neutral": 3.0,
    "neither agree nor disagree": 3.0,
    "agree": 4.0,
    "strongly agree": 5.0,
}
_RESPONSES = ("response", "completion")
_RATINGS = ("rating", "likert", "score")


def rows(row: Cells) -> Iterator[Cells]:
    """Yield the rating of one response."""
    ratings = [name for name in _RATINGS if name in row]
    if len(ratings) != 1:
        raise BadRow(f"which of the columns {', '.join(ratings)} is the rating?")
    value = row[ratings[0]]
    number = _WORDS.get(label_text(value), number_cell(value))
    if number != number:
        raise BadRow(f"{ratings[0]!r} is neither a number nor a word from 'strongly disagree' on")
    yield {"prompt": row["prompt"], "completion": first_of(row, _RESPONSES), "label": number}


LIKERT = Format(
    "likert",
    forms=tuple(("prompt", response, rating) for rating in _RATINGS for response in _RESPONSES),
    reads=OwnRows(rows),
    unmistakable=False,
    scale="1..5",
)
