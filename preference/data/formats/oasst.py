"""Replies to one message, ranked, as Open Assistant publishes its messages (OASST1, OASST2).

A rank is what several people's rankings were merged to, and 0 is the best. Who ranked is not
published; `user_id` is who wrote a message. With `--user-column user_id` those who wrote what was
replied to are taken for the users.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from murmuration.preference.data.cells import is_empty, number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format

_ROLES = {"prompter": "user", "assistant": "assistant"}


def rows(messages: Sequence[Cells]) -> Iterator[tuple[int, Cells | BadRow]]:
    """Yield the ranking of the assistant's replies to each message that has two or more."""
    places = {message["message_id"]: place for place, message in enumerate(messages)}
    ranked: defaultdict[object, list[Cells]] = defaultdict(list)
    for message in messages:
        if message["role"] == "assistant" and not is_empty(message["rank"]):
            ranked[message["parent_id"]].append(message)
    for parent, replies in ranked.items():
        if parent not in places:
            yield places[replies[0]["message_id"]], BadRow("the message replied to is not there")
        elif len(replies) > 1:
            try:
                yield places[parent], _ranking(messages, places, parent, replies)
            except BadRow as reason:
                yield places[parent], reason


def _ranking(
    messages: Sequence[Cells], places: dict[object, int], parent: object, replies: list[Cells]
) -> Cells:
    history: list[dict[str, object]] = []
    at: object = parent
    while not is_empty(at):
        if at not in places or len(history) == len(messages):
            raise BadRow("a message before it is not there")
        message = messages[places[at]]
        history.insert(0, {"role": _ROLES.get(str(message["role"])), "content": message["text"]})
        at = message["parent_id"]
    ranks = [number_cell(reply["rank"]) for reply in replies]
    if any(rank != rank for rank in ranks):
        raise BadRow("a 'rank' is no number")
    order = sorted({*ranks})
    return {
        "prompt": history,
        "responses": [reply["text"] for reply in replies],
        "ranking": [order.index(rank) + 1 for rank in ranks],
    }


OASST = Format(
    "oasst",
    forms=(("message_id", "parent_id", "role", "text", "rank"),),
    of_all=rows,
    nobody="a rank is what several people's rankings were merged to, and they are not named "
    "(--user-column user_id takes those who wrote what was replied to)",
)
