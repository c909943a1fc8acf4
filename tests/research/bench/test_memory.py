"""Memory is measured on runs of the stated size, each in a process of its own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.research.bench.memory import QUICK, measure_memory
from murmuration.research.bench.setting import Setting
from murmuration.research.bench.synthetic_users import texts_of_each

TINY = Setting(users=30, cohort=10, dimension=8)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_row():
    row = measure_memory(TINY, rounds=2)
    assert row["users"] == 30
    assert 50 < row["own_mib"] < row["peak_mib"]  # an interpreter with torch


@pytest.mark.slow
def test_a_row_of_texts():
    row = measure_memory(replace(QUICK, users=30), rounds=1)
    assert (row["users"], row["texts"]) == (30, int(texts_of_each(30).sum()))
    assert row["read_seconds"] > 0 and 0 < row["before_seconds"] < row["seconds"]
    assert 50 < row["own_mib"] < row["peak_mib"]


def test_a_run_that_fails_says_why():
    with pytest.raises(RuntimeError, match="--cohort"):
        measure_memory(replace(TINY, cohort=10**6), rounds=2)


#: In a process of its own: what other tests leave behind may be freed at any moment.
COUNTED = """
import sys
import numpy as np
from murmuration.research.bench.memory import OwnMemory
with OwnMemory() as before:
    pass
with OwnMemory() as mapped:
    assert np.memmap(sys.argv[1], np.uint8, "r").sum() == 0
with OwnMemory() as owned:
    own = np.ones(80 * 2**20, np.uint8)
assert own.sum() == 80 * 2**20
print(mapped.most_mib - before.most_mib, owned.most_mib - before.most_mib)
"""


@pytest.mark.slow
def test_what_is_mapped_is_not_the_processs_own(tmp_path):
    path = tmp_path / "numbers"
    with path.open("wb") as file:
        file.truncate(80 * 2**20)
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(path)],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True,
    )  # fmt: skip
    mapped, owned = map(float, done.stdout.split())
    assert mapped < 40
    assert owned > 60


LIMITED = """
import resource
from murmuration.research.bench.memory import main
from murmuration.research.bench.setting import Setting
resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))
main(Setting(users=100_000, cohort=1000, dimension=385), 2)
"""


@pytest.mark.slow
def test_a_hundred_thousand_users_do_with_two_gibibytes():
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"users": 100000' in done.stdout
