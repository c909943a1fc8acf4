"""Bases whose frozen layers are kept in fewer bits; what needs bitsandbytes is left out without."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from learnt import model_on

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import PAIRS
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.language.reward import SavedReward, save_language_model
from murmuration.preference.models import preference_model

BTL = preference_model("btl")
THERE = importlib.util.find_spec("bitsandbytes") is not None
needed = pytest.mark.skipif(not THERE, reason="needs bitsandbytes")
BITS = ("8bit", "4bit")
KINDS = ("gpt2", "llama", "bert")


@pytest.mark.skipif(THERE, reason="bitsandbytes is there")
def test_without_bitsandbytes_it_says_what_to_install(language_model):
    with pytest.raises(InputError, match=r"pip install 'murmuration-rlhf\[quantised\]'$"):
        LanguageBase(BaseSettings(language_model("gpt2"), quantise="8bit"))


def test_what_cannot_be(language_model):
    with pytest.raises(InputError, match="--quantise must be one of none, 8bit, 4bit"):
        BaseSettings("x", quantise="2bit")
    with pytest.raises(InputError, match="use --train lora or head"):
        BaseSettings("x", "full", quantise="4bit")


def test_a_base_that_is_stored_quantised_is_refused(language_model, tmp_path):
    import shutil

    folder = tmp_path / "stored"
    shutil.copytree(language_model("gpt2"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    for weights in (False, True):
        with pytest.raises(InputError, match=r"stored quantised \(gptq\): take what it was made"):
            LanguageBase(BaseSettings(str(folder)), weights=weights)


def test_an_adapter_is_merged_into_what_is_not_quantised(language_model, tmp_path):
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2))
    save_language_model(tmp_path / "first", base, base.random_theta().numpy())
    with pytest.raises(InputError, match=r"--quantise: .* is an adapter"):
        LanguageBase(BaseSettings(str(tmp_path / "first"), quantise="4bit"))


@pytest.fixture
def made(language_model):
    def make(kind="llama", bits="4bit", **settings):
        return LanguageBase(BaseSettings(language_model(kind), rank=2, quantise=bits, **settings))

    return make


def packed(base):
    found = [p for p in base.model.parameters() if p.dtype in (torch.int8, torch.uint8)]
    return len(found)


@needed
@pytest.mark.parametrize("targets", ["", "all-linear"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("kind", "task"), [(k, "reward") for k in KINDS] + [("llama", "text")])
def test_users_are_told_apart_in_it(made, kind, task, bits, dtype, targets):
    base = made(kind, bits, task=task, dtype=dtype, targets=targets)
    assert packed(base) >= 8
    assert {p.dtype for p in base.trained} == {getattr(torch, dtype)}
    model_on(base).trial_examples(PAIRS).check(BTL)


def rows_of(base, make_rows, theta_D, together=False):
    examples = model_on(base).examples(Judgements.from_rows(make_rows([3, 1, 2])))
    taken = torch.arange(6), examples.counts_U
    found = examples.user_gradients(theta_D, *taken, BTL, batch_users=together)
    return torch.cat([row.clone() for row in found]), examples


@needed
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_network_that_its_layers_are(made, make_rows, kind, bits):
    """Equal to a loop of automatic differentiation, whoever shares a batch, and after answers
    without gradients, for which layers could be packed in another way."""
    base = made(kind, bits, dtype="float32")
    theta_D = base.random_theta()
    rows_BD, examples = rows_of(base, make_rows, theta_D)
    examples.logits_R(theta_D)
    again_BD, _ = rows_of(base, make_rows, theta_D)
    assert torch.equal(rows_BD, again_BD)
    together_BD, _ = rows_of(base, make_rows, theta_D, together=True)
    base.put(theta_D)
    ends = np.cumsum([3, 1, 2])
    for row_D, mixed_D, end, count in zip(rows_BD, together_BD, ends, [3, 1, 2], strict=True):
        mine_N = np.arange(end - count, end)
        with base.differentiable() as parameters:
            text_NK = examples.text_JK[mine_N]
            examples.differentiate(text_NK.reshape(-1), mine_N, np.full(count, 1.0 / count), BTL)
            grads = [p.grad.reshape(1, -1).clone() for p in parameters.values()]
        expected_D = base.to_theta(torch.cat(grads, dim=1))[0]
        assert expected_D.norm() > 1e-3
        assert (row_D - expected_D).norm() < 1e-5 * expected_D.norm()
        assert (mixed_D - expected_D).norm() < 1e-5 * expected_D.norm()


@needed
@pytest.mark.parametrize("bits", BITS)
def test_it_is_nearly_the_base_and_not_quite(made, make_rows, bits):
    exact, base = made(bits="none", dtype="float32"), made(bits=bits, dtype="float32")
    assert exact.dimension == base.dimension
    theta_D = exact.random_theta()
    plain_BD, _ = rows_of(exact, make_rows, theta_D)
    found_BD, _ = rows_of(base, make_rows, theta_D)
    apart = float((found_BD - plain_BD).norm() / plain_BD.norm())
    assert 1e-4 < apart < (0.25 if bits == "8bit" else 0.7)


@needed
@pytest.mark.parametrize("train", ["lora", "head"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_is_for_the_base_as_it_came(made, language_model, tmp_path, kind, train):
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification

    if train == "head":
        base = LanguageHead(path=language_model(kind), quantise="4bit")
        theta_D = np.linspace(-1, 1, base.dimension)
    else:
        base = made(kind)
        theta_D = base.random_theta().numpy()
    assert base.to_config()["quantise"] == "4bit"
    folder = tmp_path / "model"
    save_language_model(folder, base, theta_D)
    auto = AutoModelForSequenceClassification
    if train == "lora":
        assert not (folder / "model.safetensors").exists()
        plain = auto.from_pretrained(language_model(kind), num_labels=1)
        model = PeftModel.from_pretrained(plain, folder)
    else:
        model = auto.from_pretrained(folder)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    scores = SavedReward.load(folder).score(["What now?"] * 2, ["Save it.", "Bet on it."])
    assert np.isfinite(scores).all()
    assert scores[0] != scores[1]
    assert (Path(folder) / "murmuration.json").exists()
