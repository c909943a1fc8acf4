"""The commands and units: what they must not lack."""

import subprocess
import sys
from pathlib import Path

import pytest

from murmuration.deploy import commands


def option(command, name):
    return command[command.index(name) + 1]


def test_the_superlink_authenticates_and_survives(tmp_path):
    command = commands.superlink(tmp_path, "0.0.0.0", 8100)
    assert "--enable-supernode-auth" in command
    assert "--insecure" not in command
    assert option(command, "--isolation") == "process"
    assert option(command, "--database") == str(tmp_path / "state.db")
    assert option(command, "--host") == "0.0.0.0"


def test_a_supernode_is_told_nothing_but_its_agent(tmp_path):
    command = commands.supernode(tmp_path, "server:8100", "/run/a.sock", 9094)
    assert option(command, "--node-config") == 'agent="/run/a.sock"'
    assert option(command, "--host") == "127.0.0.1"
    assert "--insecure" not in command
    assert "data" not in " ".join(command)


@pytest.mark.parametrize("side", ["server", "client"])
def test_no_task_without_the_secret(tmp_path, side):
    programs = {
        "server": (
            commands.superlink(tmp_path, "0.0.0.0", 8100),
            commands.superexec(tmp_path, 8100),
        ),
        "client": (
            commands.supernode(tmp_path, "server:8100", "/run/a.sock", 9094),
            commands.node_executor(tmp_path, 9094),
        ),
    }[side]
    for command in programs:
        secret = str(tmp_path / commands.EXECUTOR_SECRET)
        assert option(command, "--superexec-auth-secret-file") == secret
    # Flower ignores the secret under its other kind of isolation.
    assert option(programs[0], "--isolation") == "process"
    assert programs[0][1:4] == ["-P", "-m", "murmuration.deploy.guarded"]


def test_no_dependencies_are_installed_from_an_app(tmp_path):
    environment = commands.server_environment(tmp_path)
    assert environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert environment["FLWR_HOME"] == str(tmp_path / "flwr")


def test_the_two_services_of_a_client_are_two_users():
    files = commands.client_units()
    agent, node = files["murmuration-agent.service"], files["murmuration-node.service"]
    assert "User=murmuration-agent" in agent
    assert "User=murmuration-node" in node
    assert commands.DATA in agent
    assert commands.DATA not in node
    assert "Restart=always" in agent
    assert "Restart=always" in node
    for unit in (agent, node):  # by the owner's installation, and not by what lies about
        assert f"ExecStart={sys.executable} -P -m murmuration.cli.main " in unit
        assert "StateDirectoryMode=0700" in unit
        assert "UMask=0077" in unit
    assert "PrivateNetwork=yes" in agent


def test_scripts_are_scripts(tmp_path):
    files = commands.server_files(tmp_path, "0.0.0.0", 8100)
    files["register.sh"] = commands.register(tmp_path / "a b")
    for name, text in files.items():
        if name.endswith(".sh"):
            (tmp_path / name).write_text(text)
            subprocess.run(["/bin/sh", "-n", tmp_path / name], check=True)
    assert f"deploy register '{tmp_path / 'a b'}'" in files["register.sh"]


def test_flowers_programs_are_found_whatever_environment_is_active(tmp_path):
    """The SuperExec starts flwr-serverapp by its name."""
    files = commands.server_files(tmp_path, "0.0.0.0", 8100)
    text = files["superexec.sh"].partition("\nexec ")[0] + "\ncommand -v flwr-serverapp\n"
    found = subprocess.run(
        ["/bin/sh", "-c", text],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert Path(found.stdout.strip()) == Path(commands.tool("flwr-serverapp"))
    folder = str(Path(commands.tool("flwr-serverapp")).parent)
    assert f'Environment="PATH={folder}:' in files["murmuration-superexec.service"]


@pytest.mark.parametrize("name", ["murmuration-agent.service", "murmuration-node.service"])
def test_units_are_units(tmp_path, name):
    path = tmp_path / name
    path.write_text(commands.client_units()[name])
    for section in ("[Unit]", "[Service]", "[Install]"):
        assert section in path.read_text()
    if not Path("/usr/bin/systemd-analyze").exists():
        pytest.skip("no systemd-analyze on this machine")
    checked = subprocess.run(
        ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
    )
    assert "Unknown" not in checked.stderr
