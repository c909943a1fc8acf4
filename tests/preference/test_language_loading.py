"""Models that cannot be loaded, and what is said of them."""

import shutil

import pytest

from preference.judgements import InputError
from preference.language_base import BaseSettings, LanguageBase


def test_a_base_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"--base: no such folder: '\./nowhere'"):
        LanguageBase(BaseSettings("./nowhere"))
    with pytest.raises(InputError, match="gives no language model"):
        LanguageBase(BaseSettings(str(tmp_path)))


def test_layers_that_are_not_there_are_named_with_those_that_are(language_model):
    with pytest.raises(InputError, match=r"--lora-targets q_proj.*Layers of .*c_attn"):
        LanguageBase(BaseSettings(language_model("gpt2"), targets="q_proj"))


def test_a_tokenizer_of_another_model(language_model, tmp_path):
    small = language_model("gpt2", vocab_size=9)
    with pytest.raises(InputError, match="they do not belong together"):
        LanguageBase(BaseSettings(small))
    shutil.copytree(language_model("gpt2"), tmp_path / "none")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "none" / name).unlink()
    with pytest.raises(InputError, match=r"makes nothing of a text|gives no language"):
        LanguageBase(BaseSettings(str(tmp_path / "none")))
