"""Messages out, first replies in; nothing late, second or unasked for."""

import itertools
import time
from types import SimpleNamespace

import pytest
from flwr.app import Error
from google.protobuf.message import DecodeError

from murmuration.strategies.protocol.exchange import exchange, message_ttl
from murmuration.strategies.protocol.node_texts import LONGEST


def reply(to, text="first"):
    metadata = SimpleNamespace(reply_to_message_id=to)
    return SimpleNamespace(metadata=metadata, text=text, has_error=lambda: False)


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


def message(name, node):
    return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node), name=name)


class Nodes(Grid):
    """As ``Grid``, with messages to nodes."""

    def push_messages(self, outgoing):
        return [m.name for m in outgoing]


def good(to, node=1):
    about = SimpleNamespace(reply_to_message_id=to, src_node_id=node)
    return SimpleNamespace(metadata=about, text="first", has_error=lambda: False)


def test_nobody_waits_for_slow_nodes_alone():
    grid = Nodes([], [good("a")])
    started = time.monotonic()
    found = exchange(grid, [message("a", 1), message("b", 2)], timeout=60, slow={2})
    assert texts(found) == [("a", "first")]
    assert time.monotonic() - started < 30


def test_slow_nodes_count_while_others_are_waited_for():
    grid = Nodes([good("b", 2)], [good("a")])
    found = exchange(grid, [message("a", 1), message("b", 2)], timeout=60, slow={2})
    assert [key for key, _ in texts(found)] == ["b", "a"]


def test_if_all_are_slow_nobody_is():
    grid = Nodes([], [], [good("b", 2)])
    found = exchange(grid, [message("b", 2)], timeout=60, slow={2})
    assert [key for key, _ in texts(found)] == ["b"]


def test_an_error_in_the_superlinks_name_is_the_nodes():
    error = good("a", node=1)
    error.has_error = lambda: True
    error.error = Error(2, "\x1b[2J" + "no" * 1_000_000)
    (found,) = exchange(Nodes([error]), [message("a", 77)], timeout=60)
    assert found.metadata.__dict__["_src_node_id"] == 77
    words = vars(found)["_error"].reason  # by whatever is made of it: one short line
    assert len(words) <= LONGEST
    assert words.startswith(r"\x1b[2Jnono")


def test_nobody_answers_in_anothers_name():
    grid = Nodes([good("b", node=1), good("a", node=1)])
    found = exchange(grid, [message("a", 1), message("b", 2)], timeout=60)
    named = [(r.metadata.reply_to_message_id, vars(r.metadata)["_src_node_id"]) for r in found]
    assert named == [("b", 2), ("a", 1)]


@pytest.mark.parametrize("error", [ValueError, DecodeError, AssertionError, IndexError])
def test_a_reply_that_cannot_be_decoded_hides_no_other(error):
    class Broken(Nodes):
        def pull_messages(self, ids):
            if "b" in ids:
                raise error("not an array")
            return [good(name) for name in ids]

    started = time.monotonic()
    found = exchange(Broken(), [message(n, i) for i, n in enumerate("abc")], timeout=60)
    assert [key for key, _ in texts(found)] == ["a", "c"]
    assert time.monotonic() - started < 30


def test_a_server_that_breaks_is_not_silenced():
    class Broken(Nodes):
        def pull_messages(self, ids):
            raise RuntimeError("run is over")

    with pytest.raises(RuntimeError, match="run is over"):
        list(exchange(Broken(), [message("a", 1)], timeout=60))


def test_too_much_to_send_is_a_round_without_replies():
    class Full(Nodes):
        def push_messages(self, outgoing):
            return []

    assert list(exchange(Full(), [message("a", 1)], timeout=60)) == []


def test_messages_live_longer_than_clocks_differ():
    assert message_ttl(10) >= 130
    assert message_ttl(1000) == 2000
