"""Replies to one message, ranked, as Open Assistant publishes its messages (OASST1, OASST2).

A rank is what several people's rankings were merged to, and 0 is the best. Who ranked is not
published; `user_id` is who wrote a message. With `--user-column user_id` those who wrote what was
replied to are taken for the users. A ranking is made of several writers' messages, so an export is
converted first.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

from murmuration.preference.data.cells import is_empty, number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, MadeOfSeveral, WholeSource
from murmuration.preference.data.formats.marks import Mark

_ROLES = {"prompter": "user", "assistant": "assistant"}


def rankings(messages: Sequence[Cells]) -> MadeOfSeveral:
    """Yield the ranking of the assistant's replies to each message that has two or more."""
    places: dict[object, int] = {}
    ranked: defaultdict[object, list[int]] = defaultdict(list)
    for place, message in enumerate(messages):
        own, parent = message["message_id"], message["parent_id"]
        if not (isinstance(own, Hashable) and isinstance(parent, Hashable)) or is_empty(own):
            yield place, BadRow("'message_id' or 'parent_id' is no id")
        elif places.setdefault(own, place) != place:
            yield place, BadRow("an earlier message has the same 'message_id'")
        elif message["role"] == "assistant" and not is_empty(message["rank"]):
            ranked[parent].append(place)
    for parent, replies in ranked.items():
        if parent not in places:
            yield replies[0], BadRow("the message replied to is not there")
        elif len(replies) > 1:
            try:
                thread = _thread(messages, places, parent)
                yield places[parent], _ranking(thread, [messages[place] for place in replies])
            except BadRow as reason:
                yield places[parent], reason


def _thread(
    messages: Sequence[Cells], places: Mapping[object, int], at: object
) -> list[dict[str, object]]:
    """Collect the turns up to a message, this one included."""
    before: dict[object, Cells] = {}
    while not is_empty(at):
        if at not in places:
            raise BadRow("a message before it is not there")
        if at in before:
            raise BadRow("messages reply to each other in a circle")
        before[at] = messages[places[at]]
        at = before[at]["parent_id"]
    thread = [*before.values()][::-1]
    return [{"role": _ROLES.get(str(each["role"])), "content": each["text"]} for each in thread]


def _ranking(thread: list[dict[str, object]], replies: Sequence[Cells]) -> Cells:
    ranks = [number_cell(reply["rank"]) for reply in replies]
    if any(rank != rank for rank in ranks):
        raise BadRow("a 'rank' is no number")
    order = sorted({*ranks})
    return {
        "prompt": thread,
        "responses": [reply["text"] for reply in replies],
        "ranking": [order.index(rank) + 1 for rank in ranks],
    }


OASST = Format(
    "oasst",
    forms=(("message_id", "parent_id", "role", "text", "rank"),),
    reads=WholeSource(rankings),
    marks=(
        Mark("deleted", (True,), "it was deleted"),
        Mark("review_result", (False,), "reviewers rejected it"),
        Mark("tree_state", ("halted_by_moderator",), "a moderator stopped its conversation"),
        Mark("tree_state", ("aborted_low_grade",), "its conversation was rejected"),
    ),
    nobody="a rank is what several people's rankings were merged to, and they are not named "
    "(--user-column user_id takes those who wrote what was replied to)",
)
