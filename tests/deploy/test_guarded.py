"""A port that answers few, served by uvicorn as Flower serves it."""

import asyncio
import http.client
import os
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import uvicorn
from deployment import free_port

from murmuration.deploy import guarded
from murmuration.deploy.guard import peer
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.outsider import as_account
from murmuration.preference.data.errors import InputError
from murmuration.research.stress.site import Site
from murmuration.strategies.protocol.flower_internals import GRPC_SWITCHES

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


async def app(scope, receive, send):
    """Says 200 and what it believes the other end's address to be."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(scope["client"]).encode()})


@pytest.fixture
def port(monkeypatch):
    """A server that is guarded, as a SuperNode's: nothing is the fleet's."""
    monkeypatch.setattr(uvicorn.Config, "load", uvicorn.Config.load)
    guarded.guard_all("supernode", os.geteuid())
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, lifespan="off", log_level="warning")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def ask(port, path, headers=()):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", path, headers=dict(headers))
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


PATHS = ["/v1/control/list-nodes", "/v1/runtime/acquire-task", "/docs", "/health", "/v1/fleet", "/"]
PATHS.append("/v1/fleet/pull-messages")  # a SuperNode's port has no fleet


@pytest.mark.parametrize("path", PATHS)
def test_the_account_that_runs_it_is_answered(port, path):
    assert ask(port, path)[0] == 200


@root
@pytest.mark.parametrize("path", PATHS)
def test_another_account_is_refused(port, path):
    status, said = as_account("nobody", lambda: ask(port, path))
    assert (status, said) == (403, f"{guarded.REFUSAL}\n")


@root
def test_a_header_makes_nobody_somebody_else(port):
    """Uvicorn believes it of whoever is on this machine."""
    headers = [("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Proto", "https")]
    assert "127.0.0.1" in ask(port, "/", headers)[1]
    assert as_account("nobody", lambda: ask(port, "/", headers))[0] == 403
    ways = ["/v1/fleet/../control/list-nodes", "//v1/fleet/x", "/%2e/v1/fleet/", "/V1/FLEET/x"]
    assert [as_account("nobody", lambda way=way: ask(port, way))[0] for way in ways[1:]] == [
        403
    ] * 3


def answered(scope, account=0):
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(guarded.Guarded(app, app, account)(scope, None, send))
    return sent


@pytest.mark.parametrize("client", [None, ("127.0.0.1", 1)])
def test_who_cannot_be_told_is_refused(client):
    scope = {"type": "http", "path": "/x", "client": client, "server": ("127.0.0.1", 2)}
    assert answered(scope)[0]["status"] == 403
    # Nor by a Unix socket, whose server has no port, nor by another protocol.
    assert answered({**scope, "server": ("/run/x", None)})[0]["status"] == 403
    said = answered({**scope, "type": "websocket", "path": "/v1/fleet/"})
    assert [message["type"] for message in said] == ["websocket.close"]


def test_the_fleet_is_another_apps_matter():
    scope = {"type": "http", "path": "/v1/fleet/x", "client": None, "server": ("127.0.0.1", 2)}
    assert answered(scope)[0]["status"] == 200
    for path in ("/v1/fleet", "/V1/fleet/x", "//v1/fleet/x"):
        assert answered({**scope, "path": path})[0]["status"] == 403


def test_another_flower_is_not_started(monkeypatch):
    monkeypatch.setattr(guarded, "version", lambda name: "1.43.0")
    with pytest.raises(InputError, match=r"flwr 1\.43\.0.* 1\.41\.\* and 1\.42\.\*"):
        guarded.main("superlink", [])


def test_a_server_is_not_started_where_nobody_can_be_told_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(peer, "SOCKETS", (tmp_path / "none",))
    monkeypatch.setattr(guarded.os, "umask", lambda mask: None)
    with pytest.raises(InputError, match="on Linux"):
        guarded.main("superlink", ["--database", "x"])


def test_a_client_is_started_there_and_says_so(monkeypatch, tmp_path, caplog):
    started = []
    monkeypatch.setattr(peer, "SOCKETS", (tmp_path / "none",))
    monkeypatch.setattr(guarded.os, "umask", lambda mask: None)
    flower = SimpleNamespace(flower_supernode=lambda: started.append(sys.argv))
    monkeypatch.setitem(sys.modules, "flwr.supernode.cli", flower)
    monkeypatch.setattr(sys, "argv", ["x"])
    guarded.main("supernode", ["--port", "9"])
    assert started == [["flower-supernode", "--port", "9"]]
    assert "every account" in caplog.text


@pytest.mark.timeout(200)
def test_there_is_one_port_whatever_the_variables_say(monkeypatch, tmp_path):
    """Flower has gRPC beside HTTP if it is asked to, for everybody; it is not asked."""
    for name in GRPC_SWITCHES:
        monkeypatch.setenv(name, "1")
    deployment = Deployment(("127.0.0.1",), free_port(), ("alice",))
    write_deployment(tmp_path / "d", deployment)
    with Site(tmp_path / "d", deployment, tmp_path / "logs") as site:
        server = psutil.Process(site.start_superlink().process.pid)
        ours = [server, *server.children(recursive=True)]
        ends = [end for one in ours for end in one.net_connections("tcp")]
    open_ = {end.laddr.port for end in ends if end.status == psutil.CONN_LISTEN}
    assert open_ == {deployment.port}
