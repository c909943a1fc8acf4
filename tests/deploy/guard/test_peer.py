"""Whose a connection is: ours, another account's, nobody's of this machine."""

import os
import socket
import threading
from contextlib import contextmanager

import pytest

from murmuration.deploy.guard import peer
from murmuration.deploy.outsider import as_account

pytestmark = pytest.mark.skipif(not peer.can_tell(), reason="the kernel does not say")
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@contextmanager
def connected(host, family, at=None):
    """Both ends of a connection of ours, the server's first."""
    dual = host == "::"
    with (
        socket.create_server((host, 0), family=family, dualstack_ipv6=dual) as server,
        socket.create_connection((at or host, server.getsockname()[1])) as client,
    ):
        here, _ = server.accept()
        with here:
            yield here, client


def seen(here):
    """What is said about a connection, by the server's end alone."""
    return peer.account_of(here.getpeername()[:2], here.getsockname()[:2])


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_a_connection_of_ours_is_ours(host, family):
    with connected(host, family) as (here, _):
        assert seen(here) == os.geteuid()


def test_an_ipv4_connection_to_an_ipv6_server_is_known():
    with connected("::", socket.AF_INET6, at="127.0.0.1") as (here, _):
        assert here.getpeername()[0] == "::ffff:127.0.0.1"
        assert seen(here) == os.geteuid()


@root
def test_another_accounts_connection_is_theirs():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def connect():
            with socket.create_connection(server.getsockname()) as client:
                return client.recv(10).decode()

        def answer():
            here, _ = server.accept()
            with here:
                here.sendall(str(seen(here)).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        assert as_account("nobody", connect) == "65534"
        thread.join()


@pytest.mark.parametrize("how", ["closed", "half closed", "reset"])
def test_a_connection_that_its_process_has_left_is_nobodys(how):
    """The kernel would say that root owns it."""
    with connected("127.0.0.1", socket.AF_INET) as (here, client):
        ends = here.getpeername(), here.getsockname()
        if how == "closed":
            client.close()
        elif how == "half closed":
            client.shutdown(socket.SHUT_WR)
        else:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        assert peer.account_of(*ends) is None


def test_a_connection_from_elsewhere_is_nobodys():
    with connected("127.0.0.1", socket.AF_INET) as (here, _):
        port = here.getpeername()[1]
        assert peer.account_of(("203.0.113.9", port), here.getsockname()) is None
        assert peer.account_of(here.getpeername(), ("127.0.0.1", 1)) is None
        assert peer.account_of(("127.0.0.1", 0), here.getsockname()) is None
