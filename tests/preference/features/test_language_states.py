"""Mean states of a frozen language model as features."""

import shutil

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features import language_states
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.features.language_states import EXCHANGES, LanguageStates
from murmuration.preference.features.text_length import length_feature
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.reward import RewardModel

PROMPTS, RESPONSES = ["What now?", "What?", ""], ["Save it.", "Bet on it.", "Buy it today!"]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("layer", [0, 1])
def test_it_is_the_mean_of_states_less_that_of_public_texts(language_model, kind, layer):
    from transformers import AutoModel

    features = LanguageStates(language_model(kind), layer=layer)
    whole = AutoModel.from_pretrained(language_model(kind)).eval()
    blocks = whole.layers if kind == "llama" else whole.h
    if layer:
        del blocks[layer:]
    texts = features._texts

    def mean_D(prompt, response):
        ids = texts.tokenizer(texts.whole([prompt], [response]))["input_ids"]
        with torch.no_grad():
            return whole(torch.tensor(ids)).last_hidden_state[0].mean(0).numpy()

    centre_D = np.mean([mean_D(*exchange) for exchange in EXCHANGES], axis=0)
    phi_RD = features(PROMPTS, RESPONSES)
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        off_D = mean_D(prompt, response) - centre_D
        np.testing.assert_allclose(phi_RD[row, :-1], off_D / np.linalg.norm(off_D), atol=2e-4)
    np.testing.assert_array_equal(phi_RD[:, -1], length_feature(RESPONSES, "bounded", 0.3))
    assert features.dimension == phi_RD.shape[1] == 17


def test_a_texts_features_are_the_same_bits_alone(language_model):
    features = LanguageStates(language_model("llama"))
    together = features(PROMPTS, RESPONSES)
    for text in range(3):
        alone = features(PROMPTS[text : text + 1], RESPONSES[text : text + 1])
        np.testing.assert_array_equal(alone[0], together[text])


def test_each_text_is_computed_once(language_model, computed):
    """Public exchanges, too; in one process and in the next."""
    first = LanguageStates(language_model("llama"))(PROMPTS * 2, RESPONSES * 2)
    assert sum(computed) == 3 + len(EXCHANGES)
    again = LanguageStates(language_model("llama"))(PROMPTS, RESPONSES)
    assert sum(computed) == 3 + len(EXCHANGES)
    np.testing.assert_array_equal(again, first[:3])
    LanguageStates(language_model("llama"), layer=1)(PROMPTS, RESPONSES)
    assert sum(computed) == 2 * (3 + len(EXCHANGES))


@pytest.mark.parametrize("kind", ["language model", "encoder"])
def test_a_saved_reward_neither_finds_what_training_kept_nor_adds_to_it(
    language_model, computed, tmp_path, kind
):
    """Its speed would tell whoever asks which texts it was trained on."""
    features = (
        LanguageStates(language_model("llama"))
        if kind == "language model"
        else feature_map(parse_features(language_model("bert")))
    )
    phi_RD = features(PROMPTS, RESPONSES)
    theta_D = np.ones(features.dimension, dtype=np.float32)
    RewardModel(theta_D, features).save(tmp_path / "m")
    before = {file: file.read_bytes() for file in (tmp_path / "kept").iterdir()}
    assert before
    saved = RewardModel.load(tmp_path / "m")
    for _ in range(2):
        computed.clear()
        scores = saved.score_batch([*PROMPTS, "New?"], [*RESPONSES, "Yes, new."])
        np.testing.assert_allclose(scores[:3], phi_RD @ theta_D, rtol=1e-5)
        assert sum(computed) >= 4
    assert {file: file.read_bytes() for file in (tmp_path / "kept").iterdir()} == before


def test_no_text_is_too_long(language_model):
    features = LanguageStates(language_model("llama"), max_tokens=16)
    phi_RD = features(["What now?"] * 2, ["save " * 100, "save " * 200])
    np.testing.assert_array_equal(phi_RD[0, :-1], phi_RD[1, :-1])
    assert np.isfinite(phi_RD).all()


def test_nothing_and_no_texts(language_model):
    features = LanguageStates(language_model("llama"))
    assert features([], []).shape == (0, 17)
    assert np.isfinite(features([""], [""])).all()


def test_a_saved_model_names_base_and_digest_and_scores(language_model, tmp_path):
    import json

    features = LanguageStates(language_model("llama"), layer=1)
    theta_D = np.random.default_rng(0).standard_normal(17).astype(np.float32)
    RewardModel(theta_D, features).save(tmp_path / "m")
    about = json.loads((tmp_path / "m" / "config.json").read_text())["features"]
    assert about["digest"] == features.digest and about["layer"] == 1
    scores = RewardModel.load(tmp_path / "m", base=language_model("llama")).score_batch(
        PROMPTS, RESPONSES
    )
    np.testing.assert_allclose(scores, features(PROMPTS, RESPONSES) @ theta_D, rtol=1e-5)
    with pytest.raises(InputError, match="SHA-256"):
        RewardModel.load(tmp_path / "m", base=language_model("gpt2"))


def test_a_packaged_model_or_a_file_is_named(language_model, monkeypatch, tmp_path):
    """And read as deep as is known of it."""
    monkeypatch.setattr(language_states, "resolve_base", lambda path: language_model("llama"))
    config = parse_features("smollm2", "none")
    assert (config["kind"], config["layer"], config["length"]) == ("language-states", 18, "none")
    assert parse_features("some.GGUF")["layer"] == 0


def test_what_cannot_be_read(language_model, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        parse_features(str(tmp_path / "model.gguf"))
    with pytest.raises(InputError, match="has 2 layers"):
        LanguageStates(language_model("llama"), layer=3)
    with pytest.raises(InputError, match="at least 8"):
        LanguageStates(language_model("llama"), max_tokens=7)


def test_a_model_that_is_replaced_while_it_is_loaded_is_refused(
    language_model, tmp_path, monkeypatch
):
    """Its states would stand under the digest of the other one."""
    shutil.copytree(language_model("llama"), tmp_path / "m")
    load = language_states.load_causal

    def replaced(path):
        result = load(path)
        with (tmp_path / "m" / "config.json").open("a") as file:
            file.write("\n")
        return result

    monkeypatch.setattr(language_states, "load_causal", replaced)
    with pytest.raises(InputError, match="another model is here"):
        LanguageStates(str(tmp_path / "m"))
