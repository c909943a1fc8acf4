"""Models that cannot be loaded, and what is said of them."""

import shutil

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.base_model import BaseSettings, LanguageBase


def test_a_base_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"--base: no such folder: '\./nowhere'"):
        LanguageBase(BaseSettings("./nowhere"))
    with pytest.raises(InputError, match="gives no language model"):
        LanguageBase(BaseSettings(str(tmp_path)))


@pytest.mark.parametrize("train", ["lora", "full"])
def test_an_encoder_says_no_next_token(language_model, train):
    for task in ("text", "sft"):
        with pytest.raises(InputError, match="no causal language model, which --task"):
            LanguageBase(BaseSettings(language_model("bert"), train, task=task))


def test_a_checkpoint_without_a_head_for_the_next_token(language_model, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    path = language_model("llama")
    AutoModel.from_pretrained(path).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(path).save_pretrained(tmp_path)
    LanguageBase(BaseSettings(str(tmp_path)))
    with pytest.raises(InputError, match="no head for the next token"):
        LanguageBase(BaseSettings(str(tmp_path), task="text"))


def test_the_head_for_the_next_token_is_the_checkpoints(language_model):
    for kind in ("gpt2", "llama"):
        base = LanguageBase(BaseSettings(language_model(kind), task="text"))
        assert base.words == len(base.tokenizer)
        assert base.head == ""
        assert not any("score" in name for name, _ in base.model.named_parameters())


def test_vocabularies_that_do_not_fit_are_refused_for_every_task(language_model):
    small = language_model("gpt2", vocab_size=9)
    for task in ("text", "sft"):
        with pytest.raises(InputError, match="they do not belong together"):
            LanguageBase(BaseSettings(small, task=task))


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
