"""LoRA layers: which are changed, and adapters that are merged, trained on, saved, loaded again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from language_models import model_on

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.schema import PAIRS
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.likelihood import SavedLikelihood
from murmuration.preference.language.reward import SavedReward, save_language_model
from murmuration.preference.models import preference_model

PROMPTS, RESPONSES = ["What now?", "What?"], ["Save it.", "Bet on it, spend all of it."]


def drawn(base, seed=0):
    return 0.3 * torch.randn(base.dimension, generator=torch.Generator().manual_seed(seed)).numpy()


@pytest.fixture
def trained(language_model, tmp_path):
    """A function: the folder of an adapter (or model) that was trained on a tiny model."""

    def make(kind="gpt2", train="lora", name="first", path=None, **settings):
        base = LanguageBase(BaseSettings(path or language_model(kind), train, **settings))
        save_language_model(tmp_path / name, base, drawn(base, len(name)))
        return str(tmp_path / name)

    return make


def rewards(base, theta_D=None):
    base.put(np.zeros(base.dimension) if theta_D is None else theta_D)
    tokens = base.texts(PROMPTS, RESPONSES)
    with torch.no_grad():
        return [float(base.rewards(tokens, np.array([i]))[0]) for i in range(2)]


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_what_is_trained_on_an_adapter_begins_where_that_ended(trained, kind, train):
    folder = trained(kind, rank=2)
    base = LanguageBase(BaseSettings(folder, train, rank=2))
    assert base.dimension > 0
    assert base.settings.merged
    expected = SavedReward.load(folder).score(PROMPTS, RESPONSES)
    assert abs(expected[0] - expected[1]) > 1e-3
    np.testing.assert_allclose(rewards(base), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_what_is_saved_is_loaded_alone_and_goes_on(trained, tmp_path, kind, train):
    from transformers import AutoModelForSequenceClassification

    first = trained(kind, rank=2)
    base = LanguageBase(BaseSettings(first, train, rank=2))
    whole = sum(p.numel() for p in base.model.parameters())
    assert base.dimension == whole if train == "full" else 0 < base.dimension < whole
    expected = rewards(base, drawn(base, 6))
    second = trained(train=train, rank=2, path=first, name="second")
    shutil.rmtree(first)  # nothing else is needed
    found = SavedReward.load(second).score(PROMPTS, RESPONSES)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    AutoModelForSequenceClassification.from_pretrained(second)
    third = LanguageBase(BaseSettings(second, train, rank=2))
    np.testing.assert_allclose(rewards(third), expected, rtol=1e-5, atol=1e-5)
    assert trained(train=train, rank=2, path=second, name="third!")
    # Saving has not moved the base that is in memory.
    np.testing.assert_array_equal(rewards(base, drawn(base, 6)), expected)


def test_three_adapters_one_on_the_other(trained, language_model, tmp_path):
    """Adapters whose base is an adapter's folder: others save them so."""
    first = trained(rank=2)
    second = tmp_path / "second"
    shutil.copytree(first, second)
    about = json.loads((second / "adapter_config.json").read_text())
    about["base_model_name_or_path"] = first
    (second / "adapter_config.json").write_text(json.dumps(about))
    once, twice = (LanguageBase(BaseSettings(str(path), "full")) for path in (first, second))
    raw = LanguageBase(BaseSettings(language_model("gpt2"), "full"))
    name = "transformer.h.0.attn.c_attn.weight"
    change = once.model.state_dict()[name] - raw.model.state_dict()[name]
    assert change.abs().max() > 1e-3
    torch.testing.assert_close(
        twice.model.state_dict()[name], once.model.state_dict()[name] + change
    )
    assert once.settings.digest != twice.settings.digest


def test_below_another_head(trained):
    adapter = trained(rank=2)
    base = LanguageBase(BaseSettings(adapter, "lora", rank=2, task="text"))
    full = LanguageBase(BaseSettings(adapter, "full"))
    for name in ("transformer.wte.weight", "transformer.ln_f.bias"):
        assert torch.equal(
            base.model.get_base_model().state_dict()[name], full.model.state_dict()[name]
        )
    said = trained(path=adapter, rank=2, task="text", name="said")
    assert np.isfinite(SavedLikelihood.load(said).score(PROMPTS, RESPONSES)).all()
    back = LanguageBase(BaseSettings(trained(rank=2, task="sft", name="sft"), "full"))
    assert not back.model.get_submodule(back.head).weight.any()  # a reward's head is new there


