"""``murmuration agent``: what it refuses before it answers anything; serving is in test_agent."""

import socket

import pytest


@pytest.fixture
def arguments(write_rows, make_rows, tmp_path):
    (tmp_path / "policy.toml").write_text('strategies = ["uls"]\n')
    return {
        "--data": write_rows(make_rows([2])),
        "--policy": tmp_path / "policy.toml",
        "--state": tmp_path / "state",
        "--socket": tmp_path / "a.sock",
    }


def flat(arguments):
    return [part for pair in arguments.items() for part in pair]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"--data": "none"}, "none"),
        ({"--policy": "none"}, "none"),
        ({"--group": "no-such-group"}, "no-such-group"),
    ],
)
def test_what_is_not_there(refusal, arguments, changed, why):
    assert why in refusal("agent", *flat({**arguments, **changed}))


def test_a_policy_that_makes_no_sense(refusal, arguments):
    arguments["--policy"].write_text("max_clip = -1\n")
    assert "max_clip" in refusal("agent", *flat(arguments))


def test_another_agent_is_not_pushed_aside(cli, arguments):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(arguments["--socket"]))
        other.listen()
        code, _, err = cli("agent", *flat(arguments))
        assert code == 2
        assert "another agent" in err[-1]
        assert arguments["--socket"].is_socket()
