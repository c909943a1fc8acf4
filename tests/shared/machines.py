"""Machines of a walk, each a home with a shell that stays open, so that what it started goes on.

They share this machine's network, and take ports that are free, or are namespaces of the kernel's:
then each has a network, processes, /etc, /run and /var/lib of its own, and nothing of it is left.
Machines of a Ray cluster are raylets.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from deployment import free_ports
from walks import ROOT, Step, environment, missing, steps

#: By this variable processes of a walk are known again.
_MARK = "MURMURATION_TEST_WALK"
_SECONDS = 600.0  # for a block
_RAY_SECONDS = 120.0  # until a machine of a Ray cluster has started, or has ended
#: How a cluster is started.
CLUSTERS = ROOT / "docs" / "how-to" / "cluster.md"
#: Files of its own; Python is where other accounts reach it, were it in root's home.
_PREPARE = """\
set -e
place=$1 installed=$2
case $installed in /root/*)
  mkdir "$place/installed"
  mount --bind "$installed" "$place/installed"
  mount -t tmpfs -o mode=755 tmpfs /root
  mkdir -p "$installed"
  mount --bind "$place/installed" "$installed"
esac
cp -a /etc "$place/etc"
mount --bind "$place/etc" /etc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
ip link set lo up
exec bash
"""
_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")


class Machine:
    """A home in the folder ``place``, and a shell; ``python`` has what is installed there.

    ``in_namespaces``: with a network and files of its own, which needs root.
    """

    def __init__(
        self,
        name: str,
        place: Path,
        mark: str,
        *,
        python: str = sys.executable,
        in_namespaces: bool = False,
    ):
        self.name, self.kept, self.typed = name, place / name, 0
        self.home = self.kept / "home"
        self.home.mkdir(parents=True)
        prepared = ["bash", "-c", _PREPARE, "bash", str(self.kept), sys.base_prefix]
        unshared = ["unshare", *_NAMESPACES, "--", *prepared]
        self.in_namespaces = in_namespaces
        self.shell = subprocess.Popen(
            unshared if in_namespaces else ["bash"],
            cwd=self.home, env=environment(self.home, python, **{_MARK: mark}),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip

    def type(self, body: str) -> tuple[int, str]:
        """Return what the block ends with, and what it printed."""
        self.typed += 1
        printed, code = (self.kept / f"{what}_{self.typed}" for what in ("printed", "code"))
        assert self.shell.stdin
        self.shell.stdin.write(f"{{\n{body}}} > {printed} 2>&1 < /dev/null; echo $? > {code}\n")
        self.shell.stdin.flush()
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end and not (code.exists() and code.read_text().strip()):
            output = printed.read_text(errors="replace") if printed.exists() else ""
            assert self.shell.poll() is None, f"{self.name}: the shell has ended\n{body}\n{output}"
            time.sleep(0.1)
        output = printed.read_text(encoding="utf-8", errors="replace")
        assert code.exists(), output
        return int(code.read_text()), output

    def own(self) -> set[int]:
        """The shell, and in namespaces what holds these."""
        pids = {self.shell.pid}
        if self.in_namespaces:
            pids |= {child.pid for child in psutil.Process(self.shell.pid).children()}
        return pids

    def ip(self, *arguments: str) -> None:
        """Run ``ip`` in this machine's network, where processes have the numbers they have here."""
        network = f"--net=/proc/{self.shell.pid}/ns/net"
        subprocess.run(["nsenter", network, "ip", *arguments], check=True)


@contextmanager
def running(
    place: Path, names: Sequence[str], **how: dict[str, object]
) -> Iterator[dict[str, Machine]]:
    """Machines by name, ended with all that they started; ``how`` each of some is, by name."""
    mark, machines = secrets.token_hex(8), {}
    try:
        for name in names:
            machines[name] = Machine(name, place, mark, **how.get(name, {}))  # type: ignore[arg-type]
        yield machines
        own = set.union(*(machine.own() for machine in machines.values()))
        _, left = psutil.wait_procs([p for p in _walking(mark) if p.pid not in own], timeout=60)
        assert not left, left
    finally:
        for process in _walking(mark):
            process.kill()
        for machine in machines.values():
            machine.shell.kill()
            machine.shell.wait()


def _walking(mark: str) -> Iterator[psutil.Process]:
    """Processes that were started in a walk, whatever session they are in now."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:
            continue


def connect(machines: Sequence[Machine], names: dict[str, str]) -> None:
    """Put machines in namespaces on one network, the first in its middle.

    ``names``: host names, each of a machine, by which all know it.
    """
    addresses = {machine.name: f"10.77.0.{n}" for n, machine in enumerate(machines, start=1)}
    hosts = "".join(f"{addresses[machine]} {host}\n" for host, machine in names.items())
    for machine in machines:
        assert machine.type(f"cat >> /etc/hosts <<'END'\n{hosts}END\n")[0] == 0
    middle = machines[0]
    middle.ip("link", "add", "hub", "type", "bridge")
    middle.ip("addr", "add", f"{addresses[middle.name]}/24", "dev", "hub")
    middle.ip("link", "set", "hub", "up")
    for machine in machines[1:]:
        end = f"to-{machine.name}"
        other = ("peer", "name", "eth0", "netns", str(machine.shell.pid))
        middle.ip("link", "add", end, "type", "veth", *other)
        middle.ip("link", "set", end, "master", "hub", "up")
        machine.ip("addr", "add", f"{addresses[machine.name]}/24", "dev", "eth0")
        machine.ip("link", "set", "eth0", "up")


def walk_on(
    machines: dict[str, Machine],
    walked: Iterable[Step],
    typed: Callable[[str], str] = lambda body: body,
) -> list[str]:
    """Type blocks, each on its machines, and compare what is shown; what each printed.

    ``typed`` is what a block is on these machines. What the page copies by scp is copied.
    """
    result = []
    for step in walked:
        if not step.run:
            for file, to in re.findall(r"^scp (\S+) (\w+)@\S+:$", step.body, re.MULTILINE):
                shutil.copy(machines["operator"].home / file, machines[to].home)
            continue
        for name in step.machines:
            code, output = machines[name].type(typed(step.body))
            assert code == step.exits_with, f"on {name}:\n{step.body}\n{output}"
            lost = [missing(typed(shown), output) for shown in step.shown]
            assert not any(lost), "\n".join(lost)
            result.append(output)
    return result


def on_one_machine(body: str, ports: dict[str, int]) -> str:
    """The commands with this machine's address for the server's, and ports that are free."""
    body = patiently(body).replace("server.example.org", "127.0.0.1")
    for what, port in ports.items():
        body = body.replace(
            f"murmuration deploy {what} ", f"murmuration deploy {what} --port {port} "
        )
    return body


def patiently(body: str) -> str:
    """The commands with more time for nodes to answer, which a busy machine may need."""
    return body.replace(
        "murmuration deploy run site ", "murmuration deploy run site --timeout 300 "
    )


def walk_three(machines: dict[str, Machine], page: Path, typed: Callable[[str], str]) -> None:
    """Walk the tutorial of three machines; what it promises besides what it shows holds."""
    walk_on(machines, steps(page.read_text(encoding="utf-8")), typed)
    operator = machines["operator"].home
    assert "max_epsilon" in (operator / "runs" / "second" / "aborted.json").read_text()
    # What leaves a machine is what the page says: no judgement is on the operator's.
    contents = b"".join(file.read_bytes() for file in operator.parent.rglob("*") if file.is_file())
    assert b"Repair it for 80 euros." not in contents


def may_make_namespaces() -> str:
    """Why this system cannot make machines in namespaces; "" if it can."""
    if os.geteuid() != 0:
        return "only root may make them"
    for tool in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    bridge = "ip link add hub type bridge && mount -t tmpfs tmpfs /run"
    tried = subprocess.run(
        ["unshare", *_NAMESPACES, "--", "sh", "-c", bridge],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if tried.returncode == 0 else f"the kernel refuses them: {tried.stderr.strip()}"


def typed_on(machine: str) -> list[Step]:
    """The blocks of the page that are typed on a machine, in their order."""
    return [step for step in steps(CLUSTERS.read_text("utf-8")) if machine in step.machines]


@contextmanager
def ray_cluster(*cpus: int) -> Iterator[dict[str, str]]:
    """Start a first machine and others with so many processors each; the variables of whoever uses
    the cluster.

    Each machine has a home of its own, where its folders are: two that share one unpack the same
    code over each other.
    """
    port, client_port = free_ports(2)
    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # short: sockets lie in it
    token, head = (step.body for step in typed_on("first")[:2])
    (join,) = (step.body for step in typed_on("second"))
    address, key = f"127.0.0.1:{port}", place / "0" / "h" / ".ray" / "auth_token"
    machines = []
    try:
        for number, count in enumerate(cpus):
            home = place / str(number) / "h"
            home.mkdir(parents=True)
            variables = environment(home)
            del variables["PYTHONPATH"]  # the code comes with the run
            if number == 0:
                subprocess.run(["bash", "-ec", token], env=variables, check=True)
                body = head.replace("--port 6379", f"--port {port}")
                body = body.replace("--block", f"--block --ray-client-server-port {client_port}")
            else:
                (home / ".ray").mkdir(mode=0o700)
                shutil.copy(key, home / ".ray")
                body = join.replace("10.0.0.1:6379", address)
            small = f"--block --num-cpus {count} --object-store-memory 100000000"
            body = body.replace("--block", small)
            machines.append(start_ray(body, variables, home.parent / "printed"))
        yield {
            "RAY_ADDRESS": address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(key),
        }
    finally:
        for machine in reversed(machines):
            end_ray(machine)
        shutil.rmtree(place)


def start_ray(body: str, variables: dict[str, str], printed: Path) -> psutil.Process:
    """Type ``ray start --block``; its process, once it has begun."""
    with printed.open("wb") as file:
        machine = psutil.Popen(
            ["bash", "-c", f"exec env {body}"], env=variables, stdin=subprocess.DEVNULL,
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + _RAY_SECONDS
    while b"Ray runtime started" not in printed.read_bytes():
        if machine.poll() is not None or time.monotonic() > deadline:
            end_ray(machine)
            raise AssertionError(printed.read_text(errors="replace"))
        time.sleep(0.1)
    return machine


def end_ray(machine: psutil.Process) -> None:
    """End a machine as Ctrl-C does, and what is left of it by its number."""
    processes = [machine, *machine.children(recursive=True)] if machine.is_running() else [machine]
    if machine.is_running():
        machine.terminate()
    _, left = psutil.wait_procs(processes, timeout=20)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=_RAY_SECONDS)
