"""The fleet's routes: whose a request is comes before its body, and everything has an end."""

import asyncio
import gc
import select
import time
from base64 import b64encode

import pytest
from flwr.common.constant import SUPERLINK_NODE_ID, TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node as NodeOf
from flwr.proto.recorddict_pb2 import RecordDict
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
)
from flwr.supercore.date import now
from flwr.supercore.error import FlowerError
from superlink import PROTOBUF, Node, SuperLink, sent_until_refused, served, status_of, superlink

from murmuration.deploy.guard import front_door

__all__ = ["served", "superlink"]

MIB = 2**20


def activate(node):
    message = ActivateNodeRequest(public_key=node.key, heartbeat_interval=30)
    return message.SerializeToString()


def pull(node):
    return PullMessagesRequest(node=NodeOf(node_id=node.id)).SerializeToString()


def test_a_registered_node_is_answered(superlink):
    alice = superlink.alice
    assert superlink.post("activate-node", activate(alice), alice.headers())[0] == 200
    assert superlink.post("pull-messages", pull(alice), alice.headers())[0] == 200


def test_an_unsigned_body_is_refused_before_it_is_read(superlink):
    """The answer comes when only the head was sent; a body would not be parsed either."""
    for more in ("content-length: 300000000\r\n", "transfer-encoding: chunked\r\n"):
        with superlink.begin(more=more) as connection:
            assert status_of(connection) == 401


def test_an_unsigned_body_that_is_sent_all_the_same_goes_nowhere(superlink):
    with superlink.begin(more="content-length: 300000000\r\n") as connection:
        sent, status = sent_until_refused(connection, bytes(MIB), 300 * MIB)
    assert sent < 32 * MIB  # what the system buffers
    assert status in (401, 0)


FORGED = {
    "nothing": lambda link: PROTOBUF,
    "an unregistered key": lambda link: Node().headers(),
    "another's signature": lambda link: link.alice.headers(signer=Node()),
    "another node's signature": lambda link: link.alice.headers(signer=link.bob),
    "a time 306 seconds ago": lambda link: link.alice.headers(ago=306),
    "a time to come": lambda link: link.alice.headers(ago=-6),
    "no time": lambda link: _without(link, TIMESTAMP_HEADER),
    "no signature": lambda link: _without(link, FLEET_HTTP_SIGNATURE_HEADER),
    "no key": lambda link: _without(link, FLEET_HTTP_PUBLIC_KEY_HEADER),
    "a time without a zone": lambda link: _with(link, TIMESTAMP_HEADER, "2026-01-01T00:00:00"),
    "a time that is none": lambda link: _with(link, TIMESTAMP_HEADER, "\xe9"),
    "a signature that is none": lambda link: _with(link, FLEET_HTTP_SIGNATURE_HEADER, "%"),
    "an empty signature": lambda link: _with(link, FLEET_HTTP_SIGNATURE_HEADER, ""),
    "a key that is none": lambda link: _with(link, FLEET_HTTP_PUBLIC_KEY_HEADER, "\xff="),
    "bytes for a key": lambda link: _with(
        link, FLEET_HTTP_PUBLIC_KEY_HEADER, b64encode(b"\0" * 9000).decode()
    ),
}


def _with(link, name, value):
    return {**link.alice.headers(), name: value}


def _without(link, name):
    return {key: value for key, value in link.alice.headers().items() if key != name}


@pytest.mark.parametrize("forged", FORGED)
def test_whoever_does_not_sign_by_a_registered_key_is_refused(superlink, forged):
    headers = FORGED[forged](superlink)
    assert superlink.post("pull-messages", pull(superlink.alice), headers)[0] == 401


def test_a_node_that_may_not_begin_can_say_why(superlink):
    stranger = Node()
    for path, why in (("activate-node", "to activate"), ("register-node", "must be registered")):
        status, said = superlink.post(path, activate(stranger), stranger.headers())
        assert status == 412
        error = FlowerError.from_json(said.decode())
        assert why in error.message
        assert "not registered" in error.public_details


def test_a_key_that_is_not_registered_any_more_is_refused(superlink):
    superlink.state.delete_node("operator", superlink.alice.id)
    alice = superlink.alice
    assert superlink.post("pull-messages", pull(alice), alice.headers())[0] == 401


