"""Messages out, replies in as they come: nothing is held back until the slowest node is done.

A node that vanishes costs one deadline, not one for each round: a node that missed the last one is
asked again, and counts if it answers while others are awaited, but it alone is not awaited.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import Error, Message
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

from murmuration.strategies.protocol.availability import (
    Attendance,
    Reason,
    RunAborted,
    failed_node,
)
from murmuration.strategies.protocol.flower_internals import set_error, set_sender
from murmuration.strategies.protocol.node_texts import said

PrivateLog = Callable[[Mapping[str, object]], None]
#: What bytes of another machine bring about where they are decoded; no error of a connection.
UNDECODABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    DecodeError,
)
#: Clocks of the server and of nodes may differ by so many seconds.
_CLOCKS = 120.0


def message_ttl(timeout: float) -> float:
    """The number of seconds that a message may wait for its node, if its reply is awaited for
    ``timeout`` seconds.

    It allows for clocks that differ; a node that comes back later finds no stale request.
    """
    return timeout + max(timeout, _CLOCKS)


@dataclass(frozen=True)
class RoundNotes:
    """The nodes that did not take part in a round, and why; only for the private log.

    ``slow`` are nodes that missed the last deadline, ``attendance`` records the answers. In a
    simulation (``simulated``) no node fails by chance.
    """

    round: int
    log: PrivateLog
    slow: set[int]
    attendance: Attendance
    simulated: bool

    def write(self, note: Mapping[str, object]) -> None:
        """Log a note about the round."""
        self.log({"round": self.round, **note})

    def leave_out(self, node: int, why: str) -> None:
        """Count a node's users as zero; in a simulation RunAborted."""
        self.write({"node": node, "left out": why})
        self.attendance.failed(why)
        if self.simulated:
            raise failed_node(why, simulated=True)


def exchange(
    grid: Grid,
    outgoing: Iterable[Message],
    timeout: float,
    slow: Collection[int] = (),
    *,
    simulated: bool = False,
) -> Iterator[Message]:
    """Push ``outgoing`` and yield each message's first reply as it arrives.

    Stops when every message is answered or ``timeout`` seconds have passed: a late, second or
    unasked-for reply is never yielded, nor one that cannot be decoded. Nodes that are ``slow`` are
    not waited for if there are others. A reply is the node's that was asked: whom it names as its
    sender is inside it, where the SuperLink does not look. What it says of an error is one short
    line (``strategies.protocol.node_texts``).

    Raises:
        RunAborted: a node of a simulation (``simulated``) answered with an error, or not in time.
    """
    messages = list(outgoing)
    nodes = [getattr(message, "metadata", None) for message in messages]
    nodes = [about.dst_node_id if about else -1 for about in nodes]
    pushed = zip(grid.push_messages(messages), nodes, strict=False)  # nothing at all if too large
    waiting = {message_id: node for message_id, node in pushed if message_id}
    if simulated and len(waiting) < len(messages):
        raise failed_node("a message could not be sent to it; it may be too large", simulated)
    unanswered = len(messages)
    del messages
    slow = set() if set(slow).issuperset(waiting.values()) else set(slow)
    deadline, pause = time.monotonic() + timeout, 0.005
    while any(node not in slow for node in waiting.values()):
        arrived = False
        for reply in _pulled(grid, list(waiting), waiting):
            node = waiting.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                arrived = True
                if node >= 0:  # what the sender says of itself is the sender's word, no more
                    set_sender(reply, node)
                if reply.has_error():
                    words = said(str(reply.error.reason))
                    set_error(reply, Error(reply.error.code, words))
                    if simulated:
                        raise failed_node(words, simulated)
                unanswered -= 1
                yield reply
        if time.monotonic() > deadline:
            break
        if waiting and not arrived:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
    if simulated and unanswered:
        raise RunAborted(
            Reason.NO_ANSWERS,
            f"{unanswered} of {len(nodes)} nodes of this simulation did not answer within "
            f"{timeout:g} seconds; raise --timeout, or let fewer users take part in a round",
        )


def _pulled(grid: Grid, ids: list[str], waiting: dict[str, int]) -> Iterator[Message]:
    """Yield the messages that have arrived; a reply that cannot be decoded is given up."""
    try:
        yield from grid.pull_messages(ids)
    except UNDECODABLE:  # one reply must not hide the others
        for message_id in ids:
            if message_id not in waiting:
                continue
            try:
                yield from grid.pull_messages([message_id])
            except UNDECODABLE:
                waiting.pop(message_id, None)
