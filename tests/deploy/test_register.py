"""Registering: it waits for the SuperLink, retries, and does no harm a second time."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from murmuration.deploy import register as deploy_register
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.register import public_keys, register
from murmuration.preference.data.errors import InputError


class SuperLink:
    """One that answers from the ``up``-th connection on, and loses some replies."""

    def __init__(self, up=0, lost=()):
        self.up, self.lost, self.connections = up, set(lost), 0
        self.keys: dict[bytes, str] = {}
        self.asked: list[str] = []

    @contextmanager
    def connected(self, address, insecure, certificate, interceptors):
        self.connections += 1
        if self.connections <= self.up:
            raise ConnectionError("nobody is there")
        yield self

    def ListNodes(self, request):
        return SimpleNamespace(nodes_info=[SimpleNamespace(public_key=key) for key in self.keys])

    def RegisterNode(self, request):
        if request.public_key in self.keys:
            raise ValueError("Public key already in use")  # as Flower does
        self.asked.append(request.name)
        self.keys[request.public_key] = request.name
        if request.name in self.lost:
            self.lost.discard(request.name)
            raise ConnectionError("the reply is lost")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A function: a deployment, and a SuperLink that is only pretended."""
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 8100, ("alice", "bob")))
    monkeypatch.setattr(deploy_register, "PAUSE", 0.0)

    def make(**how):
        link = SuperLink(**how)
        client = SimpleNamespace(from_server_address=link.connected)
        monkeypatch.setattr(deploy_register, "ControlHttpClient", client)
        return tmp_path / "d", link

    return make


def test_every_key_once_however_often_it_is_run(site):
    folder, link = site()
    said = []
    assert register(folder, say=said.append) == ["alice", "bob"]
    assert sorted(link.keys.values()) == ["alice", "bob"]
    assert set(link.keys) == set(public_keys(folder).values())
    assert said == ["alice: registered now", "bob: registered now"]
    said.clear()
    assert register(folder, say=said.append) == []
    assert said == ["alice: registered before", "bob: registered before"]
    assert link.asked == ["alice", "bob"]


def test_a_superlink_that_is_only_starting_is_waited_for(site):
    folder, link = site(up=5)
    said = []
    assert register(folder, say=said.append) == ["alice", "bob"]
    assert link.connections == 6
    assert said[0] == "waiting for the SuperLink at 127.0.0.1:8100"


def test_a_reply_that_is_lost_is_no_failure(site):
    folder, link = site(lost=["alice"])
    assert register(folder) == ["alice", "bob"]
    assert link.asked == ["alice", "bob"]


def test_nobody_there_is_an_error_in_the_end(site):
    folder, _ = site(up=10**9)
    with pytest.raises(InputError, match=r"127.0.0.1:8100 did not take .* nobody is there"):
        register(folder, wait=0.0)


def test_a_file_that_is_no_key_is_named_before_anything_is_registered(site):
    folder, link = site()
    (folder / "clients" / "bob" / "node.pub").write_text("ssh-rsa nonsense")
    with pytest.raises(InputError, match=r"bob/node\.pub is no public key"):
        register(folder)
    assert not link.connections
    for name in ("alice", "bob"):
        (folder / "clients" / name / "node.pub").unlink()
    with pytest.raises(InputError, match="there is no client"):
        register(folder)
    with pytest.raises(InputError, match="is not a deployment"):
        register(folder / "server")