def test_what_is_signed_is_the_time_alone(superlink):
    """As the pages say: a copy of the headers is good for another request, for 305 seconds."""
    copied = superlink.alice.headers(ago=300)
    for path, body in (("activate-node", activate), ("pull-messages", pull)):
        assert superlink.post(path, body(superlink.alice), copied)[0] == 200
    # For that node alone.
    assert superlink.post("pull-messages", pull(superlink.bob), copied)[0] == 401


@pytest.mark.parametrize("path", ["push-object", "push-messages", "pull-messages", "none-such"])
def test_a_signed_body_that_is_too_long_is_refused(superlink, path):
    headers = superlink.alice.headers()
    with superlink.begin(path, headers, "content-length: 300000000\r\n") as connection:
        assert status_of(connection) == 413
    with superlink.begin(path, headers, "transfer-encoding: chunked\r\n") as connection:
        piece = f"{2**16:x}\r\n".encode() + bytes(2**16) + b"\r\n"
        sent, status = sent_until_refused(connection, piece, 300 * MIB)
    assert (status, sent < 40 * MIB) == (413, True)


def test_a_whole_chunk_of_an_array_fits(superlink):
    """Flower then says of it that there is no such run: it has been read and parsed."""
    most = front_door.CHUNK_BYTES + 2**10
    status, said = superlink.post("push-object", bytes(most), superlink.alice.headers())
    assert (status, b"protobuf" in said) == (400, True)


def test_a_body_that_trickles_is_given_up(superlink, monkeypatch):
    monkeypatch.setattr(front_door, "BODY_SECONDS", 0.2)
    more = "content-length: 100\r\n"
    with superlink.begin("pull-messages", superlink.alice.headers(), more) as connection:
        connection.sendall(b"x")
        assert status_of(connection) == 408


def test_a_node_has_so_many_requests_at_a_time(superlink, monkeypatch):
    monkeypatch.setattr(front_door, "WAITING", 3)
    alice, bob = superlink.alice, superlink.bob
    more = "content-length: 100\r\n"
    held = [superlink.begin("pull-messages", alice.headers(), more) for _ in range(3)]
    try:
        while sum(c.recognised for c in superlink.open_connections) < 3:
            time.sleep(0.01)
        statuses = {superlink.post("pull-messages", pull(alice), alice.headers())[0]}
        assert statuses == {503}
        assert superlink.post("pull-messages", pull(bob), bob.headers())[0] == 200
    finally:
        for connection in held:
            connection.close()


def test_a_node_has_so_many_connections(superlink, monkeypatch):
    monkeypatch.setattr(front_door, "CONNECTIONS", 2)
    alice, more = superlink.alice, "content-length: 100\r\n"
    held = [superlink.begin("pull-messages", alice.headers(), more) for _ in range(3)]
    try:
        refused, _, _ = select.select(held, [], [], 20)
        assert [status_of(connection) for connection in refused] == [503]
    finally:
        for connection in held:
            connection.close()
    # When they are gone it may come again.
    while superlink.connections:
        time.sleep(0.01)
    assert superlink.post("pull-messages", pull(alice), alice.headers())[0] == 200


def test_a_body_is_in_memory_no_longer_than_it_is_handled(superlink):
    """A connection, closed ones too, does not keep what Flower parsed of its last body."""
    chunk = PushObjectRequest(run_id=1, object_id="0" * 64, object_content=bytes(MIB))
    body = chunk.SerializeToString()
    for _ in range(3):
        assert superlink.post("push-object", body, superlink.alice.headers())[0] != 200
    while superlink.connections:
        time.sleep(0.01)
    del chunk
    parsed = [r for o in gc.get_objects() for r in gc.get_referents(o)]
    assert not [r for r in parsed if isinstance(r, PushObjectRequest)]
    assert not [r for r in parsed if isinstance(r, bytes) and r is not body and len(r) > MIB]


