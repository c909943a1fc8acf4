"""examples/: each runs as a user would run it, in a small size."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from deployment import free_port

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.accountant import epsilon
from murmuration.privacy.accounting.ledger import read_account
from murmuration.privacy.accounting.mixture import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(tmp_path):
    """Runs an example in an empty folder, with a `murmuration` command; what it printed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "murmuration"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m murmuration "$@"\n')
    command.chmod(0o755)

    def run_example(name: str, *options: str, **variables: str) -> str:
        runner = sys.executable if name.endswith(".py") else "bash"
        environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **variables,
        }
        done = subprocess.run(
            [runner, str(EXAMPLES / name), *options],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_example


def test_own_data_to_reward(run, crowd, crowd_test, tmp_path):
    small = ("--epsilon", "8", "--cohort", "20", "--rounds", "3", "--out", "out")
    told = run("own_data_to_reward.py", crowd, crowd_test, *small)
    spent = re.search(r"spent: epsilon ([\d.]+) at delta 1e-05", told)
    assert spent and 7 < float(spent[1]) <= 8
    model = RewardModel.load(tmp_path / "out" / "model")
    answer = "Put it into your emergency fund first."
    assert f"{model.score('A bonus came. What now?', answer):+.3f}  {answer}" in told


def test_flower_accountant(run, tmp_path):
    """Each round of Flower's own strategy is a line of our ledger."""
    told = run("flower_accountant.py", "--rounds", "5", "--out", "out/accounted")
    account, _ = read_account(tmp_path / "out" / "accounted" / "ledger.jsonl")
    assert account.spent == {PoissonGaussian(1.0, 4.0): 5}
    cost = epsilon(account.spent.items(), adjacency=Adjacency.ADD_REMOVE, delta=1e-5)
    assert f"epsilon {cost:.3f}" in told


def test_own_server_app(run, tmp_path):
    told = run("own_server_app.py", "--rounds", "3", "--out", "out/app")
    account, _ = read_account(tmp_path / "out" / "app" / "ledger.jsonl")
    assert account.spent.total() == 3
    assert "ε = 3" in told
    model = RewardModel.load(tmp_path / "out" / "app" / "model")
    assert (model.theta_D != 0).any()
    assert told.splitlines()[-1].startswith(
        f"{model.score('A bonus came. What now?', 'Book the trip, you only live once!'):+.3f}"
    )


def test_trl_policy(run, language_model, tmp_path):
    """The reward pays for length alone, which 8 steps can learn: it rises."""
    pytest.importorskip("trl")
    theta_D = [0.0] * 64 + [1.0]
    RewardModel(theta_D, HashingFeatures(dimension=65)).save(tmp_path / "reward")
    printed = run("trl_policy.py", str(tmp_path / "reward"), "--steps", "8")
    before, after = re.findall(r"([+-][\d.]+) (?:before|after)", printed)
    assert float(after) > float(before)


@pytest.mark.slow
def test_ray_sweep(run, crowd, crowd_test, tmp_path):
    small = ("--data", crowd, "--test", crowd_test, "--rounds", "2", "--cohort", "20")
    told = run("ray_sweep.sh", "out", *small, "--seeds", "1")
    for strategy in ("uls", "aup", "group"):
        assert told.count(f" {strategy} ") == 2


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_deployed_clients(run):
    ports = {name: str(free_port()) for name in ("LINK_PORT", "ALICE_PORT", "BOB_PORT")}
    told = run("deployed_clients.sh", "out", **ports)
    assert re.search(r"[+-]\d\.\d{3}  Spend little\.", told)
