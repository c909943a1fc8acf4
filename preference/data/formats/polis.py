"""Votes on statements, as Polis exports a conversation: `votes.csv` and `comments.csv` in a folder.

A vote is 1 (agree), -1 (disagree) or 0 (pass) on a statement, which both files number. Somebody's
last vote on a statement is the one that counts. All are about one prompt, so statements that a
person agreed with are paired with those that they disagreed with. Signs that contradict the numbers
of agreements in `comments.csv` are refused: the data base of Polis has them the other way round.
"""

from collections.abc import Iterator, Sequence

from murmuration.preference.data.cells import number_cell
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.format import Cells, Format

PROMPT = "Do you agree?"
_LABELS = {1.0: "agree", -1.0: "disagree", 0.0: "pass"}
_VOTES = ("comment-id", "voter-id", "vote")
_STATEMENTS = ("comment-id", "comment-body")


def rows(all_rows: Sequence[Cells]) -> Iterator[tuple[int, Cells | BadRow]]:
    """Yield the last vote of each on each statement."""
    statements = {_number(row["comment-id"]): row for row in all_rows if {*_STATEMENTS} <= {*row}}
    last: dict[tuple[str, str], tuple[float, int]] = {}
    for place, row in enumerate(all_rows):
        if {*_VOTES} <= {*row}:
            when = number_cell(row.get("timestamp"))
            key = (_number(row["voter-id"]), _number(row["comment-id"]))
            if key not in last or not when < last[key][0]:
                last[key] = when, place
    votes = [
        (place, key[1], number_cell(all_rows[place]["vote"])) for key, (_, place) in last.items()
    ]
    _check_signs(statements, votes)
    for place, statement, vote in votes:
        if statement not in statements:
            yield place, BadRow("a vote on a statement that is not there")
        elif vote not in _LABELS:
            yield place, BadRow("'vote' is none of 1, -1 and 0")
        else:
            text = statements[statement]["comment-body"]
            yield place, {"prompt": PROMPT, "completion": text, "label": _LABELS[vote]}


def _number(value: object) -> str:
    """Return one spelling of a number that two files hold, whether as text or not."""
    return str(value).strip().removesuffix(".0")


def _check_signs(statements: dict[str, Cells], votes: Sequence[tuple[int, str, float]]) -> None:
    together = 0.0
    for _, statement, vote in votes:
        row = statements.get(statement, {})
        balance = number_cell(row.get("agrees")) - number_cell(row.get("disagrees"))
        if balance == balance and vote in _LABELS:
            together += vote * ((balance > 0.0) - (balance < 0.0))
    if together < 0.0:
        raise InputError(
            "--format polis: most votes contradict 'agrees' and 'disagrees' of the statements: 1 "
            "must mean agree, as Polis exports it"
        )


POLIS = Format(
    "polis", forms=(_VOTES, _STATEMENTS), of_all=rows, also=("timestamp", "agrees", "disagrees")
)
