"""Models that cannot be loaded, and what is said of them."""

import shutil

import pytest
import torch

from murmuration.preference.bases import trial_examples
from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.schema import PAIRS
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.models import preference_model


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


QUERIES_AND_VALUES = {"phi3": {"qkv_proj"}}
EXPERTS = ("mixtral", "qwen3_moe")


def changed(base):
    """Names of the layers that LoRA changes."""
    found = (name for name, module in base.model.named_modules() if hasattr(module, "base_layer"))
    return {name.rpartition(".")[2] for name in found}


@pytest.mark.parametrize("task", ["reward", "text"])
@pytest.mark.parametrize("kind", ["phi3", "olmo2", "smollm3", *EXPERTS])
def test_layers_of_architectures_that_peft_does_not_know(language_model, kind, task):
    base = LanguageBase(BaseSettings(language_model(kind), rank=2, task=task))
    assert changed(base) == QUERIES_AND_VALUES.get(kind, {"q_proj", "v_proj"})
    trial_examples(base, PAIRS).check(preference_model("btl"))


@pytest.mark.parametrize("kind", ["phi3", "olmo2", "smollm3"])
def test_all_of_it_is_trained_user_by_user(language_model, kind):
    base = LanguageBase(BaseSettings(language_model(kind), "full", task="text"))
    trial_examples(base, PAIRS).check(preference_model("btl"))


@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_see_tokens_of_all_sequences_and_are_refused_by_name(language_model, kind):
    base = LanguageBase(BaseSettings(language_model(kind), "full", task="text"))
    with pytest.raises(InputError, match=r"'model\.layers\.0\.mlp\.\w+' does not keep sequences"):
        trial_examples(base, PAIRS).check(preference_model("btl"))
    names = {"mixtral": "w1,w3", "qwen3_moe": "gate_proj,up_proj"}[kind]
    for targets in (names, "gate", "experts", f"q_proj,{names}"):
        with pytest.raises(InputError, match="--lora-targets"):
            LanguageBase(BaseSettings(language_model(kind), targets=targets))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("gpt2", {"c_attn", "c_proj", "c_fc"}),
        ("llama", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
        ("bert", {"query", "key", "value", "dense"}),
        ("mixtral", {"q_proj", "k_proj", "v_proj", "o_proj"}),
    ],
)
def test_all_linear_layers(language_model, kind, expected):
    base = LanguageBase(BaseSettings(language_model(kind), rank=2, targets="all-linear"))
    assert changed(base) == expected
    trial_examples(base, PAIRS).check(preference_model("btl"))


def test_alpha_scales_the_change(language_model):
    def moved(**settings):
        base = LanguageBase(BaseSettings(language_model("gpt2"), rank=4, task="text", **settings))
        base.put(torch.full((base.dimension,), 0.01))
        layer = base.model.get_base_model().transformer.h[0].attn.c_attn
        return layer.get_delta_weight("default")

    assert torch.equal(moved(), moved(alpha=4))
    torch.testing.assert_close(moved(alpha=8), 2.0 * moved())
    with pytest.raises(InputError, match="--lora-alpha must be at least 1"):
        moved(alpha=-1)
