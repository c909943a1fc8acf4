"""A real SuperLink's app, guarded and served on the loopback address, with two registered nodes."""

import http.client
import os
import socket
import threading
import time
from base64 import b64encode
from contextlib import contextmanager
from datetime import timedelta

import pytest
import uvicorn
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    NOOP_FEDERATION_ID,
    TaskType,
)
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

from murmuration.deploy import guarded

BARE = uvicorn.Config.load
PROTOBUF = {"content-type": PROTOBUF_MEDIA_TYPE}


class Node:
    """A SuperNode's keys; registered if ``state`` is a SuperLink's."""

    def __init__(self, state=None):
        self._private, public = generate_key_pairs()
        self.key = public_key_to_bytes(public)
        self.id = state.create_node("operator", "operator", self.key, 0) if state else 0

    def headers(self, ago=0.0, signer=None):
        """As a SuperNode signs them, so many seconds ago."""
        signed_at = (now() - timedelta(seconds=ago)).isoformat()
        signature = sign_message((signer or self)._private, signed_at.encode())
        return {
            **PROTOBUF,
            FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(self.key).decode(),
            TIMESTAMP_HEADER: signed_at,
            FLEET_HTTP_SIGNATURE_HEADER: b64encode(signature).decode(),
        }


class SuperLink:
    """What is served at ``port``, and two registered nodes, ``alice`` and ``bob``."""

    def __init__(self, folder, monkeypatch, *, guard=True):
        from flwr.superlink.main import create_app

        monkeypatch.setenv("FLWR_DATABASE", str(folder / "state.db"))
        monkeypatch.setattr(uvicorn.Config, "load", BARE)
        if guard:
            guarded.guard_all("superlink", os.geteuid())
        app = create_app()
        self.database = folder / "state.db"
        self.state = app.state.linkstate_factory.state()
        self.alice, self.bob = Node(self.state), Node(self.state)
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
        self._server = uvicorn.Server(config)
        self.port = 0

    @contextmanager
    def serving(self):
        """Serve, in a thread."""
        thread = threading.Thread(target=self._server.run)
        thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join()

    @property
    def open_connections(self):
        """Those that are open, as the server sees it."""
        return list(self._server.server_state.connections)

    @property
    def connections(self):
        """How many these are."""
        return len(self.open_connections)

    def begin_run(self):
        """A run that goes on, with both nodes online."""
        operator = NOOP_FEDERATION_ID, None, "operator", TaskType.SERVER_APP
        run = self.state.create_run(None, None, "0" * 64, {}, *operator)
        for node in (self.alice, self.bob):
            self.state.activate_node(node.id, 30.0)
        task = self.task_of(run)
        assert self.state.claim_task(task)
        assert self.state.activate_task(task)
        return run

    def task_of(self, run):
        """The ServerApp's task."""
        return self.state.get_run_info(run_ids=[run])[0].primary_task_id

    def post(self, path, body=b"", headers=PROTOBUF):
        """Status and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", f"/v1/fleet/{path}", body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def begin(self, path="push-object", headers=PROTOBUF, more=""):
        """A connection on which a request's head was sent, and none of its body."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        sent = f"POST /v1/fleet/{path} HTTP/1.1\r\nhost: x\r\n{lines}{more}\r\n"
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        connection.sendall(sent.encode())
        return connection


def status_of(connection):
    """The status that a connection is answered with; 0 where it is closed without an answer."""
    try:
        line = connection.recv(65536)
    except ConnectionError:
        return 0
    return int(line.split()[1]) if line else 0


def sent_until_refused(connection, piece, most):
    """How many bytes could be sent before there was an answer or an end, and the status."""
    sent = 0
    try:
        while sent < most:
            connection.sendall(piece)
            sent += len(piece)
            connection.setblocking(False)
            try:
                if connection.recv(1, socket.MSG_PEEK) is not None:
                    break
            except BlockingIOError:
                pass
            finally:
                connection.settimeout(20)
    except ConnectionError:
        pass
    return sent, status_of(connection)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One that serves a file's tests."""
    folder = tmp_path_factory.mktemp("superlink")
    with pytest.MonkeyPatch.context() as patched, SuperLink(folder, patched).serving() as link:
        yield link


@pytest.fixture
def superlink(served):
    """The one that serves, with two nodes nobody has heard of before."""
    served.alice, served.bob = Node(served.state), Node(served.state)
    while served.connections:  # of a test before
        time.sleep(0.01)
    return served
