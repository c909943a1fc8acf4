"""``murmuration personalize``: options, and what is printed."""

import json

import numpy as np
import pytest

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel
from murmuration.sims.population.population import Population


@pytest.fixture
def model(tmp_path):
    theta_D = np.random.default_rng(0).normal(size=33)
    RewardModel(theta_D, HashingFeatures(dimension=33)).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def data(tmp_path):
    rows = Population(users=60, median_judgements=6).rows("train")
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "rows.jsonl"


def test_figures_are_printed_and_written(cli, model, data, tmp_path):
    options = ("--data", data, "--epsilon", 100, "--step", 0.3)
    code, stdout, _ = cli("personalize", model, *options, "--out", tmp_path / "a")
    assert code == 0
    assert "with the crowd's reward" in stdout and "local steps of 0.3" in stdout
    code, stdout, _ = cli("personalize", model, *options, "--out", tmp_path / "b", "--json")
    assert json.loads(stdout) == json.loads((tmp_path / "b" / "personal.json").read_text())
    code, stdout, _ = cli("ledger", tmp_path / "a")
    assert code == 0 and "100" in stdout


def test_what_is_missing_is_one_line(cli, model):
    code, stdout, lines = cli("personalize", model)
    assert (code, stdout) == (2, "")
    assert "personalize needs --data, --epsilon and --out" in " ".join(lines)
