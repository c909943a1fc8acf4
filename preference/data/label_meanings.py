"""What a label stands for, by itself and by what is declared: no other row is looked at.

Words have fixed meanings (`true`, `thumbs up`, `left`). Numbers have none: in ratings from 1 to 5 a
1 is the worst, in thumbs of 1 and 0 the best. Their scale is declared (`--scale 1..5`).
"""

import math
from dataclasses import replace

from murmuration.preference.choices import Kind
from murmuration.preference.data.cells import TIES, found_kind, is_number, label_text
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.judgement_row import Row
from murmuration.preference.data.schema import Schema

_LIKED = "true,up,thumbs up,👍,like,liked,good,positive,yes,agree"
_DISLIKED = "false,down,thumbs down,👎,dislike,disliked,bad,negative,no,disagree"
_NEITHER = "neutral,unsure,neither,pass"
#: What words stand for: 1 for a response that was liked, 0 for one that was not, 0.5 for neither.
THUMBS = {
    word: y
    for words, y in ((_LIKED, 1.0), (_DISLIKED, 0.0), (_NEITHER, 0.5))
    for word in words.split(",")
}
#: The same of two responses: 1 where the first was preferred, 0 where the second was.
SIDES = {
    **{label_text(word): 0.5 for word in TIES},
    "left": 1.0,
    "first": 1.0,
    "a": 1.0,
    "right": 0.0,
    "second": 0.0,
    "b": 0.0,
}


def is_declared(schema: Schema, kind: Kind) -> bool:
    """Return whether the schema says what labels of this kind stand for."""
    return bool(schema.scale or (schema.positive_from and kind == "thumbs"))


def thumb(value: object, column: str, schema: Schema) -> float:
    """Return what the label of a single response stands for: 1 for liked, 0 for not, 0.5 for
    neither.

    Raises:
        BadRow: it is no word that is known, not on the declared scale, or a number without one.
    """
    label = label_text(value)
    if label and is_declared(schema, "thumbs"):
        return _on_scale(label, "thumbs", schema)
    if label in THUMBS:
        return THUMBS[label]
    if is_number(label):
        raise BadRow(
            f"{column!r} holds numbers, and nothing is declared of what they stand for: pass "
            "--scale 0..1 if 0 is down and 1 is up, --scale 1..5 for ratings of which those above "
            "the middle are up, or --positive-from with the least number that is a thumb up"
        )
    raise BadRow(
        f"{column!r} must be true or false, or a word that says liked or not; found "
        f"{found_kind(value)}"
    )


def side_on_scale(value: object, schema: Schema) -> float:
    """Return which of two responses a number on the declared scale prefers: 1 for the first, 0 for
    the second, 0.5 for neither.

    Raises:
        BadRow: it is not on the scale.
    """
    return _on_scale(label_text(value), "pairs", schema)


def _on_scale(label: str, kind: Kind, schema: Schema) -> float:
    low, high = schema.bounds
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and low <= number <= high):
        which = f"the label {label!r}" if is_number(label) else "a label that is no number"
        raise BadRow(f"{which} is not on the scale {schema.scale}: pass --scale if it is another")
    if kind == "thumbs" and schema.positive_from:
        return float(number >= float(schema.positive_from))
    above = (number - (low + high) / 2.0) * (-1.0 if schema.falling else 1.0)
    return 0.5 if above == 0.0 else float((above > 0.0) == (kind == "thumbs"))


def first_preferred(row: Row, y: float) -> Row:
    """Return a pair in order of preference, of which ``y`` says which response was preferred: 1 the
    first, 0 the second, 0.5 neither."""
    if y == 0.0:
        row = replace(row, responses=row.responses[::-1])
    return replace(row, y=0.5 if y == 0.5 else 1.0)
