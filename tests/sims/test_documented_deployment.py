"""The page on deploying as an operator would follow it: every command, in a fresh folder."""

import json
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from deployment import free_ports

from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.ledger import read_charges

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "deploying.md"
#: By this variable processes of a walk are known again.
_MARK = "MURMURATION_TEST_WALK"


def blocks(page: str) -> list[str]:
    """The shell commands that a page prints, block by block."""
    return re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def exits_with(block: str) -> int:
    """What the last command of a block exits with, as the block says; 0 if it says nothing."""
    said = re.search(r"# exits with (\d+)", block)
    return int(said[1]) if said else 0


def with_ports(block: str) -> str:
    """The commands with free ports, by the option that the page names."""
    found = []
    for line in block.splitlines():
        command, mark, comment = line.partition("    #")
        if re.match(r"murmuration deploy (init|client) ", command):
            background = command.rstrip().endswith("&")
            command = re.sub(r" --port \d+", "", command.rstrip(" &"))
            port = _PORTS.setdefault(command.split("--data")[0], free_ports(1)[0])
            command += f" --port {port}" + (" &" if background else "")
        found.append(command + mark + comment)
    return "\n".join(found) + "\n"


_PORTS: dict[str, int] = {}


def script(page: str) -> str:
    """All blocks in one shell, which ends at the first command that does not do as is said."""
    parts = []
    for number, block in enumerate(blocks(page)):
        expected = exits_with(block)
        parts.append("set -e" if expected == 0 else "set +e")
        parts.append(with_ports(block).rstrip())
        parts.append(f'code=$?; echo "block {number} exits with $code"')
        parts.append(f"[ $code = {expected} ] || exit 97")
    return "\n".join(parts) + "\n"


def test_what_is_walked_is_what_is_printed():
    page = PAGE.read_text(encoding="utf-8")
    assert len(blocks(page)) >= 3
    walked = script(page)
    for command in ("init", "client", "doctor", "run"):
        assert f"murmuration deploy {command} site" in walked
    assert "register.sh" in walked
    assert re.search(r"^murmuration deploy run .* # exits with 2", page, re.MULTILINE)
    # Nothing but ports is other than on the page.
    printed = "".join(blocks(page))
    kept = [line for line in walked.splitlines() if line in printed.splitlines()]
    assert len(kept) > len(printed.splitlines()) - 6
    assert "--port" in re.sub(r"```sh.*?```", "", page, flags=re.DOTALL)


@pytest.mark.commands
@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_page_as_it_is_printed(tmp_path):
    mark = secrets.token_hex(8)
    programs, place = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    place.mkdir()
    shim = programs / "murmuration"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m murmuration.cli.main "$@"\n')
    shim.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(place),
        _MARK: mark,
    }
    walk = tmp_path / "walk.sh"
    walk.write_text(script(PAGE.read_text(encoding="utf-8")))
    with (tmp_path / "out").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", str(walk)],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(1000)
            psutil.wait_procs(_walking(mark), timeout=60)
            left = _walking(mark)
        finally:
            for process in _walking(mark):
                process.kill()
    told = (tmp_path / "out").read_text(errors="replace")
    assert code == 0, told
    assert not left, left

    # Something was learnt: everybody answered in every round, and the ledger agrees.
    first = place / "runs" / "first"
    result = json.loads((first / "result.json").read_text())
    rounds = result["rounds_planned"]
    assert (result["rounds"], result["stopped"]) == (rounds, None)
    assert 0.0 < result["epsilon"] <= 3.0
    charges = [c for c in read_charges(first / "ledger.jsonl") if c.round > 0]
    assert [charge.round for charge in charges] == list(range(1, rounds + 1))
    assert np.abs(RewardModel.load(first / "model").theta_D).max() > 0
    private = (first / "private" / "log.jsonl").read_text()
    assert "left out" not in private
    owners = {}
    for name in ("alice", "bob"):
        text = (place / "site" / "clients" / f"{name}-state" / "own-ledger.jsonl").read_text()
        owners[name] = [json.loads(line) for line in text.splitlines()]
        assert sum(line.get("answered") == "train" for line in owners[name]) == rounds
        assert sum("plan" in line for line in owners[name]) == 1
    # While it ran, it was told.
    for round_ in range(1, rounds + 1):
        line = (
            rf"round {round_} of {rounds}, epsilon [\d.]+, held-out [\d.]+ %, 2 of 2 nodes online"
        )
        assert re.search(line, told)
    assert "the plan was shown to 2 nodes: no owner's policy refuses it" in told

    # The second run was refused by what the first has cost, before any coin.
    second = place / "runs" / "second"
    assert "refused by the owners' policies" in told
    assert "by the rules max_epsilon" in told
    assert json.loads((second / "aborted.json").read_text())["because"] in told
    assert read_charges(second / "ledger.jsonl") == []
    assert not (second / "result.json").exists()
    for lines in owners.values():
        assert "(max_epsilon)" in lines[-1]["because"]


def _walking(mark: str) -> list[psutil.Process]:
    """Processes that were started in a walk, whatever session they are in now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
