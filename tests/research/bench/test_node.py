"""The benchmark measures what it says, on data of any size; no figure is checked for speed."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from murmuration.cli.main import app
from murmuration.client import store
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear.examples import pair_examples
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.bench import node as bench
from murmuration.research.bench.setting import Setting
from murmuration.research.commands import bench as bench_command
from murmuration.strategies import uls
from murmuration.strategies.protocol import messages

TINY = Setting(users=40, cohort=20, dimension=16)

FIGURES = (
    "users_per_second",
    "node_users_per_second",
    "limit_users_per_second",
    "node_share_of_limit",
    "overhead_ms",
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A row, and what was left in the folder it was measured in."""
    folder, before = tmp_path_factory.mktemp("bench"), Path.cwd()
    os.chdir(folder)
    try:
        return bench.measure(TINY, repetitions=5), list(folder.iterdir())
    finally:
        os.chdir(before)


def test_a_row(measured):
    row, left = measured
    expected = {"d": 16, "cohort": 20, "users": 40, "judgements": 400, "runtime": "local"}
    assert {name: row[name] for name in expected} == expected
    assert row["repetitions"] == 5
    assert all(math.isfinite(row[name]) and row[name] > 0 for name in FIGURES)
    share = row["node_users_per_second"] / row["limit_users_per_second"]
    assert row["node_share_of_limit"] == pytest.approx(share)
    assert not left, "the run's folder was left behind"


def test_the_limit_computes_what_the_node_computes():
    judgements = store.load("murmuration.research.bench.synthetic_users:few", "", "refuse")
    examples = pair_examples(judgements, HashingFeatures(dimension=16))
    limit = bench.limit(examples, 20, clip=0.05)
    parameters = {"round": 1, "group-size": 16, "clip-norm": 0.05}
    work = messages.TrainRequest(
        {"theta": np.full(16, 0.01, np.float32)}, parameters, np.arange(20)
    )
    node = uls.client_update(examples, work, np.arange(20, dtype=np.uint64), Randomness(0))["sum"]
    torch.testing.assert_close(limit(), torch.from_numpy(node).float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [["--json", "--quick"], []])
def test_the_command(measured, monkeypatch, options):
    asked = []

    def measure(setting, repetitions):
        asked.append((setting, repetitions))
        return measured[0]

    monkeypatch.setattr(bench_command, "measure", measure)
    result = CliRunner().invoke(app, ["bench", "users", *options])
    assert result.exit_code == 0, result.output
    assert [setting for setting, _ in asked] == list(bench.SETTINGS)
    assert all(repetitions >= 5 for _, repetitions in asked)
    if "--json" not in options:
        assert "users a second" in result.stdout
        return
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["name"] == "users" and found["rows"] == [measured[0]] * len(bench.SETTINGS)
    assert found["machine"]["cores"] >= 1 and found["machine"]["versions"]["torch"]
    assert found["date"].count("-") == 2
