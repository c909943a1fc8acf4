"""What ``deploy init`` writes: complete, private where it must be, and never over anything."""

import tomllib

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from murmuration.client.agent.policy import Policy
from murmuration.deploy.certificates import load_client_key, public_line
from murmuration.deploy.init import Deployment, deployed_address, write_deployment
from murmuration.deploy.terms import Terms, read_settings
from murmuration.preference.data.errors import InputError
from murmuration.server.registration import read_registration

TWO = Deployment.of(("10.0.0.7", "server.example"), 8111, "alice, bob:200")


def test_everybody_gets_a_folder(tmp_path):
    written = write_deployment(tmp_path / "d", TWO)
    assert all(path.exists() for path in written)
    found = {path for path in (tmp_path / "d").rglob("*") if path.is_file()}
    assert found == set(written)
    keys = [path for path in written if path.suffix == ".key"]
    assert len(keys) == 5  # the authority's, the server's, its executor's secret, two clients'
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700


def test_keys_belong_together_and_are_different(tmp_path):
    write_deployment(tmp_path / "d", TWO)
    lines = []
    for name in TWO.clients:
        place = tmp_path / "d" / "clients" / name
        line = public_line(load_client_key(place / "node.key").public_key())
        assert (place / "node.pub").read_bytes() == line
        lines.append(line)
    assert len(set(lines)) == 2


def test_settings_can_be_read(tmp_path):
    write_deployment(tmp_path / "d", TWO)
    connection = tomllib.loads((tmp_path / "d" / "server/flwr/config.toml").read_text())
    assert connection["superlink"]["deployed"]["address"] == "10.0.0.7:8111"
    client = tomllib.loads((tmp_path / "d" / "clients/bob/client.toml").read_text())
    assert client == {"name": "bob", "superlink": "10.0.0.7:8111", "users": 200}
    policy = Policy.load(tmp_path / "d" / "clients/bob/policy.toml")
    assert policy == TWO.usual.policy
    for name in ("server", "clients/alice", "clients/bob"):  # one set of numbers
        assert read_settings(tmp_path / "d" / name / "run.toml") == TWO.usual.settings
    assert TWO.usual == Terms(users=201)


def test_each_server_has_a_secret_of_its_own_for_its_executor(tmp_path):
    found = set()
    for name in ("d", "e"):
        write_deployment(tmp_path / name, TWO)
        secret = tmp_path / name / "server" / "superexec.key"
        assert len(secret.read_bytes()) == 64
        found.add(secret.read_bytes())
        texts = [tmp_path / name / "server" / f"{text}.sh" for text in ("superlink", "superexec")]
        for text in texts:
            assert f"--superexec-auth-secret-file {secret}" in text.read_text()
    assert len(found) == 2


def test_clients_are_registered_for_so_many_users(tmp_path):
    write_deployment(tmp_path / "d", TWO)
    found = read_registration(tmp_path / "d/server/nodes.toml")
    for name, users in (("alice", 1), ("bob", 200)):
        public = (tmp_path / "d/clients" / name / "node.pub").read_bytes()
        key = public_key_to_bytes(load_ssh_public_key(public))
        assert found.nodes[key].users == users
    assert found.other.users == 0
    for clients in ("a:0", "a:-1", "a:x", "a:", "a:1:2"):
        with pytest.raises(InputError, match=r"how many users|letters"):
            Deployment.of(("h",), 8100, clients)
    with pytest.raises(InputError, match="how many users"):
        Deployment(("h",), 8100, ("a",), {"b": 3})


def test_the_authoritys_key_goes_to_nobody(tmp_path):
    write_deployment(tmp_path / "d", TWO)
    secret = (tmp_path / "d" / "authority/ca.key").read_bytes()
    others = [p for p in (tmp_path / "d").rglob("*") if p.is_file() and p.name != "ca.key"]
    assert not any(secret in path.read_bytes() for path in others)


def test_a_second_time_is_refused(tmp_path):
    write_deployment(tmp_path / "d", TWO)
    before = {p: p.read_bytes() for p in (tmp_path / "d").rglob("*") if p.is_file()}
    with pytest.raises(InputError, match="never written over"):
        write_deployment(tmp_path / "d", TWO)
    assert before == {p: p.read_bytes() for p in (tmp_path / "d").rglob("*") if p.is_file()}


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "d").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        write_deployment(tmp_path / "d", TWO)


@pytest.mark.parametrize(
    ("hosts", "port", "clients", "said"),
    [
        ((), 8100, ("a",), "--host"),
        (("",), 8100, ("a",), "--host"),
        (("h",), 0, ("a",), "--port"),
        (("h",), 99999, ("a",), "--port"),
        (("h",), 8100, (), "--clients"),
        (("h",), 8100, ("a", "a"), "once"),
        (("h",), 8100, ("../a",), "letters"),
        (("h",), 8100, ("Alice",), "letters"),
    ],
)
def test_names_that_cannot_be(hosts, port, clients, said):
    with pytest.raises(InputError, match=said):
        Deployment(hosts, port, clients)


def test_addresses():
    assert Deployment(("::1",), 8100, ("a",)).address == "[::1]:8100"
    assert Deployment(("127.0.0.1",), 8100, ("a",)).bind == "127.0.0.1"
    assert Deployment(("example.org",), 8100, ("a",)).bind == "0.0.0.0"


def test_the_address_is_the_deployments(tmp_path):
    write_deployment(tmp_path / "d", Deployment(("server.example",), 8111, ("a",)))
    assert deployed_address(tmp_path / "d" / "server") == "server.example:8111"
    with pytest.raises(InputError, match="not a deployment's folder"):
        deployed_address(tmp_path)
