"""Messages out, replies in as they come: nothing is held back until the slowest node is done."""

import time
from collections.abc import Iterable, Iterator

from flwr.app import Message
from flwr.serverapp import Grid


def exchange(grid: Grid, outgoing: Iterable[Message], timeout: float) -> Iterator[Message]:
    """Push ``outgoing`` and yield each message's first reply as it arrives.

    Stops when every message is answered or ``timeout`` seconds have passed: a late, second or
    unasked-for reply is never yielded.
    """
    waiting = {message_id for message_id in grid.push_messages(outgoing) if message_id}
    deadline, pause = time.monotonic() + timeout, 0.005
    while waiting:
        arrived = False
        for reply in grid.pull_messages(list(waiting)):
            if reply.metadata.reply_to_message_id in waiting:
                waiting.discard(reply.metadata.reply_to_message_id)
                arrived = True
                yield reply
        if time.monotonic() > deadline:
            return
        if waiting and not arrived:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
