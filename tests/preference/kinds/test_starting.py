"""Where a linear reward begins: its θ, what it stands on, and what is refused in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import whole_start
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.kinds.starting import described_features, with_start
from murmuration.preference.reward import RewardModel

PLAIN = HashingFeatures(33)
THETA_D = np.random.default_rng(0).normal(size=33).astype(np.float32)
PROMPTS, RESPONSES = ["p"] * 3, ["save it", "spend it all, all of it", "wait and compare"]


def begun(start, plain=PLAIN):
    return with_start(base_of(described_features(plain.to_config(), start)), start)


@pytest.fixture
def saved(tmp_path):
    """A function: the folder of a saved reward."""

    def make(theta_D=THETA_D, plain=PLAIN):
        RewardModel(theta_D, plain).save(tmp_path / "start")
        return str(tmp_path / "start")

    return make


def scores(model):
    return model.scores([model.start_D], PROMPTS, RESPONSES)[0]


def test_without_a_start_it_is_zero_and_features_are_as_they_were():
    model = with_start(base_of(PLAIN.to_config()), "")
    assert model.to_config() == PLAIN.to_config() and not model.start_D.any()


def test_length_prefers_the_longer_response_and_nothing_else():
    model = begun("length")
    assert model.to_config() == PLAIN.to_config()
    assert np.flatnonzero(model.start_D).tolist() == [32]
    assert scores(model)[1] > scores(model)[2] > scores(model)[0]


def test_a_reward_on_the_same_features_is_its_theta(saved):
    model = begun(saved())
    assert model.to_config() == PLAIN.to_config()
    assert np.array_equal(model.start_D, THETA_D)


def test_a_reward_on_other_features_is_one_feature_more(saved):
    other = HashingFeatures(17)
    model = begun(saved(), plain=other)
    assert model.dimension == 18 and np.flatnonzero(model.start_D).tolist() == [0]
    by_hand = 4 * np.arcsinh(RewardModel(THETA_D, PLAIN).score(PROMPTS, RESPONSES) / 4)
    np.testing.assert_allclose(scores(model), by_hand, rtol=1e-5)


def test_where_no_step_was_taken_the_start_is_what_is_saved(saved, tmp_path):
    model = begun(saved())
    model.save(tmp_path / "new", model.start_D, "btl")
    again = RewardModel.load(tmp_path / "new")
    assert again.features.to_config() == PLAIN.to_config()
    assert np.array_equal(again.theta_D, THETA_D)


def test_a_saved_reward_with_a_scorer_is_loaded_wherever_it_is(saved, tmp_path):
    model = begun(saved(), HashingFeatures(17))
    model.save(tmp_path / "new", model.start_D, "btl")
    before = scores(model)
    (tmp_path / "start").rename(tmp_path / "gone")
    np.testing.assert_allclose(
        RewardModel.load(tmp_path / "new").score(PROMPTS, RESPONSES), before, atol=1e-5
    )


@pytest.fixture
def classifier(language_model, tmp_path):
    """The folder of a sequence classifier with one score, as transformers saves it."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder, made = language_model("bert"), tmp_path / "models" / "classifier"
    network = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    with torch.no_grad():
        network.classifier.weight.normal_(generator=torch.Generator().manual_seed(0))
    network.save_pretrained(made)
    AutoTokenizer.from_pretrained(folder).save_pretrained(made)
    return made


def test_a_sequence_classifier_is_one_feature_more_and_what_is_saved_finds_it(classifier, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = begun(str(classifier))
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    network = AutoModelForSequenceClassification.from_pretrained(classifier).eval()
    with torch.no_grad():
        by_hand = [
            float(
                network(
                    **tokenizer(prompt, said, return_tensors="pt", return_token_type_ids=True)
                ).logits[0, 0]
            )
            for prompt, said in zip(PROMPTS, RESPONSES, strict=True)
        ]
    assert np.std(by_hand) > 0
    np.testing.assert_allclose(scores(model), 4 * np.arcsinh(np.array(by_hand) / 4), atol=1e-4)
    before = scores(model)
    model.save(tmp_path / "run" / "model", model.start_D, "btl")
    assert str(tmp_path).encode() not in (tmp_path / "run" / "model" / "config.json").read_bytes()
    again = RewardModel.load(tmp_path / "run" / "model")
    np.testing.assert_allclose(again.score(PROMPTS, RESPONSES), before, atol=1e-4)
    (classifier / "config.json").write_text(
        (classifier / "config.json").read_text().replace('"gelu"', '"relu"')
    )
    with pytest.raises(InputError, match="another model is here"):
        RewardModel.load(tmp_path / "run" / "model")


def damaged(folder, numbers=THETA_D, **config):
    path = Path(folder)
    (path / "model.safetensors").write_bytes(save({"theta_D": np.asarray(numbers, np.float32)}))
    about = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**about, **config}))
    return folder


@pytest.mark.parametrize(
    ("numbers", "config"),
    [
        (np.full(33, np.nan), {}),
        (np.ones(32), {}),
        (np.ones(32), {"dimension": 32}),
        (THETA_D, {"format": "another-9"}),
        (THETA_D, {"features": {"kind": "of another package"}}),
        (THETA_D, {"features": {**PLAIN.to_config(), "dimension": 32}}),
        (THETA_D, {"model": "no such model"}),
    ],
)
def test_a_damaged_start_is_refused_in_one_line(saved, numbers, config):
    with pytest.raises(InputError, match=r"^--start ") as refused:
        begun(damaged(saved(), numbers, **config))
    assert "\n" not in str(refused.value)


class Code:
    """What runs where it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("code was run",))


def test_a_pickle_is_never_run(saved, tmp_path, language_model):
    import pickle
    import shutil

    start = Path(saved())
    (start / "model.safetensors").write_bytes(pickle.dumps(Code()))
    with pytest.raises(InputError, match=r"^--start "):
        begun(str(start))
    classifier = tmp_path / "classifier"
    shutil.copytree(language_model("bert"), classifier)
    for weights in classifier.glob("*.safetensors"):
        weights.unlink()
    (classifier / "pytorch_model.bin").write_bytes(pickle.dumps(Code()))
    with pytest.raises(InputError, match=r"^--start ") as refused:
        begun(str(classifier))
    assert "\n" not in str(refused.value)


def test_what_scores_nothing_is_refused(tmp_path, language_model):
    with pytest.raises(InputError, match=r"^--start .*without a trained head"):
        begun(language_model("bert"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"^--start .*config.json"):
        begun(str(tmp_path / "empty"))


def test_a_start_is_length_or_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    assert whole_start("length") == "length"
    assert whole_start("mine") == str(tmp_path / "mine")
    with pytest.raises(InputError, match="--start owner/name: there is no such folder"):
        whole_start("owner/name")


def test_a_start_that_no_step_would_move_is_refused(saved):
    large = saved(np.full(33, 1e5, dtype=np.float32))
    assert begun(large).start_D.max() == 1e5
    with pytest.raises(InputError, match="would not move it"):
        begun(damaged(large, np.full(33, -1e10)))


def test_length_that_is_not_counted_is_no_start():
    with pytest.raises(InputError, match="--start length"):
        begun("length", plain=HashingFeatures(33, length="none"))
