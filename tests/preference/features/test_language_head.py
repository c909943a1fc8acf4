"""The last states of a language model as features."""

import json
import math

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features import frozen_states
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.language.base.settings import BaseSettings
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


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("layer", [1, 2])
def test_a_layer_is_that_of_the_whole_model_behind_its_last_norm(language_model, kind, layer):
    from transformers import AutoModel

    head = LanguageHead(path=language_model(kind), head_layer=layer, head_pooling="mean")
    whole = AutoModel.from_pretrained(language_model(kind)).eval()
    norm = getattr(whole, "norm", None) or whole.ln_f
    tokens = head.base.texts(PROMPTS, RESPONSES)
    phi_RD = head(PROMPTS, RESPONSES)
    for text, start in enumerate(tokens.start_T[:-1]):
        ids_L = tokens.ids[start : tokens.start_T[text + 1]].long()
        seen: list[torch.Tensor] = []
        blocks = getattr(whole, "layers", None) or whole.h
        hook = blocks[layer - 1].register_forward_hook(lambda *given: seen.append(given[2]))  # noqa: B023
        with torch.no_grad():
            whole(ids_L[None])
            states = seen[0][0] if isinstance(seen[0], tuple) else seen[0]
            mean_D = norm(states).reshape(len(ids_L), -1).mean(0)
        hook.remove()
        np.testing.assert_allclose(phi_RD[text], mean_D.numpy() / 4.0, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"head_layer": 1}, {"head_pooling": "mean"}])
def test_a_saved_head_gives_the_rewards_of_its_features(language_model, tmp_path, settings):
    from transformers import AutoModelForSequenceClassification

    from murmuration.preference.language.reward import SavedReward, save_language_model

    head = LanguageHead(path=language_model("llama"), **settings)
    theta_D = np.random.default_rng(0).standard_normal(head.dimension).astype(np.float32)
    save_language_model(tmp_path / "m", head, theta_D)
    rewards = SavedReward.load(tmp_path / "m").score_batch(PROMPTS, RESPONSES)
    np.testing.assert_allclose(rewards, head(PROMPTS, RESPONSES) @ theta_D, rtol=1e-4, atol=1e-4)
    # As its card has it, for plain transformers.
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "m").eval()
    tokens = head.base.texts(PROMPTS[:1], RESPONSES[:1])
    with torch.no_grad():
        states = model.base_model(tokens.ids.long()[None])[0]
        score = model.score(states).mean() if settings.get("head_pooling") else None
        score = model(tokens.ids.long()[None]).logits[0, 0] if score is None else score
    assert math.isclose(float(score), rewards[0], rel_tol=1e-4, abs_tol=1e-4)
    layers = json.loads((tmp_path / "m" / "config.json").read_text())["num_hidden_layers"]
    assert layers == settings.get("head_layer", 2)


def test_a_model_that_says_nothing_of_pooling_reads_the_last_state(language_model, tmp_path):
    from murmuration.preference.language.reward import FILE, SavedReward, save_language_model

    head = LanguageHead(path=language_model("llama"))
    save_language_model(tmp_path / "m", head, np.ones(head.dimension, np.float32))
    about = json.loads((tmp_path / "m" / FILE).read_text())
    for name in ("head_layer", "head_pooling"):
        assert about["base"].pop(name) in (0, "last")
    (tmp_path / "m" / FILE).write_text(json.dumps(about))
    rewards = SavedReward.load(tmp_path / "m").score_batch(PROMPTS, RESPONSES)
    np.testing.assert_allclose(rewards, head(PROMPTS, RESPONSES).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head_layer": 3}, "--head-layer 3: .* has 2 layers"),
        ({"head_layer": -1}, "--head-layer must be at least 1"),
        ({"head_pooling": "first"}, "--head-pooling must be one of last, mean"),
    ],
)
def test_layers_and_poolings_that_there_are_not(language_model, settings, message):
    with pytest.raises(InputError, match=message):
        LanguageHead(path=language_model("llama"), **settings)


def test_an_encoders_head_reads_no_mean(language_model):
    with pytest.raises(InputError, match="--head-pooling mean: an encoder"):
        LanguageHead(path=language_model("bert"), head_pooling="mean")


def test_layers_are_for_a_head_alone():
    with pytest.raises(InputError, match="for --train head"):
        BaseSettings(path="x", train="lora", head_layer=1)


def test_states_are_computed_once_for_each_text(language_model, tmp_path, monkeypatch, computed):
    """In one process and in the next, with all that decides them in the name."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    first = LanguageHead(path=language_model("llama"))(PROMPTS * 3, RESPONSES * 3)
    assert sum(computed) == 3
    again = LanguageHead(path=language_model("llama"))(PROMPTS * 2, RESPONSES * 2)
    assert sum(computed) == 3
    np.testing.assert_array_equal(again, first[:6])
    for other in ({"head_pooling": "mean"}, {"head_layer": 1}, {"dtype": "bfloat16"}):
        computed.clear()
        states = LanguageHead(path=language_model("llama"), **other)(PROMPTS, RESPONSES)
        assert sum(computed) == 3
        assert not np.array_equal(states, first[:3])


@pytest.mark.parametrize("settings", [{}, {"head_pooling": "mean"}])
def test_batches_move_no_bit(language_model, monkeypatch, settings):
    head = LanguageHead(path=language_model("llama"), **settings)
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
