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


@pytest.mark.parametrize("missing", ["--data", "--policy"])
def test_files_that_are_not_there(cli, arguments, tmp_path, missing):
    code, _, err = cli("agent", *flat({**arguments, missing: tmp_path / "none"}))
    assert code == 2
    assert "none" in err[-1]


def test_a_policy_that_makes_no_sense(cli, arguments):
    arguments["--policy"].write_text("max_clip = -1\n")
    code, _, err = cli("agent", *flat(arguments))
    assert code == 2
    assert "max_clip" in err[-1]


def test_a_group_that_does_not_exist(cli, arguments):
    code, _, err = cli("agent", *flat(arguments), "--group", "no-such-group")
    assert code == 2
    assert "no-such-group" in err[-1]


def test_another_agent_is_not_pushed_aside(cli, arguments):
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(arguments["--socket"]))
        other.listen()
        code, _, err = cli("agent", *flat(arguments))
        assert code == 2
        assert "another agent" in err[-1]
        assert arguments["--socket"].is_socket()
