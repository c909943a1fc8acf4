"""Replies from bytes of other machines, through Flower's own grid."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.grid import http_grid
from flwr.superlink.grid.http_grid import HttpGrid

from murmuration.server.replies import decode_each_by_itself
from murmuration.sims.runtimes.local import set_task_identity
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.exchange import exchange

DAMAGE = {
    "other bytes": lambda data: data[:-3] + b"\xff\xff\xff",
    "nothing": lambda data: b"",
    "no head": lambda data: b"\0" * len(data),
    "a body that is no message": lambda data: data.partition(b"\0")[0] + b"\0" + b"\xff" * 20,
}


class Grid(HttpGrid):
    """Flower's, beside the network."""

    _runtime_client = None

    def __init__(self, link, sent):
        self._runtime_client, self._sent = link, sent
        self._run, self.node = SimpleNamespace(run_id=1), Node(node_id=1)

    def push_messages(self, outgoing):
        return self._sent

    def close(self):
        pass


class SuperLink:
    """Has the nodes' replies, gives each out once and forgets it, as Flower's does."""

    def __init__(self, replies, contents):
        self.replies, self.contents = dict(replies), contents

    def PullMessages(self, request):
        found = [self.replies.pop(i) for i in list(request.message_ids) if i in self.replies]
        return PullAppMessagesResponse(
            messages_list=[message_to_proto(m) for m in found],
            message_object_trees=[get_object_tree(m) for m in found],
        )

    def PullObject(self, request):
        content = self.contents[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request):
        del request


@pytest.fixture
def grid(monkeypatch):
    """Of three nodes that were asked and have answered; ``grid(name)`` damages the second one's."""
    name = "inflate_object_from_contents"
    monkeypatch.setattr(http_grid, name, getattr(http_grid, name))
    decode_each_by_itself()
    set_task_identity()

    def answered(damage):
        replies, contents = {}, {}
        for node in (1, 2, 3):
            asked = Message(messages.sums_reply({}), dst_node_id=node, message_type="train")
            asked.metadata.__dict__["_message_id"] = f"asked {node}"
            reply = Message(messages.sums_reply({"sum": np.full(2, float(node))}), reply_to=asked)
            objects = get_all_nested_objects(reply)
            contents |= {name: found.deflate() for name, found in objects.items()}
            reply.metadata.__dict__["_message_id"] = reply.object_id
            replies[f"asked {node}"] = reply
            if node == 2:
                contents[reply.object_id] = damage(contents[reply.object_id])
        return Grid(SuperLink(replies, contents), list(replies))

    return answered


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_reply_that_cannot_be_decoded_takes_no_other_with_it(grid, damage):
    asked = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node)) for node in (1, 2, 3)]
    started = time.monotonic()
    found = list(exchange(grid(DAMAGE[damage]), asked, timeout=0.2))
    sums = {
        reply.metadata.src_node_id: messages.read_sums(reply.content, {"sum": (2,)})["sum"][0]
        for reply in found
    }
    assert sums == {1: 1.0, 3: 3.0}
    assert time.monotonic() - started < 30


def test_guarding_twice_is_guarding_once(grid):
    once = http_grid.inflate_object_from_contents
    decode_each_by_itself()
    assert http_grid.inflate_object_from_contents is once
