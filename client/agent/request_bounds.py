"""Limits on the size of a request to the agent, before any of it is parsed or logged.

A frame of 128 MB is for models. As anything else so many bytes would take gigabytes and minutes: a
description of features as JSON, names in a log, or 60 million parts of no length.
"""

from typing import Any

from flwr.app import ConfigRecord, RecordDict

from murmuration.client.agent.policy import PolicyRefusal
from murmuration.privacy.secure_aggregation.party import MOST_PARTIES, SEALED_BYTES
from murmuration.strategies.protocol.flower_internals import RecordDictProto
from murmuration.strategies.protocol.secure_messages import ENTRY_BYTES
from murmuration.strategies.protocol.stated_plan import PARAMETER

#: Fields of a frame, and numbers in its lists: a request has some hundred, and two thousand where a
#: thousand parties are in a sum.
MOST_PARTS = 10_000
#: Characters of a text, or bytes, by the name of the field; and of all others.
LONGEST = {
    "features": 2**20,
    PARAMETER: 10_000,  # a kind of event takes about a hundred
    "users": 2**26,
    "roster": MOST_PARTIES * ENTRY_BYTES,
    "sealed": MOST_PARTIES * SEALED_BYTES,
}
LONGEST_OTHER = 1_000
#: The name that goes with a refusal, which is no rule that an owner can change.
REQUEST = "request"


def check_fields(content: RecordDict) -> None:
    """PolicyRefusal for a name, text or value that is longer than any request needs."""
    for place, record in content.items():
        for name in (place, *record):
            if len(name) > LONGEST_OTHER:
                raise PolicyRefusal(REQUEST, f"a name of {len(name)} characters")
        if not isinstance(record, ConfigRecord):
            continue
        for name, value in record.items():
            most = LONGEST.get(name, LONGEST_OTHER)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, str | bytes) and len(one) > most:
                    raise PolicyRefusal(REQUEST, f"{name!r} is {len(one)} long; {most} is the most")


def check_parts(data: bytes) -> None:
    """ValueError for records in Flower's protobuf form that have more parts than any request, or
    are none."""
    if _left(memoryview(data), RecordDictProto.DESCRIPTOR, MOST_PARTS) < 0:
        raise ValueError(f"more than {MOST_PARTS} parts")


def _left(data: memoryview, message: Any, left: int) -> int:
    """The number of parts that may still follow after those of a ``message``; negative if too
    many."""
    place = 0
    while place < len(data) and left >= 0:
        left -= 1
        tag, place = _number(data, place)
        wire, field = tag & 7, message.fields_by_number.get(tag >> 3)
        if wire == 2:
            length, place = _number(data, place)
            part = data[place : place + length]
            if len(part) < length:
                raise ValueError("a part that ends in the middle")
            if field is not None and field.message_type:
                left = _left(part, field.message_type, left)
            elif field is not None and field.cpp_type != field.CPPTYPE_STRING:
                left -= length  # a list, of numbers of a byte or more
            place += length
        elif wire == 0:
            _, place = _number(data, place)
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        else:
            raise ValueError("a part of another kind")
    return left


def _number(data: memoryview, place: int) -> tuple[int, int]:
    """A number of variable length, and where the next thing stands."""
    result = 0
    for shift in range(0, 70, 7):
        byte = data[place + shift // 7] if place + shift // 7 < len(data) else 0
        result |= (byte & 127) << shift
        if byte < 128:
            return result, place + shift // 7 + 1
    raise ValueError("a number that does not end")
