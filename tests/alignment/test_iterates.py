"""An ensemble of a run's last parameters: whose they are, and what their disagreement takes off."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from murmuration.alignment.iterates import Disagreement, Iterates, files_of
from murmuration.alignment.rewards import AnswerReward, GuardedReward, Guards
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel

pytest.importorskip("peft")
pytestmark = pytest.mark.usefixtures("quick_runs")

PROMPTS = ["loan ?", "save it ?"]
ANSWERS = [["save it", "buy today", "wait"], ["keep the old one", "bet", "save it now"]]
FLAT = [text for row in ANSWERS for text in row]
ASKED = [prompt for prompt in PROMPTS for _ in range(3)]
PLACE_R = np.repeat([0, 1], 3)


@pytest.fixture
def run(cli, crowd, language_model, tmp_path):
    """A function: a run that kept its last three iterates."""

    def make(train="lora", averaging=0, **more):
        out = tmp_path / f"run-{train}"
        code, _, lines = cli(
            *("run", "--data", crowd, "--base", language_model("llama"), "--train", train),
            *("--rounds", 5, "--cohort", 10, "--seed", 1, "--epsilon", 3, "--delta", 1e-3),
            *("--keep-last", 3, "--averaging", averaging, "--out", out),
        )
        assert code == 0, lines
        return out

    return make


@pytest.mark.parametrize("train", ["lora", "head"])
def test_the_last_iterate_is_the_model_and_the_others_are_not(run, train):
    out = run(train)
    files = files_of(out / "model")
    assert [file.name for file in files] == [f"round-{n:06d}.safetensors" for n in (3, 4, 5)]
    found_IR = Iterates.beside(out / "model")(ASKED, FLAT)
    model = RewardModel.load(out / "model").score(ASKED, FLAT)
    apart = found_IR - found_IR[:, :1]
    np.testing.assert_allclose(apart[2], model - model[0], rtol=1e-3, atol=1e-4)
    assert np.abs(apart[0] - apart[2]).max() > 1e-3


def test_iterates_are_no_further_charge(run, cli, crowd, language_model, tmp_path):
    kept = run()
    code = cli(
        *("run", "--data", crowd, "--base", language_model("llama"), "--rounds", 5),
        *("--cohort", 10, "--seed", 1, "--epsilon", 3, "--delta", 1e-3, "--averaging", 0),
        *("--out", tmp_path / "plain"),
    )[0]
    assert code == 0
    one, other = (json.loads((p / "result.json").read_text()) for p in (kept, tmp_path / "plain"))
    assert one["epsilon"] == other["epsilon"]
    assert not (tmp_path / "plain" / "iterates").exists()


def test_pessimism_takes_off_standard_deviations_over_the_reference(run):
    reward = AnswerReward.load(run() / "model", iterates=True)
    free, careful = (
        GuardedReward(reward, Guards(clip=False, pessimism=gamma), PROMPTS, ANSWERS)
        for gamma in (0.0, 2.0)
    )
    found_IR = reward.iterates(ASKED, FLAT)
    means_IR = found_IR.reshape(3, 2, 3).mean(2)[:, PLACE_R]
    wanted = 2.0 * (found_IR - means_IR).std(axis=0, ddof=1)
    assert wanted.max() > 1e-3
    np.testing.assert_allclose(
        free(ASKED, FLAT) - careful(ASKED, FLAT), wanted, rtol=1e-4, atol=1e-6
    )


def test_what_cannot_be_read_counts_as_the_most_that_the_reference_has(run):
    iterates = Iterates.beside(run() / "model")
    found = Disagreement(iterates, ASKED, FLAT, PLACE_R)
    usual = found(ASKED, FLAT, PLACE_R)
    assert found(PROMPTS[:1], ["save " * 400], np.array([0]))[0] == usual.max()


def test_without_iterates_or_with_others_it_is_refused(run, tmp_path):
    out = run()
    file = files_of(out / "model")[0]
    save_file({"theta_D": load_file(file)["theta_D"][:-1]}, file)
    with pytest.raises(InputError, match="is of another model"):
        Iterates.beside(out / "model")
    file.write_bytes(b"no")
    with pytest.raises(InputError, match="cannot be read"):
        Iterates.beside(out / "model")
    shutil.rmtree(out / "iterates")
    with pytest.raises(InputError, match="--keep-last"):
        AnswerReward.load(out / "model", iterates=True)
