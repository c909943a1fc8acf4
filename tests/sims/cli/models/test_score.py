"""``murmuration score``: rewards of answers, from a saved model."""

import json

import numpy as np
import pytest

from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel


@pytest.fixture
def model(tmp_path):
    features = HashingFeatures(dimension=17)
    theta_D = np.random.default_rng(0).normal(size=17)
    RewardModel(theta_D, features).save(tmp_path / "model")
    return tmp_path / "model"


def test_json(cli, model):
    code, stdout, lines = cli(
        "score", model, "--prompt", "What now?", "--response", "Save it.", "--response", "Spend!",
        "--json",
    )  # fmt: skip
    assert (code, lines) == (0, [])
    expected = RewardModel.load(model).score(["What now?"] * 2, ["Save it.", "Spend!"])
    assert json.loads(stdout)["scores"] == pytest.approx(expected.tolist())


def test_table_has_the_best_first(cli, model):
    answers = ["Save it.", "Spend!", "[bold]wait[/bold]"]
    _, stdout, _ = cli(
        "score", model, "--prompt", "?", *[p for a in answers for p in ("--response", a)]
    )
    scores = RewardModel.load(model).score(["?"] * 3, answers)
    shown = [line for line in stdout.splitlines() if line.startswith(("+", "-"))]
    best = [answers[i] for i in np.argsort(-scores)]
    assert [line.split(maxsplit=1)[1].strip() for line in shown] == best


def test_brackets_are_no_markup(cli, model):
    code, stdout, _ = cli("score", model, "--prompt", "?", "--response", "[/INST] no [/b]")
    assert code == 0
    assert "[/INST] no [/b]" in stdout


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_no_model(cli, tmp_path, folder):
    (tmp_path / "empty").mkdir()
    code, stdout, lines = cli("score", tmp_path / folder, "--prompt", "a", "--response", "b")
    assert (code, stdout, len(lines)) == (2, "", 1)
    assert str(tmp_path / folder) in lines[0]
