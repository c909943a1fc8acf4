"""The doctor's findings; against a real SuperLink see ``test_deployed``."""

import socket
import threading

import pytest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from preference.judgements import InputError
from sims import deploy_doctor
from sims.deploy_doctor import examine
from sims.deploy_init import Deployment, write_deployment


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
    (tmp_path / "d/server/nodes.toml").unlink()
    found = {finding.what: finding for finding in examine(tmp_path / "d")}
    assert not found["users"].well
    with pytest.raises(InputError):
        examine(tmp_path)


def test_a_node_that_is_not_registered_is_named(tmp_path, monkeypatch):
    write_deployment(tmp_path / "d", Deployment(("127.0.0.1",), 9, ("a", "b")))
    key = deploy_doctor.load_ssh_public_key((tmp_path / "d/clients/a/node.pub").read_bytes())
    node = type("Node", (), {})()
    node.public_key = public_key_to_bytes(key)
    node.status, node.name, node.node_id = "online", "", 7

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ListNodes(self, request):
            return type("Found", (), {"nodes_info": [node]})()

    monkeypatch.setattr(deploy_doctor.ControlHttpClient, "from_server_address", lambda *_: Client())
    found = deploy_doctor._nodes("127.0.0.1:9", tmp_path / "d" / "server", tmp_path / "d")
    by_name = {finding.what: finding for finding in found}
    assert by_name["a"].well
    assert not by_name["b"].well
    assert "register.sh" in by_name["b"].seen
