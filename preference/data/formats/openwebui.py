"""Thumbs that users of Open WebUI gave, as its administrators export the feedback.

A row holds the whole chat. The response is the message that was rated, the prompt the messages that
lead to it. A rating is 1 or -1; on a scale of ten beside it nothing is read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.preference.data.cells import number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows


def rows(row: Mapping[str, Any]) -> Iterator[Cells]:
    """Yield the rating of one message."""
    rating = number_cell(row["data"].get("rating"))
    if rating not in (1.0, -1.0):
        raise BadRow("'data.rating' is neither 1 nor -1")
    messages = row["snapshot"]["chat"]["chat"]["history"]["messages"]
    place = row["meta"]["message_id"]
    if place not in messages:
        raise BadRow("the message that was rated is not in the chat of 'snapshot'")
    chain: list[dict[str, Any]] = []
    while place is not None:
        if len(chain) == len(messages):
            raise BadRow("the messages of 'snapshot' go round in a circle")
        message = messages[place]
        chain.insert(0, {"role": message["role"], "content": message["content"]})
        place = message.get("parentId")
    *before, rated = chain
    if rated["role"] != "assistant" or not before:
        raise BadRow("the message that was rated is no answer of the assistant")
    yield {"prompt": before, "completion": rated["content"], "label": rating > 0.0}


OPENWEBUI = Format(
    "openwebui",
    forms=(("user_id", "data", "meta", "snapshot"),),
    reads=OwnRows(rows),
)
