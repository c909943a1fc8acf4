"""The last states of a language model as features."""

import math

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features import frozen_states
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.language.row_cache import FOLDER

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


def test_features_are_about_one_long(language_model):
    head = LanguageHead(path=language_model("llama"))
    lengths = np.linalg.norm(head(PROMPTS, RESPONSES), axis=1)
    assert 0.2 < lengths.min() <= lengths.max() < 5.0
    assert head.dimension == 16


def test_a_head_of_another_size_is_refused(language_model, tmp_path):
    with pytest.raises(InputError, match="16 dimensions"):
        LanguageHead(path=language_model("gpt2")).write(tmp_path, np.zeros(3, np.float32))


def test_a_saved_head_gives_the_rewards_of_its_features(language_model, tmp_path):
    from transformers import AutoModelForSequenceClassification

    from murmuration.preference.language.reward import SavedReward, save_language_model

    head = LanguageHead(path=language_model("llama"))
    theta_D = np.random.default_rng(0).standard_normal(head.dimension).astype(np.float32)
    save_language_model(tmp_path / "m", head, theta_D)
    rewards = SavedReward.load(tmp_path / "m").score_batch(PROMPTS, RESPONSES)
    np.testing.assert_allclose(rewards, head(PROMPTS, RESPONSES) @ theta_D, rtol=1e-4, atol=1e-4)
    # As its card has it, for plain transformers.
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    tokens = head.base.texts(PROMPTS[:1], RESPONSES[:1])
    with torch.no_grad():
        score = model(tokens.ids.long()[None]).logits[0, 0]
    assert math.isclose(float(score), rewards[0], rel_tol=1e-4, abs_tol=1e-4)


def test_states_are_computed_once_for_each_text(language_model, tmp_path, monkeypatch, computed):
    """In one process and in the next, with all that decides them in the name."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    first = LanguageHead(path=language_model("llama"))(PROMPTS * 3, RESPONSES * 3)
    assert sum(computed) == 3
    again = LanguageHead(path=language_model("llama"))(PROMPTS * 2, RESPONSES * 2)
    assert sum(computed) == 3
    np.testing.assert_array_equal(again, first[:6])
    other = LanguageHead(path=language_model("llama"), dtype="bfloat16")(PROMPTS, RESPONSES)
    assert sum(computed) == 6
    assert not np.array_equal(other, first[:3])


def test_batches_move_no_bit(language_model, monkeypatch):
    head = LanguageHead(path=language_model("llama"))
    responses = [" ".join(["save"] * count) for count in (*range(1, 20), *range(1, 20))]
    prompts = [f"What {n % 3}?" for n in range(len(responses))]
    alone = np.concatenate([head([p], [r]) for p, r in zip(prompts, responses, strict=True)])
    monkeypatch.setattr(frozen_states, "WORTH", 1)
    np.testing.assert_array_equal(head(prompts, responses), alone)


def test_states_after_another_system_prompt_are_others_and_lie_elsewhere(
    language_model, tmp_path, monkeypatch
):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    features = {}
    for system in ("", "Save it", "Wait"):
        head = LanguageHead(path=language_model("gpt2-chat"), system=system)
        features[system] = head(PROMPTS, RESPONSES)
        assert feature_map(head.to_config()).to_config().get("system", "") == system
    assert len({phi_RD.tobytes() for phi_RD in features.values()}) == 3
    assert len([*(tmp_path / "kept").glob("*.states")]) == 3
    again = LanguageHead(path=language_model("gpt2-chat"), system="Wait")(PROMPTS, RESPONSES)
    np.testing.assert_array_equal(again, features["Wait"])
