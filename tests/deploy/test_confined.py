"""Few variables and no way to stay, tried with a daemon that means to."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from murmuration.deploy import confined, processes
from murmuration.deploy.confined import in_namespace, node_environment
from murmuration.deploy.processes import Program, wait_for

DAEMON = Path(__file__).parents[1] / "attacks" / "programs" / "daemon.sh"
ROOT = str(Path(confined.__file__).parents[2])
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
NOBODY = pytest.param("nobody", marks=AS_ROOT)


@pytest.fixture
def folder():
    """One that every account may write to, with the attack in it."""
    with tempfile.TemporaryDirectory(prefix="mm-") as name:
        Path(name).chmod(0o777)
        shutil.copyfile(DAEMON, Path(name) / "daemon.sh")
        yield Path(name)


def beating(folder):
    """Whether the daemon still writes."""
    before = (folder / "beats").stat().st_size
    time.sleep(0.3)
    return (folder / "beats").stat().st_size > before


def attack(folder, stays="60"):
    return ["/bin/sh", str(folder / "daemon.sh"), str(folder / "beats"), stays]


@pytest.mark.parametrize(
    ("user", "namespaces"),
    [
        (None, True),
        pytest.param("nobody", True, marks=AS_ROOT),
        pytest.param(None, False, marks=pytest.mark.slow),
        pytest.param("nobody", False, marks=[AS_ROOT, pytest.mark.slow]),
    ],
)
def test_a_daemon_does_not_survive_the_program(folder, user, namespaces, monkeypatch):
    monkeypatch.setattr(processes, "GRACE", 0.2)
    if not namespaces:
        monkeypatch.setattr(processes, "in_namespace", lambda command, user: None)
    program = Program(attack(folder), folder / "log", user=user, confined=True, cwd=folder)
    wait_for((folder / "beats").exists, 20, "the daemon", program)
    assert beating(folder)
    program.end()
    assert not beating(folder)


def test_a_daemon_does_not_survive_a_program_that_ends_by_itself(folder):
    program = Program(attack(folder, "0.5"), folder / "log", confined=True)
    wait_for(lambda: not program.alive, 20, "the end")
    assert (folder / "beats").exists()
    assert not beating(folder)


@pytest.mark.parametrize(
    ("victim", "user"),
    [
        pytest.param("owner", None, marks=pytest.mark.slow),
        ("keeper", None),
        pytest.param("owner", "nobody", marks=[AS_ROOT, pytest.mark.slow]),
        pytest.param("keeper", "nobody", marks=[AS_ROOT, pytest.mark.slow]),
    ],
)
def test_a_daemon_does_not_survive_who_started_it(folder, user, victim):
    if in_namespace(["true"], user or "") is None:
        pytest.skip("no PID namespaces here")
    code = (
        "import sys, time; from pathlib import Path\n"
        "from murmuration.deploy import processes\n"
        "from murmuration.deploy.processes import Program\nprocesses.GRACE = 0.2\n"
        f"p = Program({attack(folder)!r}, Path({str(folder / 'log')!r}), user={user!r},"
        " confined=True)\n"
        "print(p.process.pid, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": ROOT}
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    try:
        keeper = psutil.Process(int(owner.stdout.readline()))
        wait_for((folder / "beats").exists, 20, "the daemon")
        wait_for(lambda: beating(folder), 5, "the daemon")
        family = keeper.children(recursive=True)
        os.kill(owner.pid if victim == "owner" else keeper.pid, signal.SIGKILL)
        wait_for(
            lambda: not any(p.is_running() and p.status() != "zombie" for p in family), 10, "end"
        )
        assert not beating(folder)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()


@pytest.mark.parametrize("user", [None, NOBODY])
def test_the_servers_code_sees_no_other_process(folder, user):
    if in_namespace(["true"], user or "") is None:
        pytest.skip("no PID namespaces here")
    done = subprocess.run(
        in_namespace(["sh", "-c", "echo $$; ls /proc | grep -c '^[0-9]'; id -u"], user or ""),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    own, seen, who = (int(line) for line in done.stdout.split())
    assert own == 1
    assert seen <= 4
    assert who == (65534 if user else os.geteuid())


def test_keys_and_tokens_stay_with_their_owner(folder, monkeypatch):
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "s1",
        "HF_TOKEN": "s2",
        "SSH_AUTH_SOCK": "s3",
        "MY_PW": "s4",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    environment = node_environment(folder)
    program = Program(["env"], folder / "log", environment=environment, confined=True)
    wait_for(lambda: not program.alive, 20, "the end")
    got = dict(line.split("=", 1) for line in program.text().splitlines() if "=" in line)
    assert not secrets.keys() & got.keys()
    assert {*got} - {"PWD", "SHLVL", "_", "LC_CTYPE"} <= {*environment}
    assert (got["HOME"], got["FLWR_HOME"]) == (str(folder), str(folder / "flwr"))
    assert got["FLWR_TELEMETRY_ENABLED"] == "0"


def test_where_no_namespace_can_be_made_there_is_none(monkeypatch):
    confined._prefix.cache_clear()
    monkeypatch.setattr(confined.shutil, "which", lambda name: None)
    assert in_namespace(["true"]) is None
    confined._prefix.cache_clear()
    monkeypatch.setattr(confined.shutil, "which", lambda name: shutil_false(name))
    assert in_namespace(["true"]) is None
    confined._prefix.cache_clear()


def shutil_false(name):
    """A system that has the programs and forbids what they do."""
    return "/bin/false"
