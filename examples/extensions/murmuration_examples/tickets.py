"""A format: tickets of a help desk, with two answers and the number of the one that helped."""

from collections.abc import Iterator, Mapping

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Format, OwnRows


def rows(row: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Yield the pair of a ticket."""
    if row["solved_by"] not in (1, 2):
        raise BadRow("'solved_by' is neither 1 nor 2")
    answers = (row["answer1"], row["answer2"])
    best, other = answers if row["solved_by"] == 1 else answers[::-1]
    yield {"user_id": row["customer"], "prompt": row["ticket"], "chosen": best, "rejected": other}


TICKETS = Format(
    "tickets",
    forms=(("customer", "ticket", "answer1", "answer2", "solved_by"),),
    reads=OwnRows(rows),
)
