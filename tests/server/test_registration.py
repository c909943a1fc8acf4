"""The operator's file of whom nodes may host, and when it is asked for."""

import pytest
from flwr.superlink.grid.http_grid import HttpGrid

from murmuration.deploy.certificates import client_key
from murmuration.preference.data.errors import InputError
from murmuration.server.registration import read_registration, registration_for
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.registration import Hosted, Registration


@pytest.fixture
def write(tmp_path):
    """A function: a registration file beside the public keys a.pub and b.pub."""
    for name in "ab":
        (tmp_path / f"{name}.pub").write_bytes(client_key()[1])

    def call(text):
        path = tmp_path / "nodes.toml"
        path.write_text(text)
        return path

    return call


class Network(HttpGrid):
    """Flower's grid in a deployment, beside the network."""

    def close(self):
        pass


A = '[a]\nkey = "a.pub"\n'
B = '[b]\nkey = "b.pub"\n'


def test_a_file_is_read(write):
    found = read_registration(write(A + "users = 200\n" + B + 'user-ids = ["ann", " bert "]\n'))
    assert list(found.nodes.values()) == [Hosted(200), Hosted(2, frozenset({"ann", "bert"}))]
    assert all(b"BEGIN PUBLIC KEY" in key for key in found.nodes)
    assert found.other == Hosted(0)
    assert list(read_registration(write(A)).nodes.values()) == [Hosted(1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a", "cannot be read"),
        ("a = " + "[" * 20_000, "cannot be read"),
        ("a = 3", r"\[a\] must have key"),
        ("[a]\nusers = 3", r"\[a\] must have key"),
        (A + "user = 3", r"\[a\] must have key"),
        ('[a]\nkey = "gone.pub"', "gone.pub cannot be read"),
        ('[a]\nkey = "nodes.toml"', "nodes.toml cannot be read"),
        (A + B.replace("b.pub", "a.pub"), r"\[b\] has the key of another"),
        (A + "users = -1", "0 or more; got -1"),
        (A + "users = true", "got True"),
        (A + 'users = "3"', "got '3'"),
        (A + "user-ids = []", "list of ids"),
        (A + 'user-ids = "ann"', "list of ids"),
        (A + 'user-ids = [" "]', r"\[a\]: 'user-ids' is empty"),
        (A + 'user-ids = ["ann"]\n' + B + 'user-ids = ["ann "]', "'ann' is registered for two"),
    ],
)
def test_what_cannot_be_used_is_named(write, text, said):
    with pytest.raises(InputError, match=said):
        read_registration(write(text))


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_registration(tmp_path / "nodes.toml")


def test_a_simulation_is_ours_and_a_network_is_not(write):
    """Which of the two it is no node can say."""
    config = RunConfig(adjacency="zero-out")
    over_a_network = Network.__new__(Network)
    assert registration_for(config, object()) is None
    assert registration_for(config, over_a_network) == Registration()
    assert Registration().other == Hosted(1)
    config = RunConfig(adjacency="zero-out", registration=str(write(A)))
    assert registration_for(config, object()) == read_registration(write(A))


def test_numbers_cannot_keep_add_remove(write):
    """Who counts of too many would depend on who else is there."""
    for adjacency, text, good in [
        ("add-remove", A, False),
        ("add-remove", A + 'user-ids = ["ann"]', True),
        ("zero-out", A, True),
        ("replace", A, True),
    ]:
        config = RunConfig(adjacency=adjacency, registration=str(write(text)))
        if good:
            assert registration_for(config) is not None
        else:
            with pytest.raises(InputError, match=r"zero-out.*user-ids"):
                registration_for(config)
