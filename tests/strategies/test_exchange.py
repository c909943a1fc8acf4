"""Messages out, first replies in; nothing late, second or unasked for."""

import itertools
import time
from types import SimpleNamespace

from strategies.exchange import exchange


def reply(to, text="first"):
    return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=to), text=text)


class Grid:
    """Gives prepared batches of replies, one at each pull."""

    def __init__(self, *batches, refused=()):
        self.batches, self.refused, self.asked = iter(batches), refused, []

    def push_messages(self, outgoing):
        return [None if m in self.refused else m for m in outgoing]

    def pull_messages(self, ids):
        self.asked.append(sorted(ids))
        return next(self.batches, [])


def texts(found):
    return [(r.metadata.reply_to_message_id, r.text) for r in found]


def test_replies_are_yielded_as_they_come():
    grid = Grid([reply("b")], [], [reply("a")])
    found = exchange(grid, ["a", "b"], timeout=5)
    assert next(found).metadata.reply_to_message_id == "b"
    assert len(grid.asked) == 1  # nobody has waited for a
    assert texts(found) == [("a", "first")]
    assert grid.asked == [["a", "b"], ["a"], ["a"]]


def test_second_and_unasked_replies_are_dropped():
    grid = Grid(
        [reply("a"), reply("a", "second"), reply("z")],
        [reply("a", "third"), reply("b")],
    )
    assert texts(exchange(grid, ["a", "b"], timeout=5)) == [("a", "first"), ("b", "first")]


def test_late_replies_are_not_waited_for():
    class Slow(Grid):
        def pull_messages(self, ids):
            return [reply("a")] if "a" in ids else []

    started = time.monotonic()
    assert texts(exchange(Slow(), ["a", "b"], timeout=0.05)) == [("a", "first")]
    assert time.monotonic() - started < 5


def test_what_could_not_be_sent_is_not_waited_for():
    grid = Grid([reply("a")], refused={"b"})
    assert texts(exchange(grid, ["a", "b"], timeout=60)) == [("a", "first")]


def test_nothing_to_send():
    grid = Grid()
    assert list(exchange(grid, [], timeout=60)) == []
    assert grid.asked == []


def test_a_generator_of_replies_is_consumed_lazily():
    class Lazy(Grid):
        def pull_messages(self, ids):
            yield reply("a")
            yield from itertools.chain([reply("b")])

    assert [key for key, _ in texts(exchange(Lazy(), ["a", "b"], timeout=5))] == ["a", "b"]
