"""The protocol of ClientApp and owner's agent: one request and one answer over a local socket.

A request is the kind of a message and its records, in Flower's own protobuf form: data, never code.
The answer is records, or a sentence that says why there are none. Both sides bound how long a frame
may be and how long the other may take, so neither can fill the other's memory or keep it waiting.

    request: magic, 1 byte length of the kind, kind, 8 bytes length, records
    answer:  magic, 1 byte (1: records, 0: a refusal in UTF-8), 8 bytes length, content
"""

import socket
import struct
import time
from pathlib import Path

from flwr.app import RecordDict

from murmuration.preference.data.errors import InputError
from murmuration.strategies.protocol.flower_internals import (
    RecordDictProto,
    recorddict_from_proto,
    recorddict_to_proto,
)

MAGIC = b"MMA1"
#: The longest frame, in bytes: a model of ten million numbers and something.
LONGEST = 1 << 27
#: Seconds that the agent may take to answer; the other side of its own limit for a request.
ANSWER_SECONDS = 600.0
REQUEST_SECONDS = 30.0
_LONGEST_REFUSAL = 1 << 16


class Refused(InputError):
    """The agent gave no answer; the message is its reason."""


class BadFrame(ValueError):
    """Bytes that are no request or no answer."""


def answers(path: Path) -> bool:
    """True if a process listens at a socket; a killed one leaves its name behind."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def ask_agent(path: str, kind: str, content: RecordDict) -> RecordDict:
    """The agent's answer to a message.

    Raises:
        Refused: the owner's policy does not allow it, or the agent could not compute it.
        InputError: there is no agent at ``path``, or it did not answer in time.
    """
    data = encoded(content)
    name = kind.encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(path)
            connection.sendall(MAGIC + bytes([len(name)]) + name + _long(data) + data)
            head = read_exactly(connection, len(MAGIC) + 1, ANSWER_SECONDS)
            if head[:-1] != MAGIC:
                raise BadFrame("no answer of an agent")
            answer = _read_long(connection, LONGEST, ANSWER_SECONDS)
        if head[-1] == 1:
            return decoded(answer)
    except (OSError, BadFrame) as error:
        raise InputError(f"the agent at {path} gave no answer: {error}") from None
    raise Refused(answer[:_LONGEST_REFUSAL].decode(errors="replace"))


def read_request(connection: socket.socket, longest: int = LONGEST) -> tuple[str, bytes]:
    """Kind and records of a request; BadFrame or OSError if none comes in time."""
    deadline = time.monotonic() + REQUEST_SECONDS
    head = read_exactly(connection, len(MAGIC) + 1, REQUEST_SECONDS)
    if head[:-1] != MAGIC:
        raise BadFrame("not a request")
    kind = read_exactly(connection, head[-1], deadline - time.monotonic())
    content = _read_long(connection, longest, deadline - time.monotonic())
    return kind.decode("ascii", errors="replace"), content


def send_answer(connection: socket.socket, content: RecordDict) -> None:
    """Send records."""
    data = encoded(content)
    connection.sendall(MAGIC + b"\x01" + _long(data) + data)


def send_refusal(connection: socket.socket, reason: str) -> None:
    """Say why there are none."""
    # What was asked for may stand in it, and need not be text that can be encoded.
    data = reason.encode(errors="replace")[:_LONGEST_REFUSAL]
    connection.sendall(MAGIC + b"\x00" + _long(data) + data)


def encoded(content: RecordDict) -> bytes:
    """Records as bytes."""
    return recorddict_to_proto(content).SerializeToString(deterministic=True)


def decoded(data: bytes) -> RecordDict:
    """Records from their bytes; BadFrame if they are something else."""
    try:
        return recorddict_from_proto(RecordDictProto.FromString(data))
    except Exception as error:  # another process's bytes can fail to decode in any way
        raise BadFrame(f"records that cannot be read: {error!r}") from None


def read_exactly(connection: socket.socket, length: int, seconds: float) -> bytes:
    """Read exactly ``length`` bytes; BadFrame if the other side ends, or takes longer than
    ``seconds``."""
    deadline, parts = time.monotonic() + seconds, []
    while length:
        left = deadline - time.monotonic()
        if left <= 0:
            raise BadFrame("the other side took too long")
        connection.settimeout(left)
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise BadFrame("the other side ended in the middle")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _long(data: bytes) -> bytes:
    return struct.pack(">Q", len(data))


def _read_long(connection: socket.socket, longest: int, seconds: float) -> bytes:
    deadline = time.monotonic() + seconds
    (length,) = struct.unpack(">Q", read_exactly(connection, 8, seconds))
    if length > longest:
        raise BadFrame(f"a frame of {length} bytes; {longest} are the most")
    return read_exactly(connection, length, deadline - time.monotonic())
