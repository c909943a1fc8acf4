"""Connections of nobody known: they end, they are few, and nodes get through beside them."""

import logging
import socket
import time

import pytest
from superlink import sent_until_refused, served, status_of, superlink

from murmuration.deploy.guard import connections
from murmuration.deploy.guard.connections import FewRefusals

__all__ = ["served", "superlink"]

MIB = 2**20


def ended(connection):
    """Whether the other side closes it, without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"POST /v1/fleet/pull-messages HTTP/1.1\r\nx: "])
def test_a_head_that_does_not_come_is_given_up(superlink, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", superlink.port), timeout=20) as connection:
        connection.sendall(sent)
        assert ended(connection)


def test_so_is_the_second_head_of_a_node(superlink, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with superlink.begin("none-such", superlink.alice.headers(), "content-length: 0\r\n") as c:
        assert status_of(c) == 404
        c.sendall(b"POST /v1/fleet/pull-mess")  # which ends uvicorn's own patience
        while c.recv(65536):  # the rest of the answer, and the end
            pass


@pytest.mark.parametrize(
    "begins",
    [b"POST /", b"POST /v1/fleet/x HTTP/1.1\r\nx", b"POST /v1/fleet/x HTTP/1.1\r\nx: "],
    ids=["path", "name", "value"],
)
def test_a_head_without_end_is_given_up(superlink, begins):
    with socket.create_connection(("127.0.0.1", superlink.port), timeout=20) as connection:
        connection.sendall(begins)
        sent, status = sent_until_refused(connection, b"x" * MIB, 300 * MIB)
    assert (status, sent < 32 * MIB) == (0, True)


def test_trailers_without_end_are_given_up(superlink):
    more = "transfer-encoding: chunked\r\n"
    with superlink.begin("pull-messages", superlink.alice.headers(), more) as connection:
        connection.sendall(b"0\r\nx: ")
        sent, status = sent_until_refused(connection, b"x" * MIB, 300 * MIB)
    assert (status, sent < 64 * MIB) == (0, True)


def test_trailers_are_not_kept(superlink):
    before, more = superlink.open_connections, "transfer-encoding: chunked\r\n"
    with superlink.begin("none-such", superlink.alice.headers(), more) as connection:
        connection.sendall(b"0\r\n" + b"a:\r\n" * 20_000 + b"\r\n")
        assert status_of(connection) == 404
        headers = [len(c.headers) for c in superlink.open_connections if c not in before]
    assert len(headers) == 1
    assert headers[0] < 20


def test_a_signature_in_trailers_is_none(superlink):
    signed = "".join(f"{name}: {value}\r\n" for name, value in superlink.alice.headers().items())
    request = (
        "POST /v1/fleet/none-such HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    )
    with socket.create_connection(("127.0.0.1", superlink.port), timeout=20) as connection:
        connection.sendall(f"{request}{signed}\r\n".encode())
        assert status_of(connection) == 401


def test_strangers_have_no_place_but_their_own(superlink, monkeypatch):
    monkeypatch.setattr(connections, "STRANGERS", 3)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60.0)  # or they would go by themselves
    strangers = [socket.create_connection(("127.0.0.1", superlink.port), timeout=20)]
    try:
        for count in range(2, 6):
            strangers.append(socket.create_connection(("127.0.0.1", superlink.port), timeout=20))
            while superlink.connections < min(count, 3):
                time.sleep(0.01)
        # The oldest two gave way.
        assert [ended(stranger) for stranger in strangers[:2]] == [True, True]
        assert superlink.post("none-such", headers=superlink.alice.headers())[0] == 404
    finally:
        for stranger in strangers:
            stranger.close()


def test_a_node_is_no_stranger_once_it_is_known(superlink, monkeypatch):
    monkeypatch.setattr(connections, "STRANGERS", 1)
    monkeypatch.setattr(connections, "HEAD_SECONDS", 60.0)
    more = "content-length: 9\r\n"
    strangers = []
    with superlink.begin("none-such", superlink.alice.headers(), more) as node:
        while not any(c.recognised for c in superlink.open_connections):
            time.sleep(0.01)
        try:
            for _ in range(4):
                address = ("127.0.0.1", superlink.port)
                strangers.append(socket.create_connection(address, timeout=20))
            assert all(ended(stranger) for stranger in strangers[:3])
            node.sendall(b"123456789")
            assert status_of(node) == 404
        finally:
            for stranger in strangers:
                stranger.close()


def test_the_account_that_runs_it_sends_apps_of_any_size(superlink):
    connection = socket.create_connection(("127.0.0.1", superlink.port), timeout=20)
    with connection:
        head = "POST /v1/control/start-run HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"
        connection.sendall(f"{head}content-length: {20 * MIB}\r\n\r\n".encode())
        time.sleep(0.2)  # until it is known
        for _ in range(20):
            connection.sendall(bytes(MIB))
        assert status_of(connection) == 415  # by Flower


def line(status, path="/v1/fleet/x"):
    arguments = ("127.0.0.1:1", "POST", path, "1.1", status)
    return logging.LogRecord(
        "uvicorn.access", logging.INFO, "", 0, "%s %s %s %s %d", arguments, None
    )


def test_the_log_is_not_filled_by_whoever_is_refused(monkeypatch):
    monkeypatch.setattr(connections.time, "monotonic", lambda: 7.5)
    few = FewRefusals()
    assert sum(few.filter(line(401)) for _ in range(10_000)) == connections.LOGGED_LINES
    error = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid", None, None)
    assert not few.filter(error)
    assert all(few.filter(line(200)) for _ in range(100))
    monkeypatch.setattr(connections.time, "monotonic", lambda: 8.5)
    long = line(404, "/" + "x" * 60_000)
    assert few.filter(long)
    assert len(long.getMessage()) < 300
