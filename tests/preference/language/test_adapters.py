"""Bases that are adapters: merged, trained on, saved, loaded again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.likelihood import SavedLikelihood
from murmuration.preference.language.reward import SavedReward, save_language_model

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


def test_another_kind_of_adapter(trained):
    folder = Path(trained(rank=2))
    about = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**about, "peft_type": "IA3"}))
    with pytest.raises(InputError, match="an adapter of kind IA3"):
        LanguageBase(BaseSettings(str(folder)))


@pytest.mark.parametrize("text", ["", "{}", '{"base_model_name_or_path": 3}'])
def test_an_adapter_that_names_no_base(trained, text):
    folder = Path(trained(rank=2))
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(InputError, match=r"adapter_config\.json: (cannot be read|names no model)"):
        LanguageBase(BaseSettings(str(folder)))


@pytest.mark.parametrize("train", ["lora", "full"])
def test_the_outline_of_an_adapter_is_that_of_its_base(trained, train):
    settings = BaseSettings(trained(rank=2), train, rank=3)
    whole, outline = LanguageBase(settings), LanguageBase(settings, weights=False)
    assert outline.dimension == whole.dimension
    assert outline.to_config() == whole.to_config()
    assert outline.settings.merged
    assert all(tensor.is_meta for tensor in outline.model.parameters())


def test_an_adapter_runs_nothing(trained, tmp_path):
    """Neither what was pickled nor what its configuration would import."""
    folder, mark = Path(trained(rank=2)), tmp_path / "run"

    class Bomb:
        def __reduce__(self):
            return Path.touch, (mark,)

    about = folder / "adapter_config.json"
    config = json.loads(about.read_text())
    about.write_text(json.dumps(config | {"megatron_config": {}, "megatron_core": "antigravity"}))
    LanguageBase(BaseSettings(str(folder)))
    about.write_text(
        json.dumps(config | {"megatron_config": {"x": 1}, "megatron_core": "antigravity"})
    )
    with pytest.raises(InputError, match="names a library to import"):
        LanguageBase(BaseSettings(str(folder)))
    about.write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").unlink()
    torch.save({"bomb": Bomb()}, folder / "adapter_model.bin")
    with pytest.raises(InputError):
        LanguageBase(BaseSettings(str(folder)))
    assert not mark.exists()
