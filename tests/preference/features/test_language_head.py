"""The last states of a language model as features."""

import math

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.features.language_head import LanguageHead

PROMPTS, RESPONSES = ["What now?", "What?", ""], ["Save it.", "Bet on it.", "Buy it today!"]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_head_on_these_features_is_the_saved_models_reward(language_model, tmp_path, kind):
    from transformers import AutoModelForSequenceClassification

    head = LanguageHead(path=language_model(kind))
    phi_RD = head(PROMPTS, RESPONSES)
    theta_D = np.random.default_rng(0).standard_normal(head.dimension).astype(np.float32)
    head.write(tmp_path / "m", theta_D)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m")
    head.base.model = loaded.eval()
    tokens = head.base.texts(PROMPTS, RESPONSES)
    with torch.no_grad():
        found = head.base.rewards(tokens, np.arange(3)).numpy()
    np.testing.assert_allclose(phi_RD @ theta_D, found, rtol=1e-4, atol=1e-4)


def test_a_texts_features_are_the_same_bits_beside_any_others(language_model):
    head = LanguageHead(path=language_model("gpt2"))
    together = head(PROMPTS, RESPONSES)
    for text in range(3):
        alone = head(PROMPTS[text : text + 1], RESPONSES[text : text + 1])
        np.testing.assert_array_equal(alone[0], together[text])


def test_features_are_about_one_long(language_model):
    head = LanguageHead(path=language_model("llama"))
    lengths = np.linalg.norm(head(PROMPTS, RESPONSES), axis=1)
    assert 0.2 < lengths.min() <= lengths.max() < 5.0
    assert head.dimension == 16


def test_its_description_makes_an_equal_one(language_model):
    head = LanguageHead(path=language_model("gpt2"), max_tokens=40)
    again = feature_map(head.to_config())
    assert isinstance(again, LanguageHead)
    np.testing.assert_array_equal(again(PROMPTS, RESPONSES), head(PROMPTS, RESPONSES))
    assert math.isclose(again.base.texts.limit, 40)


def test_a_head_of_another_size_is_refused(language_model, tmp_path):
    with pytest.raises(InputError, match="16 dimensions"):
        LanguageHead(path=language_model("gpt2")).write(tmp_path, np.zeros(3, np.float32))
