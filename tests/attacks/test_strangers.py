"""Who may speak in a real deployment: strangers, other accounts, other machines, shipped code."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deployment import free_port

from murmuration.deploy import confined
from murmuration.deploy.doctor import examine
from murmuration.deploy.init import Deployment, write_deployment
from murmuration.deploy.outsider import REFUSED, as_account, tried, tried_as
from murmuration.deploy.processes import wait_for
from murmuration.deploy.run import flwr
from murmuration.research.stress.site import Site
from murmuration.sims.runtimes.app_bundle import write_bundle
from murmuration.sims.runtimes.process_reaper import listens

pytestmark = [
    pytest.mark.deploy,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may be another account"),
]

ATTACKS = Path(__file__).parent
ROOT = str(Path(confined.__file__).parents[2])


def _stranger():
    spec = importlib.util.spec_from_file_location("stranger", ATTACKS / "stranger.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


stranger = _stranger()


@contextmanager
def another_machine():
    """A network namespace that reaches this one at 10.78.0.1: a command's prefix, or None."""
    tag = os.getpid() % 10_000
    name, ends = f"mm-other-{tag}", (f"mmh{tag}", f"mmo{tag}")
    inside = ["ip", "-n", name]
    commands = [
        ["ip", "netns", "add", name],
        ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]],
        ["ip", "link", "set", ends[1], "netns", name],
        ["ip", "addr", "add", "10.78.0.1/24", "dev", ends[0]],
        ["ip", "link", "set", ends[0], "up"],
        [*inside, "addr", "add", "10.78.0.2/24", "dev", ends[1]],
        [*inside, "link", "set", ends[1], "up"],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        yield ["ip", "netns", "exec", name]
    except (OSError, subprocess.CalledProcessError):
        yield None
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", ends[0]], check=False, capture_output=True)


def attack_from(machine, address, authority):
    """What the attack got from another machine, as its root."""
    command = [*machine, sys.executable, str(ATTACKS / "stranger.py"), address, str(authority)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)


@pytest.mark.timeout(900)
def test_strangers_get_nothing(tmp_path, monkeypatch):
    """No key, another account or machine; from before the executor starts to a run's end."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the owner")
    with another_machine() as machine:
        hosts = ("10.78.0.1",) if machine else ("127.0.0.1",)
        deployment = Deployment(hosts, free_port(), ("a",))
        write_deployment(tmp_path / "d", deployment)
        site = Site(tmp_path / "d", deployment, tmp_path / "logs")
        with site:
            _attack_all(tmp_path, site, machine, free_port())
        beats = (tmp_path / "beats").stat().st_size
        time.sleep(0.5)
        assert (tmp_path / "beats").stat().st_size == beats, "the daemon is still there"


def _attack_all(folder, site, machine, node_port):
    address, authority = site.deployment.address, site.server / "ca.crt"
    certificate = authority.read_bytes()
    app = write_bundle(
        folder / "app", {"folder": str(folder)}, app_dir=ATTACKS / "shipped",
        serverapp="at_server:app", clientapp="at_node:app",
    )  # fmt: skip

    def attacks():
        found = {"another account": as_account("nobody", lambda: stranger.attack(*server))}
        if machine:
            found["another machine"] = attack_from(machine, address, authority)
        return found

    server = (address, certificate)
    nothing = {"another account": {}} | ({"another machine": {}} if machine else {})
    site.start_superlink()
    site.register()
    node = site.start_node("a", folder / "none.sock", node_port)
    wait_for(lambda: listens(node.process.pid, node_port), 60, "the SuperNode", node)
    flwr(site.server, "run", str(app), "deployed", "--format", "json").check_returncode()
    # The app's task waits for whoever comes first.
    assert attacks() == nothing
    own = stranger.attack(*server)
    assert "task" not in own
    assert own["nodes, by control"] == 1
    # Nor at the client's own port, for accounts of the client's machine.
    local = f"127.0.0.1:{node_port}"
    assert set(tried_as("nobody", local, None).values()) == {REFUSED}
    assert tried(local, None)["take a task"] == REFUSED
    # The app runs, and every account can read its token; the node's app has been there.
    site.start_superexec()
    wait_for((folder / "asked").exists, 120, "the app")
    assert as_account("nobody", stranger.tokens)
    assert attacks() == nothing
    _examined(site.folder, machine)
    environment = json.loads((folder / "environment.json").read_text())
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert "PATH" in environment
    before = (folder / "beats").stat().st_size
    wait_for(lambda: (folder / "beats").stat().st_size > before, 5, "the daemon")
    (folder / "end").touch()
    wait_for(lambda: not site.programs["superexec"].started(), 60, "the app's end")
    modes = {file.stat().st_mode & 0o077 for file in site.server.glob("state.db*")}
    assert modes == {0}


def _examined(folder, machine):
    """The doctor says the same."""
    found = {finding.what: finding for finding in examine(folder)}
    assert found["without a secret"].well
    assert found["other accounts"].well
    assert found["other accounts"].seen.startswith("refused: list the nodes, list the runs")
    assert found["keys"].well
    here = {finding.what: finding for finding in examine(folder / "clients" / "a")}
    assert here["without a key"].seen.startswith("not tried: this account runs the server")
    if machine:
        command = [
            sys.executable,
            "-m",
            "murmuration.cli.main",
            "deploy",
            "doctor",
            str(folder / "clients/a"),
        ]
        done = subprocess.run(
            [*machine, *command], capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": ROOT},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "refused: list the nodes, list the runs, take a task" in done.stdout


@pytest.mark.timeout(400)
def test_nothing_stays_when_a_deployment_is_killed(tmp_path, make_rows):
    deployment = Deployment(("127.0.0.1",), free_port(), ("a",))
    write_deployment(tmp_path / "d", deployment)
    data = tmp_path / "judgements.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in make_rows([3, 2])))
    code = (
        "import sys, time; from pathlib import Path\n"
        "from murmuration.deploy.init import Deployment; "
        "from murmuration.research.stress.site import Site\n"
        "folder, data, port, node_port = sys.argv[1:]\n"
        "site = Site(Path(folder) / 'd', Deployment(('127.0.0.1',), int(port), ('a',)),"
        " Path(folder) / 'logs')\n"
        "site.start_superlink(); site.start_superexec(); site.register()\n"
        "site.start_node('a', site.start_agent('a', Path(data)), int(node_port))\n"
        "print('up', flush=True); time.sleep(100)\n"
    )
    arguments = [str(tmp_path), str(data), str(deployment.port), str(free_port())]
    owner = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    try:
        assert owner.stdout.readline() == b"up\n"
        family = psutil.Process(owner.pid).children(recursive=True)
        names = " ".join(" ".join(process.cmdline()) for process in family)
        for part in ("superlink", "superexec", "supernode", "agent"):
            assert part in names
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
    wait_for(lambda: not any(_alive(process) for process in family), 30, "the end of all")


def _alive(process):
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
