"""A disk that is full from some step of a deployed run on: one line, every charge, and on again.

The run's folder lies on a small disk of its own. At a step of writing there the rest of the disk is
filled, and it stays full until the run has ended.
"""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.usefixtures("quick_runs")

ROUNDS, BUDGET = 3, 4.0
#: Parts of names that are drawn anew each time.
DRAWN = re.compile(r"[0-9a-f]{8}")
#: Steps that are tried in the usual suite, too.
FEW = ("run/config.json", "run/checkpoint/state.safetensors", "run/result.json")


class Deployed(LocalGrid):
    """Nodes that know of no others."""

    def pull_messages(self, message_ids):
        for reply in super().pull_messages(message_ids):
            if reply.metadata.message_type == "query.registry":
                reply.content.config_records["registry"]["places"] = 0
            yield reply


class Disk:
    """A small disk; ``steps`` are the names of files that were opened there to be written to."""

    def __init__(self, folder):
        self.folder, self.steps, self.full_at = folder, [], None
        self._filling = False

    def hook(self, event, args):
        if event != "open" or self._filling or not str(args[0]).startswith(f"{self.folder}/"):
            return
        if not (args[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        name = DRAWN.sub("", str(Path(args[0]).relative_to(self.folder)))
        self.steps.append(re.sub(r"/\.([^/]+)\.(?=$|/)", r"/\1", name))
        if len(self.steps) - 1 == self.full_at:
            self.fill()

    def fill(self):
        self._filling = True
        with (self.folder / "filler").open("wb", buffering=0) as file:
            for size in (2**16, 2**12):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        self._filling = False

    def free(self):
        self.full_at = None
        (self.folder / "filler").unlink(missing_ok=True)


_disks = []
sys.addaudithook(lambda event, args: _disks and _disks[-1].hook(event, args))


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no disk may be mounted here")
    _disks.append(Disk(folder))
    try:
        yield _disks[-1]
    finally:
        _disks.pop()
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def config(disk, crowd, crowd_test):
    return RunConfig(
        data=crowd, test=crowd_test, epsilon=BUDGET, delta=1e-3, rounds=ROUNDS, cohort=25,
        users=50, timeout=20.0, out=str(disk.folder / "run"),
    )  # fmt: skip


def run(config):
    return run_training(config, Deployed(client_app, 4, config.to_run_config()))


def charges_of(config):
    ledger = Path(config.out) / "ledger.jsonl"
    begun = ledger.exists() and ledger.stat().st_size  # or nothing was ever on it
    return read_charges(ledger) if begun else []


def full_at(disk, config, step):
    """A run on a disk that is full from a step on, and the one that goes on with it."""
    disk.steps, disk.full_at = [], step
    message = ""
    try:
        run(config)
    except InputError as error:
        message = str(error)
        assert "\n" not in message
        assert "No space left on device" in message, message
        assert not (Path(config.out) / "result.json").exists()
    before = charges_of(config)
    disk.free()
    again = replace(config, resume=(Path(config.out) / "config.json").exists())
    result = run(again)
    after = charges_of(config)
    assert after[: len(before)] == before
    assert result["epsilon"] <= BUDGET
    assert result["rounds"] == ROUNDS or result["stopped"] is not None
    subprocess.run(["rm", "-r", config.out], check=True)
    return message


def places(disk, config):
    """All steps of a whole run: the first and the last at each file."""
    result = run(config)
    assert result["rounds"] == ROUNDS
    steps = list(disk.steps)
    subprocess.run(["rm", "-r", config.out], check=True)
    last = {name: place for place, name in enumerate(steps)}
    return {(name, p) for name in last for p in (steps.index(name), last[name])}


def test_a_full_disk_ends_a_deployed_run_in_one_line_and_it_goes_on(disk, config):
    steps = places(disk, config)
    for wanted in FEW:
        place = min(p for name, p in steps if name == wanted)
        assert full_at(disk, config, place), wanted


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_at_every_step(disk, config):
    steps = places(disk, config)
    assert len(steps) > 12
    messages = {
        name: full_at(disk, config, place) for name, place in sorted(steps, key=lambda s: s[1])
    }
    assert sum(map(bool, messages.values())) > len(messages) / 2  # others fit into what was open
