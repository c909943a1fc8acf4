"""What a language model's card says."""

import pytest

from server.card_language import is_language_model, use, what

LORA = {"kind": "language-model", "train": "lora", "rank": 8, "path": "x"}
FULL = {"kind": "language-model", "train": "full", "path": "x"}
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


def test_others_are_not_language_models():
    assert not is_language_model({"kind": "hashing"})
    assert is_language_model(HEAD)
