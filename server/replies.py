"""Replies are decoded each by itself: what cannot be is its node's loss.

Flower's grid asks the SuperLink for all replies that are there, which forgets them at once, and
then decodes one after the other: an error in one would lose the others of that moment, so one node
could take any others out of a round. Here such a reply becomes an empty message that answers
nothing; its node has not answered.
"""

import functools
from collections.abc import Callable, Mapping
from logging import WARNING

from flwr.app import Message, RecordDict
from flwr.supercore.logger import log
from flwr.superlink.grid import http_grid

from murmuration.strategies.protocol.exchange import UNDECODABLE

_NAME = "inflate_object_from_contents"


def decode_each_by_itself() -> None:
    """From now on, in this process; AttributeError if Flower decodes otherwise than is known."""
    decode = getattr(http_grid, _NAME)
    if not isinstance(decode, functools.partial):
        setattr(http_grid, _NAME, functools.partial(_decoded, decode))


def _decoded(
    decode: Callable[[str, Mapping[str, bytes]], Message], name: str, contents: Mapping[str, bytes]
) -> Message:
    try:
        message = decode(name, contents)
        if not isinstance(message, Message):
            raise TypeError(f"a {type(message).__name__} in the place of a message")
    except UNDECODABLE as error:
        log(WARNING, "a reply cannot be decoded: %s", type(error).__name__)
        return Message(RecordDict(), dst_node_id=0, message_type="train")
    return message
