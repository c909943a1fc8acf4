"""Rooms that the core does not need: in a copy without one it imports and plans, and without all of
them it trains, too."""

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
    "murmuration",
)
SATELLITES = (
    *("alignment", "audits", "deploy", "ranking", "reporting", "research", "surveying", "tuning"),
)
#: What ``murmuration`` has of a room, and not without it.
NAMES = {
    "alignment": ("Guards", "Responses", "Sampling", "Steps", "Supervised", "align", "respond",
                  "reward_function", "winrate"),
    "ranking": ("Ranking", "rank"),
    "surveying": ("Survey", "survey"),
    "tuning": ("tune",),
}  # fmt: skip
PROGRAM = """
import sys
import murmuration as mm
assert not [name for name in mm.__all__ if not hasattr(mm, name)]
assert not [name for name in sys.argv[1:] if name in mm.__all__ or hasattr(mm, name)]
assert mm.plan(epsilon=3, delta=1e-5, rounds=9, cohort=50, users=480)["noise_multiplier"] > 0
"""
TRAINING = """
rows = [
    {"user_id": f"u{n % 30}", "prompt": "p", "chosen": f"a {n}", "rejected": "b c"}
    for n in range(90)
]
run = mm.train(rows, epsilon=3, delta=1e-3, users=30, rounds=2, cohort=10, out="run")
assert run.result["rounds"] == 2
own = {"config.json", "ledger.jsonl", "ledger.jsonl.head", "metrics.jsonl", "model", "result.json"}
assert own <= {path.name for path in run.path.iterdir()}
"""


def copied(folder, without):
    """The package without some of its rooms."""
    half_written = "*.pyc.*"  # by another process
    ours = shutil.ignore_patterns(half_written, *CORE, "cli", *SATELLITES)
    shutil.copytree(ROOT / "murmuration", folder / "murmuration", ignore=ours)
    for room in {*CORE, "cli", *SATELLITES} - {*without}:
        whole = shutil.ignore_patterns(half_written)
        shutil.copytree(ROOT / room, folder / "murmuration" / room, ignore=whole)


@pytest.mark.parametrize(
    "without", [pytest.param(SATELLITES, id="all"), *((room,) for room in SATELLITES)], ids="+".join
)
def test_the_core_imports_and_trains_without(without, tmp_path):
    copied(tmp_path, without)
    program = PROGRAM + (TRAINING if without == SATELLITES else "")
    gone = [name for room in without for name in NAMES.get(room, ())]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *gone], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
