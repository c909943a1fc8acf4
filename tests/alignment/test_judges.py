"""Judges: a truth, a reward, and which one a name means."""

import json

import numpy as np
import pytest
from cards import RESULT
from language_models import saved_model

from murmuration.alignment.comparisons.win_rate import wilson, wins, worth
from murmuration.alignment.endpoints.judge import EndpointJudge
from murmuration.alignment.judges import PopulationJudge, RewardJudge, judge_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.language.checkpoint import weights_digest
from murmuration.preference.reward import RewardModel
from murmuration.sims.population.population import Population


@pytest.fixture
def reward(tmp_path):
    folder = tmp_path / "reward"
    features = HashingFeatures(dimension=33)
    RewardModel(np.random.default_rng(0).normal(size=33), features).save(folder)
    return folder


def test_the_population_judges_by_its_truth():
    exchanges = list(Population().texts("test", 100))
    prompts, first, second = ([row[part] for row in exchanges] for part in range(3))
    second = ["mumble", first[1], *second[2:]]
    judge = PopulationJudge()
    won = judge.preferred(prompts, first, second)
    assert won[0] == 1  # what cannot be read loses
    assert {0.0, 0.5, 1.0} == set(won)
    assert won.mean() == wilson(wins(worth(prompts, first), worth(prompts, second))).value
    assert np.array_equal(judge.preferred(prompts, second, first), 1 - won)
    figures = judge.figures(prompts, second)
    assert figures["unreadable"].value == 0.01
    assert figures["why_not"] == {"breaks off": 1}


def test_the_population_judges_its_own_prompts_alone():
    with pytest.raises(InputError, match="--judge population: no prompt of the embedded"):
        PopulationJudge().preferred(["What is love?"], ["a"], ["b"])


def test_a_reward_judges_by_its_scores(reward):
    prompts, judge = ["p"] * 4, judge_of(str(reward))
    assert isinstance(judge, RewardJudge)
    first, second = ["save it", "spend", "same", "x"], ["spend", "save it", "same", ""]
    model = RewardModel.load(reward)
    ahead = model.score(prompts, first) - model.score(prompts, second)
    won = judge.preferred(prompts, first, second)
    assert ahead[0] == -ahead[1] != 0
    assert won.tolist() == [0.5 if x == 0 else float(x > 0) for x in ahead]
    assert won[2] == 0.5
    assert "opinion" in judge.about()["caveats"][0]
    assert judge.figures(prompts, first) == {}


def test_scores_that_are_no_numbers(reward):
    judge = RewardJudge(reward)
    judge._reward.theta_D = np.full(33, np.nan, np.float32)
    with pytest.raises(InputError, match="not a finite number"):
        judge.preferred(["p"], ["one"], ["two"])


def test_a_language_model_of_rewards_judges_too(language_model, tmp_path):
    saved_model(tmp_path / "m", language_model("gpt2"))
    won = RewardJudge(tmp_path / "m").preferred(["what now ?"], ["save it"], ["bet on"])
    scores = RewardModel.load(tmp_path / "m").score(["what now ?"] * 2, ["save it", "bet on"])
    assert scores[0] != scores[1]
    assert won.tolist() == [float(scores[0] > scores[1])]


def test_names_of_judges(tmp_path, language_model, reward):
    assert isinstance(judge_of("population"), PopulationJudge)
    kept = tmp_path / "v"
    assert isinstance(judge_of("https://h/v1", model="m", kept=kept), EndpointJudge)
    for named, more, said in (
        ("https://h/v1", {"model": "m"}, "needs --out"),
        ("https://h/v1", {"kept": kept}, "--judge-model"),
        ("population", {"model": "m"}, "--judge-model is for a --judge behind an address"),
        (str(tmp_path / "none"), {}, "--judge .*none: no such model folder; .* name: population"),
        (language_model("gpt2"), {}, "--judge .*not a reward model"),
    ):
        with pytest.raises(InputError, match=said):
            judge_of(named, **more)
    assert not kept.exists()


def test_a_rewards_own_accuracy_is_told_if_it_is_of_these_weights(reward, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    reward.rename(run / "model")
    result = RESULT | {"heldout_accuracy": 0.625, "weights": weights_digest(run / "model")}
    for weights, is_told in ((result["weights"], True), ("0" * 64, False)):
        (run / "result.json").write_text(json.dumps(result | {"weights": weights}))
        how = RewardJudge(run / "model").about()["how"]
        assert how.endswith("it was right in 62.5%.") is is_told