def test_a_shared_weight_is_not_merged(trained, language_model):
    apart = trained(rank=2, task="text", targets="wte")
    with pytest.raises(InputError, match=r"LoRA of transformer\.wte, whose weight other layers"):
        LanguageBase(BaseSettings(apart, task="text"))
    with pytest.raises(InputError, match="cannot be merged"):
        LanguageBase(BaseSettings(trained(rank=2, name="plain"), task="text", targets="wte"))


@pytest.mark.parametrize("train", ["lora", "full"])
def test_the_outline_of_an_adapter_is_that_of_its_base(trained, train):
    settings = BaseSettings(trained(rank=2), train, rank=3)
    whole, outline = LanguageBase(settings), LanguageBase(settings, weights=False)
    assert outline.dimension == whole.dimension
    assert outline.to_config() == whole.to_config()
    assert outline.settings.merged
    assert all(tensor.is_meta for tensor in outline.model.parameters())


def test_an_adapter_runs_nothing(trained, tmp_path):
    folder, mark = Path(trained(rank=2)), tmp_path / "run"

    class Bomb:
        def __reduce__(self):
            return Path.touch, (mark,)

    (folder / "adapter_model.safetensors").unlink()
    torch.save({"bomb": Bomb()}, folder / "adapter_model.bin")
    with pytest.raises(InputError):
        LanguageBase(BaseSettings(str(folder)))
    assert not mark.exists()


# New layers: which of a network they change.


def test_layers_that_are_not_there_are_named_with_those_that_are(language_model):
    with pytest.raises(InputError, match=r"--lora-targets q_proj.*Layers of .*c_attn"):
        LanguageBase(BaseSettings(language_model("gpt2"), targets="q_proj"))


QUERIES_AND_VALUES = {"phi3": {"qkv_proj"}}
EXPERTS = ("mixtral", "qwen3_moe")


def changed(base):
    """Names of the layers that LoRA changes."""
    names = (name for name, module in base.model.named_modules() if hasattr(module, "base_layer"))
    return {name.rpartition(".")[2] for name in names}


@pytest.mark.parametrize("task", ["reward", "text"])
@pytest.mark.parametrize("kind", ["phi3", "olmo2", "smollm3", *EXPERTS])
def test_layers_of_architectures_that_peft_does_not_know(language_model, kind, task):
    base = LanguageBase(BaseSettings(language_model(kind), rank=2, task=task))
    assert changed(base) == QUERIES_AND_VALUES.get(kind, {"q_proj", "v_proj"})
    model_on(base).trial_examples(PAIRS).check(preference_model("btl"))


@pytest.mark.parametrize("kind", ["phi3", "olmo2", "smollm3"])
def test_all_of_it_is_trained_user_by_user(language_model, kind):
    base = LanguageBase(BaseSettings(language_model(kind), "full", task="text"))
    model_on(base).trial_examples(PAIRS).check(preference_model("btl"))


@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_see_tokens_of_all_sequences_and_are_refused_by_name(language_model, kind):
    base = LanguageBase(BaseSettings(language_model(kind), "full", task="text"))
    with pytest.raises(InputError, match=r"'model\.layers\.0\.mlp\.\w+' does not keep sequences"):
        model_on(base).trial_examples(PAIRS).check(preference_model("btl"))
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
    model_on(base).trial_examples(PAIRS).check(preference_model("btl"))


def test_alpha_scales_the_change(language_model):
    def moved(**settings):
        base = LanguageBase(BaseSettings(language_model("gpt2"), rank=4, task="text", **settings))
        base.put(torch.full((base.dimension,), 0.01))
        layer = base.model.get_base_model().transformer.h[0].attn.c_attn
        return layer.get_delta_weight("default")

    assert torch.equal(moved(), moved(alpha=4))
    torch.testing.assert_close(moved(alpha=8), 2.0 * moved())
    with pytest.raises(InputError, match="alpha of LoRA must be at least 1"):
        moved(alpha=-1)
