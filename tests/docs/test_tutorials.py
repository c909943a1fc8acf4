"""The tutorials, typed word by word; one of them on three machines, which are three homes here."""

import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from deployment import free_ports
from walks import ROOT, Step, environment, missing, steps, walk

PAGES = ROOT / "docs" / "tutorials"
SLOW = (pytest.mark.slow, pytest.mark.timeout(3600))
#: Every tutorial, and what walking it takes.
WALKS = {
    "first-reward.md": (),
    "own-data.md": SLOW,
    "reward-to-policy.md": SLOW,
    "three-machines.md": (pytest.mark.deploy, *SLOW),
}
#: What may stay without a walk: the environment has it already, or another machine would be needed.
NOT_RUN = re.compile(r"(pip install |git clone |cd murmuration|python3 -m venv |\. \.venv/|scp )")
_MARK = "MURMURATION_TEST_WALK"


def one_machine() -> list:
    names = [name for name in WALKS if name != "three-machines.md"]
    return [pytest.param(name, marks=WALKS[name], id=name) for name in names]


@pytest.mark.parametrize("page", one_machine())
def test_a_tutorial_as_it_is_printed(page, tmp_path):
    walk(PAGES / page, tmp_path)


def test_every_tutorial_is_walked():
    assert {page.name for page in PAGES.glob("*.md")} == set(WALKS)


@pytest.mark.parametrize("page", sorted(WALKS))
def test_what_is_not_run_is_said(page):
    found = steps((PAGES / page).read_text(encoding="utf-8"))
    assert len(found) >= 4
    assert sum(step.run for step in found) >= len(found) - 2
    for step in found:
        step.typed()
        if not step.run:
            lines = [line for line in step.body.splitlines() if line and not line.startswith("#")]
            assert all(NOT_RUN.match(line) for line in lines), lines
            assert re.match(r"not run: \w", step.said)
        if step.language == "python":
            compile(step.body, page, "exec")


# Three machines, which are three homes here.


class Machine:
    """A home with a shell that stays open, so that what it started goes on."""

    def __init__(self, name: str, place: Path, mark: str):
        self.home = place / name / "home"
        self.home.mkdir(parents=True)
        self.kept = place / name
        self.typed = 0
        self.shell = subprocess.Popen(
            ["bash"], cwd=self.home, env=environment(self.home, **{_MARK: mark}),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip

    def type(self, body: str) -> tuple[int, str]:
        """What the block ends with, and what it printed."""
        self.typed += 1
        printed, code = (self.kept / f"{what}_{self.typed}" for what in ("printed", "code"))
        assert self.shell.stdin
        self.shell.stdin.write(f"{{\n{body}}} > {printed} 2>&1 < /dev/null; echo $? > {code}\n")
        self.shell.stdin.flush()
        end = time.monotonic() + 600
        while time.monotonic() < end and not (code.exists() and code.read_text().strip()):
            assert self.shell.poll() is None, printed.read_text(errors="replace")
            time.sleep(0.1)
        told = printed.read_text(encoding="utf-8", errors="replace")
        assert code.exists(), told
        return int(code.read_text()), told


def on_one_machine(body: str, ports: dict[str, int]) -> str:
    """The commands with this machine's address for the server's, and ports that are free."""
    body = body.replace("server.example.org", "127.0.0.1")
    for what, port in ports.items():
        body = body.replace(
            f"murmuration deploy {what} ", f"murmuration deploy {what} --port {port} "
        )
    return body


def walking(mark: str) -> Iterator[psutil.Process]:
    """Processes that were started in a walk, whatever session they are in now."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except psutil.Error:
            continue


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_three_machines_as_they_are_printed(tmp_path):
    mark = secrets.token_hex(8)
    machines = {name: Machine(name, tmp_path, mark) for name in ("operator", "alice", "bob")}
    ports = dict(zip(("init", "client alice", "client bob"), free_ports(3), strict=True))
    try:
        for step in steps((PAGES / "three-machines.md").read_text(encoding="utf-8")):
            if not step.run:
                for file, to in re.findall(r"^scp (\S+) (\w+)@\S+:$", step.body, re.MULTILINE):
                    shutil.copy(machines["operator"].home / file, machines[to].home)
                continue
            for name in step.machines:
                code, told = machines[name].type(on_one_machine(step.body, ports))
                assert code == step.exits_with, f"{step.body}\n{told}"
                for shown in step.shown:
                    lost = missing(shown.replace("server.example.org", "127.0.0.1"), told)
                    assert not lost, lost
        _, left = psutil.wait_procs(
            [p for p in walking(mark) if p.pid not in {m.shell.pid for m in machines.values()}],
            timeout=60,
        )
        assert not left, left
    finally:
        for process in walking(mark):
            process.kill()
        for machine in machines.values():
            machine.shell.kill()
            machine.shell.wait()
    told = (tmp_path / "operator" / "home" / "runs" / "second" / "aborted.json").read_text()
    assert "max_epsilon" in told
    # What leaves a machine is what the page says: no judgement is on the operator's.
    kept = b"".join(
        file.read_bytes() for file in (tmp_path / "operator").rglob("*") if file.is_file()
    )
    assert b"Repair it for 80 euros." not in kept


def test_one_machine_is_three_by_its_ports():
    said = Step(
        "sh",
        "murmuration deploy init site --host server.example.org\n",
        "on: operator, and exits with 2",
    )
    assert (said.machines, said.exits_with) == (["operator"], 2)
    assert Step("sh", "", "on: alice, bob").machines == ["alice", "bob"]
    typed = on_one_machine(said.body, {"init": 7, "client alice": 8})
    assert typed == "murmuration deploy init --port 7 site --host 127.0.0.1\n"
