"""Rooms that the core does not need: in a copy without them it imports, plans and trains."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = (
    "privacy",
    "preference",
    "strategies",
    "server",
    "client",
    "sims",
    "reporting",
    "murmuration",
)
SATELLITES = ("alignment", "audits", "deploy", "ranking", "research", "surveying")
PROGRAM = """
import murmuration as mm
rows = [
    {"user_id": f"u{n % 30}", "prompt": "p", "chosen": f"a {n}", "rejected": "b c"}
    for n in range(90)
]
run = mm.train(rows, epsilon=3, delta=1e-3, users=30, rounds=2, cohort=10, out="run")
assert run.result["rounds"] == 2
assert mm.plan(epsilon=3, delta=1e-5, rounds=9, cohort=50, users=480)["noise_multiplier"] > 0
"""


def copied(folder, without):
    """The package without some of its rooms."""
    ours = shutil.ignore_patterns("__pycache__", *CORE, "cli", *SATELLITES)
    shutil.copytree(ROOT / "murmuration", folder / "murmuration", ignore=ours)
    for room in {*CORE, "cli", *SATELLITES} - {*without}:
        unread = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / room, folder / "murmuration" / room, ignore=unread)


@pytest.mark.parametrize(
    "without", [SATELLITES, *((room,) for room in SATELLITES)], ids="+".join
)  # fmt: skip
def test_the_core_imports_and_trains_without(without, tmp_path):
    copied(tmp_path, without)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
