"""What a language model's card says."""

import pytest

from murmuration.server.reporting.model_card import is_language_model, next_tokens, use, what

LORA = {"kind": "language-model", "train": "lora", "rank": 8, "path": "x"}
FULL = {"kind": "language-model", "train": "full", "path": "x"}
TEXT = {"kind": "language-model", "train": "full", "path": "x", "task": "text"}
SFT = {"kind": "language-model", "train": "lora", "rank": 8, "path": "x", "task": "sft"}
HEAD = {"kind": "language-head", "path": "x"}


@pytest.mark.parametrize(
    ("features", "said", "loaded"),
    [
        (LORA, "LoRA of rank 8, together 1,234 trained weights", "PeftModel.from_pretrained"),
        (FULL, "all 1,234 weights trained", "model = AutoModelForSequenceClassification"),
        (HEAD, "unchanged, with a head of 1,234", "model = AutoModelForSequenceClassification"),
    ],
)
def test_what_it_is_and_how_it_is_loaded(features, said, loaded):
    result = {"features": features, "dimension": 1234}
    assert said in what(result, "the-base")
    assert "`the-base`" in what(result, "the-base")
    assert loaded in use(result, "the-base")
    assert ("PeftModel" in use(result, "the-base")) == (features is LORA)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (TEXT, "all 1,234 weights trained. It was trained on users' own texts."),
        (SFT, "both of every judgement, whichever was chosen"),
        ({**SFT, "as_published": True}, "on the chosen responses of their judgements"),
    ],
)
def test_models_that_say_the_next_token(features, said):
    result = {"features": features, "dimension": 1234}
    assert said in next_tokens(result, "the-base")
    text = use(result, "the-base")
    assert "AutoModelForCausalLM" in text
    assert "SequenceClassification" not in text
    assert "num_labels" not in text
    assert "log-likelihood" in text
    assert ("as in training" in text) == (features["task"] == "sft")  # which has prompts, too
    assert ("PeftModel" in text) == (features["train"] == "lora")


def test_others_are_not_language_models():
    assert not is_language_model({"kind": "hashing"})
    assert is_language_model(HEAD)