def test_bodies_that_trickle_take_no_others_place(superlink, monkeypatch):
    """As many as one node may have in memory wait for their ends; another node is answered."""
    monkeypatch.setattr(front_door, "BODY_SECONDS", 30.0)
    alice, bob, more = superlink.alice, superlink.bob, f"content-length: {5 * MIB}\r\n"
    held = [superlink.begin("push-object", alice.headers(), more) for _ in range(4)]
    try:
        while sum(c.recognised for c in superlink.open_connections) < 4:
            time.sleep(0.01)
        began = time.monotonic()
        assert superlink.post("push-object", bytes(5 * MIB), bob.headers())[0] == 400
        assert superlink.post("pull-messages", pull(bob), bob.headers())[0] == 200
        assert time.monotonic() - began < 20
    finally:
        for connection in held:
            connection.close()


def test_whoever_finds_too_few_bytes_left_waits():
    async def main():
        budget, order = front_door.ByteBudget(10), []

        async def use(name, size, seconds):
            async with budget.take(size):
                order.append(name)
                await asyncio.sleep(seconds)

        await asyncio.gather(use("a", 6, 0.1), use("b", 6, 0.0), use("c", 4, 0.0))
        with pytest.raises(ZeroDivisionError):
            async with budget.take(10):
                raise ZeroDivisionError
        async with budget.take(10):
            pass  # all are back
        return order

    assert asyncio.run(main()) == ["a", "c", "b"]


def test_a_node_sends_so_much_in_a_window(superlink, monkeypatch):
    monkeypatch.setattr(front_door, "WINDOW_BYTES", 100_000)
    alice, bob = superlink.alice, superlink.bob
    assert superlink.post("push-object", bytes(100_000), alice.headers())[0] == 400
    assert superlink.post("pull-messages", pull(alice), alice.headers())[0] == 503
    assert superlink.post("pull-messages", pull(bob), bob.headers())[0] == 200
    monkeypatch.setattr(front_door, "WINDOW_SECONDS", 0.0)  # in the next one
    assert superlink.post("pull-messages", pull(alice), alice.headers())[0] == 200


def test_many_small_requests_are_much_too(superlink, monkeypatch):
    monkeypatch.setattr(front_door, "WINDOW_BYTES", 3 * front_door.LEAST_BYTES)
    alice = superlink.alice
    statuses = [superlink.post("pull-messages", pull(alice), alice.headers())[0] for _ in range(5)]
    assert statuses == [200, 200, 200, 503, 503]


def pushed(link, sender, metadata):
    """Status and text for a message that a node hands over."""
    metadata = Metadata(run_id=link.begin_run(), message_type="train", **metadata)
    message = PushMessagesRequest(
        node=NodeOf(node_id=sender.id),
        messages_list=[Message(metadata=metadata, content=RecordDict())],
        message_object_trees=[ObjectTree(object_id="0" * 64)],
    )
    return link.post("push-messages", message.SerializeToString(), sender.headers())


OTHERS = b"a node may send its own replies, and no other messages\n"
COMMAND = {"message_id": "0" * 64, "src_node_id": SUPERLINK_NODE_ID, "ttl": 1e4}


def test_a_node_does_not_speak_for_another(superlink):
    bob = superlink.bob
    reply = {"src_node_id": bob.id, "dst_node_id": SUPERLINK_NODE_ID, "reply_to_message_id": "1"}
    assert pushed(superlink, superlink.alice, reply) == (403, OTHERS)
    assert pushed(superlink, bob, reply)[1] != OTHERS


def test_a_node_does_not_command_another_in_the_servers_name(superlink, tmp_path, monkeypatch):
    """Flower takes a message from the SuperLink's own number, whoever hands it over."""
    alice, bob = superlink.alice, superlink.bob
    command = {**COMMAND, "dst_node_id": bob.id, "created_at": now().timestamp()}
    assert pushed(superlink, alice, command) == (403, OTHERS)
    # Nor in its own: that is no reply.
    assert pushed(superlink, alice, {**command, "src_node_id": alice.id}) == (403, OTHERS)
    assert superlink.state.get_message_ins(bob.id, limit=None) == []
    (tmp_path / "bare").mkdir()
    with SuperLink(tmp_path / "bare", monkeypatch, guard=False).serving() as bare:
        command["dst_node_id"] = bare.bob.id
        assert pushed(bare, bare.alice, command)[0] == 200
        assert len(bare.state.get_message_ins(bare.bob.id, limit=None)) == 1


def test_what_is_no_message_is_flowers_to_refuse(superlink):
    alice = superlink.alice
    assert superlink.post("push-messages", b"\xff", alice.headers())[0] == 400
