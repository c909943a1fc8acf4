"""The tutorials, walked word by word: all commands of a page in one shell, in an empty folder, with
an empty home. What a page says was printed is printed, but for its figures.

A comment before a block says why it is not run, or which part of it is made smaller here. Before
a page of several machines, blocks say on which they are typed.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from deployment import free_ports

ROOT = Path(__file__).parents[2]
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
_BLOCK = re.compile(r"(?:^<!-- ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "MURMURATION_TEST_WALK"


@dataclass
class Step:
    """A block to be typed, what is said before it, and what the page says it prints."""

    language: str
    body: str
    said: str = ""
    shown: list[str] = field(default_factory=list)

    @property
    def run(self) -> bool:
        return not self.said.startswith("not run")

    @property
    def machines(self) -> list[str]:
        """On which it is typed, one after the other."""
        return re.findall(r"\w+", self.said.removeprefix("on: ").partition(", and ")[0])

    @property
    def exits_with(self) -> int:
        found = re.search(r"exits with (\d+)", self.said)
        return int(found[1]) if found else 0

    def typed(self) -> str:
        """The block, with smaller numbers where the comment has them: "here: --steps 2"."""
        body = self.body
        if self.said.startswith("here: "):
            for option, value in re.findall(r"(--[\w-]+) (\S+)", self.said):
                body, found = re.subn(rf"{option} \S+", f"{option} {value}", body)
                assert found, f"{option} is not in the block"
        return body


def steps(page: str) -> list[Step]:
    """The blocks of a page in their order; what is shown belongs to the block before it."""
    found: list[Step] = []
    for said, language, body in _BLOCK.findall(page):
        if language == "text":
            found[-1].shown.append(body)
        else:
            found.append(Step(language, body, said))
    return found


def plain(text: str) -> str:
    """A text without its figures, its frames and the way in which it is broken into lines."""
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    text = re.sub(r"[\u2500-\u257f]|\\\n", " ", text)
    text = re.sub(r"\b[0-9a-f]{12,}\b|[+−-]?\b\d+(?:[.,]\d+)*(?:e-?\d+)?", "#", text)
    return " ".join(text.split())


def missing(shown: str, printed: str) -> str:
    """The first line that is shown and was not printed after those before it; "" if all were.

    "…" stands for anything.
    """
    rest = plain(printed)
    for line in shown.splitlines():
        for part in map(str.strip, plain(line).split("…")):
            if part not in rest:
                return f"{line}\n    of: {plain(printed)}"
            rest = rest[rest.index(part) + len(part) :]
    return ""


def script(walked: list[Step], folder: Path) -> str:
    """The blocks in one shell that ends where one of them fails; what each prints is kept."""
    parts = ["set -e -o pipefail"]
    for number, step in enumerate(walked):
        body = step.typed()
        if step.language == "python":
            (folder / f"block_{number}.py").write_text(body, encoding="utf-8")
            body = f"python {folder}/block_{number}.py\n"
        parts.append(f"{{\n{body}}} > {folder}/printed_{number} 2>&1 < /dev/null")
    return "\n".join(parts) + "\n"


def environment(home: Path, **more: str) -> dict[str, str]:
    """That of somebody who has just installed this: nothing of whoever runs the tests."""
    programs = home.parent / "programs"
    programs.mkdir(exist_ok=True)
    command = programs / "murmuration"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m murmuration.sims.main "$@"\n')
    command.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    kept = {"HF_HUB_OFFLINE", "OMP_NUM_THREADS", "FLWR_TELEMETRY_ENABLED", "NUMBA_CACHE_DIR"}
    ours = {"PATH": path, "HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return {name: os.environ[name] for name in kept & set(os.environ)} | ours | more


def walk(page: Path, place: Path) -> None:
    """Types what the page has, and compares what it shows."""
    walked = [step for step in steps(page.read_text(encoding="utf-8")) if step.run]
    home, kept = place / "home", place / "kept"
    home.mkdir()
    kept.mkdir()
    done = subprocess.run(
        ["bash", "-c", script(walked, kept)],
        cwd=home, env=environment(home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    printed = [
        (kept / f"printed_{number}").read_text(encoding="utf-8", errors="replace")
        if (kept / f"printed_{number}").exists()
        else ""
        for number in range(len(walked))
    ]
    assert done.returncode == 0, f"{done.stderr}\n" + "\n".join(printed)[-3000:]
    told = [missing(shown, text) for step, text in zip(walked, printed, strict=True)
            for shown in step.shown]  # fmt: skip
    assert not [line for line in told if line], "\n".join(line for line in told if line)


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


# What keeps the walks honest.


def test_what_is_shown_must_be_printed():
    printed = "│ privacy   ε 2.97 of 3 │\n│ model   runs/a │\n"
    assert missing("privacy ε 3.00 of 3\n…\nmodel runs/a\n", printed) == ""
    assert missing("privacy … of 3", printed) == ""
    assert missing("[0.63…, -0.96…]", "[0.6300, -0.9628]") == ""
    assert "runs/b" in missing("model runs/b", printed)
    assert "privacy" in missing("model runs/a\nprivacy ε 3 of 3", printed)  # in another order


def test_blocks_are_read_as_they_are_meant():
    page = (
        "<!-- not run: no network -->\n```sh\npip install .\n```\n```sh\na --steps 20\n```\n"
        "```text\nb\n```\n<!-- here: --steps 2 -->\n```sh\na --steps 20\n```\n"
    )
    first, second, third = steps(page)
    assert (first.run, second.run, second.shown) == (False, True, ["b\n"])
    assert (second.typed(), third.typed()) == ("a --steps 20\n", "a --steps 2\n")
    with pytest.raises(AssertionError, match="not in the block"):
        Step("sh", "a\n", "here: --steps 2").typed()


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


def test_a_walk_fails_where_a_command_does(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse\n```\n```sh\necho 1\n```\n```text\n2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        walk(page, tmp_path)


def test_a_walk_fails_where_something_else_is_printed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('one 1')\n```\n```text\ntwo 1\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="two 1"):
        walk(page, tmp_path)
