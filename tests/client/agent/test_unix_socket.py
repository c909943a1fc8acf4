"""Frames over a local socket: what is sent arrives, and nothing else is believed."""

import socket
import struct
import threading

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from murmuration.client.agent import unix_socket
from murmuration.client.agent.unix_socket import MAGIC, BadFrame, Refused, ask_agent
from murmuration.preference.data.errors import InputError

CONTENT = RecordDict(
    {
        "arrays": ArrayRecord({"a": Array(np.arange(6.0).reshape(2, 3))}),
        "config": ConfigRecord({"text": "ü", "flag": True, "bytes": b"\x00\xff"}),
        "metrics": MetricRecord({"x": 1.5}),
    }
)


@pytest.fixture
def served(tmp_path):
    """A function: a socket whose other end is handled by a function, once."""
    threads = []

    def serve(handle):
        path = tmp_path / "s.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)

        def run():
            connection, _ = listener.accept()
            with connection, listener:
                handle(connection)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return str(path)

    yield serve
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_request_and_answer_arrive(served):
    seen = []

    def handle(connection):
        kind, data = unix_socket.read_request(connection)
        seen.append((kind, unix_socket.decoded(data)))
        unix_socket.send_answer(connection, CONTENT)

    found = ask_agent(served(handle), "query.registry", CONTENT)
    for content in (found, seen[0][1]):
        assert content.array_records["arrays"]["a"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        assert dict(content.config_records["config"]) == dict(CONTENT.config_records["config"])
        assert dict(content.metric_records["metrics"]) == {"x": 1.5}
    assert seen[0][0] == "query.registry"


def test_a_refusal_says_why(served):
    def handle(connection):
        unix_socket.read_request(connection)
        unix_socket.send_refusal(connection, "the owner's policy refuses (max_clip): …")

    with pytest.raises(Refused, match="max_clip"):
        ask_agent(served(handle), "train", RecordDict())


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\n\r\n", MAGIC, MAGIC + b"\x01" + struct.pack(">Q", 2**60)],
)
def test_what_is_no_answer_is_noticed(served, answer):
    def handle(connection):
        unix_socket.read_request(connection)
        connection.sendall(answer)

    with pytest.raises(InputError, match="gave no answer"):
        ask_agent(served(handle), "train", RecordDict())


def test_an_answer_that_is_no_records(served):
    def handle(connection):
        unix_socket.read_request(connection)
        connection.sendall(MAGIC + b"\x01" + struct.pack(">Q", 4) + b"\xff" * 4)

    with pytest.raises(InputError, match="cannot be read"):
        ask_agent(served(handle), "train", RecordDict())


def test_nobody_there(tmp_path):
    with pytest.raises(InputError, match="gave no answer"):
        ask_agent(str(tmp_path / "none.sock"), "train", RecordDict())


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "not a request"),
        (MAGIC + b"\x05tra", "ended in the middle"),
        (MAGIC + b"\x05train" + struct.pack(">Q", 101), "the most"),
        (b"", "ended in the middle"),
    ],
)
def test_requests_that_are_none(sent, message):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(BadFrame, match=message):
            unix_socket.read_request(ours, longest=100)


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(unix_socket, "REQUEST_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises((BadFrame, TimeoutError)):
        unix_socket.read_request(ours)
