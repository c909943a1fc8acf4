"""The doctor's findings; against a real SuperLink see ``test_deployed``."""

import os
import socket
import threading

import pytest

from murmuration.deploy import doctor
from murmuration.deploy.doctor import Finding, examine
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.outsider import ANSWERED, CONTROL, REFUSED, RUNTIME, tried
from murmuration.deploy.register import public_keys
from murmuration.preference.data.errors import InputError


@pytest.fixture
def plain():
    """A port where somebody answers without TLS."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    threading.Thread(target=run, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def test_who_answers_without_tls_is_noticed(tmp_path, plain):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), plain, ("a",)))
    found = {finding.what: finding for finding in examine(tmp_path / "d")}
    assert not found["SuperLink"].well
    assert not found["without TLS"].well
    assert found["without TLS"].seen == "answered!"


def test_nobody_there(tmp_path):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a",)))
    found = {finding.what: finding for finding in examine(tmp_path / "d")}
    assert not found["SuperLink"].well
    assert found["without TLS"].well
    assert found["keys"].well
    assert found["users"].seen == "1 keys are registered for at most 1 in all"
    assert found["authority"].seen.startswith("ca.key is still on this machine")
    (tmp_path / "d/server/nodes.toml").unlink()
    found = {finding.what: finding for finding in examine(tmp_path / "d")}
    assert not found["users"].well
    with pytest.raises(InputError):
        examine(tmp_path)


def test_a_node_that_is_not_registered_is_named(tmp_path, monkeypatch):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a", "b")))
    node = type("Node", (), {})()
    node.public_key = public_keys(tmp_path / "d")["a"]
    node.status, node.name, node.node_id = "online", "", 7

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ListNodes(self, request):
            return type("Found", (), {"nodes_info": [node]})()

    monkeypatch.setattr(doctor.ControlHttpClient, "from_server_address", lambda *_: Client())
    found = doctor._nodes("127.0.0.1:9", tmp_path / "d" / "server", tmp_path / "d")
    by_name = {finding.what: finding for finding in found}
    assert by_name["a"].well
    assert not by_name["b"].well
    assert "register.sh" in by_name["b"].seen
    node.status = "registered"
    never = doctor._nodes("127.0.0.1:9", tmp_path / "d" / "server", tmp_path / "d")[1]
    assert (never.what, never.well) == ("a", False)
    assert never.seen == "registered, and was never online: start its client"
    node.status = "online"
    (tmp_path / "d/clients/b/node.pub").write_text("ssh-rsa nonsense")
    found = doctor._nodes("127.0.0.1:9", tmp_path / "d" / "server", tmp_path / "d")
    by_name = {finding.what: finding for finding in found}
    assert "b/node.pub is no public key" in by_name["clients"].seen
    assert not by_name["clients"].well
    assert by_name["7"].well  # and who is there is told all the same


def test_a_superlink_that_ends_the_command_is_one_line(tmp_path, monkeypatch):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a",)))

    def refuse(*_):
        raise SystemExit(1)  # as Flower does for a version that it does not go with

    monkeypatch.setattr(doctor.ControlHttpClient, "from_server_address", refuse)
    (only,) = doctor._nodes("127.0.0.1:9", tmp_path / "d" / "server", tmp_path / "d")
    assert (only.what, only.well) == ("version", False)


def test_from_a_clients_machine(tmp_path):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a",)))
    found = {finding.what: finding for finding in examine(tmp_path / "d" / "clients" / "a")}
    assert {*found} == {"SuperLink", "without TLS"}  # nobody is there to be asked more
    assert not found["SuperLink"].well


@pytest.mark.parametrize(
    ("user", "said", "well"),
    [(0, REFUSED, True), (0, ANSWERED, False), (1000, ANSWERED, True)],
)
def test_what_strangers_get_is_told(tmp_path, monkeypatch, user, said, well):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a",)))
    got = dict.fromkeys((*CONTROL, *RUNTIME), said)
    monkeypatch.setattr(doctor.os, "geteuid", lambda: user)
    monkeypatch.setattr(doctor, "tried", lambda *_: {**got, RUNTIME[0]: REFUSED})
    monkeypatch.setattr(doctor, "tried_as", lambda *_: got)
    mine, others = doctor._strangers("127.0.0.1:9", tmp_path / "d" / "server")
    assert mine.well
    assert others.well == well
    assert ("not tried" in others.seen) == (user != 0)
    if not well:
        assert "list the nodes: ANSWERED" in others.seen
        assert "superlink.sh" in others.seen


def test_a_state_that_others_can_read_is_noticed(tmp_path):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a",)))
    state = tmp_path / "d" / "server" / "state.db-wal"
    state.touch(0o644)
    found = {finding.what: finding for finding in examine(tmp_path / "d")}
    assert f"others can read {state}" in found["keys"].seen


def test_an_attempt_that_fails_is_not_taken_for_a_refusal():
    assert set(tried("127.0.0.1:9", None).values()) == {"could not be tried: ConnectError"}


@pytest.mark.parametrize("mine", [True, False])
def test_who_runs_the_server_is_no_stranger_to_it(tmp_path, monkeypatch, plain, mine):
    """As in a rehearsal on one machine, by one account."""
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), plain, ("a",)))
    monkeypatch.setattr(doctor, "_certificate", lambda *_: Finding("SuperLink", True, ""))
    monkeypatch.setattr(doctor, "tried", lambda *_: {"list the nodes": ANSWERED})
    account = os.geteuid() if mine else os.geteuid() + 1
    monkeypatch.setattr(doctor.os, "geteuid", lambda: account)
    by_name = {finding.what: finding for finding in examine(tmp_path / "d" / "clients" / "a")}
    assert by_name["without a key"].well is mine
    assert ("this account runs the server" in by_name["without a key"].seen) is mine
