"""``flwr run .`` as the pages print it, in a copy of the checkout and in the folder of ``init``.

Flower's local SuperLink always listens at the same port, and stays: it is ended here by its id.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import psutil
import pytest
from walks import ROOT, environment, steps

from murmuration import Run
from murmuration.sharing.flower_app import write_app

PORT = 39091
pytestmark = [pytest.mark.slow, pytest.mark.flower, pytest.mark.xdist_group("a port")]


def listening():
    return [
        each.pid
        for each in psutil.net_connections("tcp")
        if each.laddr and each.laddr.port == PORT and each.status == psutil.CONN_LISTEN
    ]


@pytest.fixture(autouse=True)
def daemons_end():
    """The SuperLink of this test, and all that it started, are gone after it."""
    with socket.socket() as taken:
        if not taken.connect_ex(("127.0.0.1", PORT)):
            pytest.skip(f"somebody's SuperLink listens at port {PORT}")
    yield
    for pid in listening():
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(family, timeout=30)


def type_(block, folder, home):
    """What the block prints in a shell."""
    home.mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="mm-") as short:  # sockets go below it
        done = subprocess.run(
            ["bash", "-ec", block], cwd=folder, env=environment(home, RAY_TMPDIR=short),
            capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.commands
def test_in_a_clone(tmp_path):
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    clone = tmp_path / "clone"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() and not name.startswith(("tests/", "docs/")):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, clone / name, follow_symlinks=False)
    page = ROOT / "docs" / "how-to" / "cluster.md"
    (block,) = (step.typed() for step in steps(page.read_text()) if "flwr run" in step.body)
    printed = type_(block.replace("rounds=50", "rounds=2"), clone, tmp_path / "home")
    assert "round 2 of 2, ε 3.00" in printed
    assert '"finished:completed"' in printed
    run = Run.load(clone / "runs" / "flower")
    assert run.result["rounds"] == 2 and (run.path / "report.html").exists()
    assert '"max_judgements": 100' in (run.path / "config.json").read_text()


@pytest.mark.timeout(1200)
def test_in_the_folder_of_an_app(tmp_path):
    """As its README says, with Flower's own number of nodes: the accuracy is printed at the end."""
    app = tmp_path / "my-app"
    write_app(app)
    (block,) = re.findall(r"```sh\n(.*?)```", (app / "README.md").read_text(), re.DOTALL)
    _, rest = block.split("pip install -e .\n")  # where Murmuration comes from an index
    typed = rest.replace("flwr run . ", "flwr run . -c rounds=10 ")
    printed = type_(typed, app, tmp_path / "home")
    assert "round 10: epsilon 3.00" in printed
    (place,) = re.findall(r"accuracy 7\d\.\d%; all of the run is in (\S+)", printed)
    run = Run.load(place)
    assert run.result["rounds"] == 10 and run.path.is_relative_to(tmp_path / "home")


def test_a_run_that_fails_says_so(tmp_path):
    app = tmp_path / "my-app"
    write_app(app)
    printed = type_(
        "export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1\n"
        "flwr run . -c 'settings=\"epsylon = 3\"' --stream\n"
        "until flwr ls --format json | grep '\"finished:'; do sleep 1; done\n"
        "flwr ls --format json",
        app,
        tmp_path / "home",
    )
    assert '"finished:failed"' in printed and "unknown setting 'epsylon'" in printed


@pytest.mark.commands
def test_a_shell_with_a_network_of_its_own_is_reached_by_nobody(tmp_path):
    """What listens there is reached from there, and from nowhere else."""
    page = (ROOT / "docs" / "how-to" / "cluster.md").read_text()
    (line,) = (line for line in page.splitlines() if line.startswith("unshare "))
    if subprocess.run(["unshare", "--map-root-user", "--net", "true"], check=False).returncode:
        pytest.skip("this system lets nobody have a network of their own")
    shell = tmp_path / "shell"
    shell.write_text(
        f"#!{sys.executable}\n"
        "import socket, sys\n"
        f"listener = socket.create_server(('127.0.0.1', {PORT}))\n"
        f"socket.create_connection(('127.0.0.1', {PORT})).close()\n"
        "print('there', flush=True)\n"
        "sys.stdin.read()\n"
    )
    shell.chmod(0o755)
    typed = subprocess.Popen(
        ["bash", "-ec", line], env={**os.environ, "SHELL": str(shell)}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert typed.stdout.readline() == "there\n"
    assert not listening()
    with socket.socket() as outside:
        assert outside.connect_ex(("127.0.0.1", PORT))
    typed.communicate("")
    assert typed.returncode == 0
