"""Votes on statements, as Polis exports a conversation: `votes.csv` and `comments.csv` in a folder.

A vote is 1 (agree), -1 (disagree) or 0 (pass) on a statement, which both files number. Statements
are public: rows that name no voter have them, and a row that names one is that voter's alone. A
voter's last vote on a statement counts. All are about one prompt, so statements that a person
agreed with are paired with those that they disagreed with. A statement that a moderator rejected is
left out, with the votes on it. The data base of Polis has the opposite signs, and a vote alone does
not show which.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from murmuration.preference.data.cells import is_empty, number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, MadeOfSeveral, PublicTexts
from murmuration.preference.data.formats.marks import Mark

PROMPT = "Do you agree?"
_LABELS = {1.0: "agree", -1.0: "disagree", 0.0: "pass"}


def votes(statements: Mapping[str, object], rows: Sequence[Cells]) -> MadeOfSeveral:
    """Yield a voter's last vote on each statement."""
    last: dict[str, tuple[float, int]] = {}
    for place, row in enumerate(rows):
        when, statement = number_cell(row.get("timestamp")), _number(row["comment-id"])
        if statement not in last or not when < last[statement][0]:
            last[statement] = when, place
    for statement, (_, place) in last.items():
        vote = number_cell(rows[place]["vote"])
        if statement not in statements:
            yield place, BadRow("a vote on a statement that is not there")
        elif vote not in _LABELS:
            yield place, BadRow("'vote' is none of 1, -1 and 0")
        else:
            text = statements[statement]
            yield place, {"prompt": PROMPT, "completion": text, "label": _LABELS[vote]}


def statement(row: Cells) -> tuple[str, object]:
    """The number of a statement, and its text."""
    if is_empty(row["comment-id"]):
        raise BadRow("a statement has no 'comment-id'")
    return _number(row["comment-id"]), row["comment-body"]


def warning(rows: Iterable[Cells]) -> str:
    """A warning about votes and statements that contradict each other; empty if there is none."""
    rows = [*rows]
    return " ".join(each for each in (_signs(rows), _without_votes(rows)) if each)


def _without_votes(rows: Sequence[Cells]) -> str:
    """A warning about statements without votes, or not reviewed by a moderator; empty if there are
    none.
    """
    voted = {_number(row.get("comment-id")) for row in rows if not is_empty(row.get("vote"))}
    statements = [
        row
        for row in rows
        if not is_empty(row.get("comment-body")) and number_cell(row.get("moderated")) != -1.0
    ]
    unseen = sum(_number(row.get("comment-id")) not in voted for row in statements)
    unread = sum(number_cell(row.get("moderated")) == 0.0 for row in statements)
    if not unseen:
        return ""
    return (
        f"statements without any vote: {unseen:,} of {len(statements):,} (no moderator has looked "
        f"at {unread:,}): a board has all of them, as which ones it has must not tell of votes; "
        "--items names those that it should have"
    )


def _signs(rows: Iterable[Cells]) -> str:
    """A warning if most votes contradict the statements' columns `agrees` and `disagrees`;
    otherwise empty.
    """
    balance: dict[str, float] = {}
    cast: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        number, vote = _number(row.get("comment-id")), number_cell(row.get("vote"))
        if vote in _LABELS:
            cast[number] += vote
        balance.setdefault(number, 0.0)
        difference = number_cell(row.get("agrees")) - number_cell(row.get("disagrees"))
        balance[number] += (difference > 0.0) - (difference < 0.0)
    if sum(balance[number] * together for number, together in cast.items()) >= 0.0:
        return ""
    return (
        "most votes contradict 'agrees' and 'disagrees' of the statements: 1 must mean agree, as "
        "Polis exports it"
    )


def _number(value: object) -> str:
    """One spelling for a number that two files hold, as text or as a number."""
    return str(value).strip().removesuffix(".0")


POLIS = Format(
    "polis",
    forms=(("comment-id", "voter-id", "vote"),),
    reads=PublicTexts(("comment-id", "comment-body"), statement, votes),
    also=("timestamp", "agrees", "disagrees"),
    marks=(Mark("moderated", (-1,), "a moderator rejected it"),),
    warning=warning,
)
