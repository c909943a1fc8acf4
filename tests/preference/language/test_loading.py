"""Models that cannot be loaded, and what is said of them."""

import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.encoders import EncoderFeatures
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings


def test_a_base_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"--base: no such folder: '\./nowhere'"):
        LanguageBase(BaseSettings("./nowhere"))
    with pytest.raises(InputError, match="gives no language model"):
        LanguageBase(BaseSettings(str(tmp_path)))


def test_a_name_of_a_hub_without_a_network(monkeypatch):
    for module in ("loading", "checkpoint"):
        monkeypatch.setattr(
            f"murmuration.preference.language.{module}.hub_is_reachable", lambda: False
        )
    with pytest.raises(InputError) as caught:
        LanguageBase(BaseSettings("gpt2"))
    message = str(caught.value)
    assert message.startswith("--base gpt2: there is no such folder here, and the hub gives no")
    assert "without a network: its cache on this machine has none of that name" in message


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


def test_a_tokenizer_of_another_model(language_model, tmp_path):
    small = language_model("gpt2", vocab_size=9)
    for task in ("reward", "text", "sft"):
        with pytest.raises(InputError, match="they do not belong together"):
            LanguageBase(BaseSettings(small, task=task))
    shutil.copytree(language_model("gpt2"), tmp_path / "none")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "none" / name).unlink()
    with pytest.raises(InputError, match=r"makes nothing of a text|gives no language"):
        LanguageBase(BaseSettings(str(tmp_path / "none")))


@pytest.fixture
def hostile(language_model, tmp_path):
    """A function: a copy of a model with code of its own, and what that leaves where it is run."""

    def make(kind, file, **changes):
        folder, mark = tmp_path / kind, tmp_path / "run"
        shutil.copytree(language_model(kind), folder)
        code = f"open({str(mark)!r}, 'w')\n"
        (folder / "own.py").write_text(code + "class Own:\n    pass\n", encoding="utf-8")
        about = json.loads((folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(json.dumps(about | changes), encoding="utf-8")
        return str(folder), mark

    return make


OWN_MODEL = {
    "AutoConfig": "own.Own",
    "AutoModel": "own.Own",
    "AutoModelForCausalLM": "own.Own",
    "AutoModelForSequenceClassification": "own.Own",
}


def test_code_of_a_models_own_is_refused_and_nobody_is_asked(hostile, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda _: "y")
    folder, mark = hostile("bert", "config.json", auto_map=OWN_MODEL, model_type="own")
    for load in (
        lambda: LanguageBase(BaseSettings(folder)),
        lambda: LanguageBase(BaseSettings(folder), weights=False),
        lambda: EncoderFeatures(folder),
    ):
        with pytest.raises(InputError, match=r"it needs code of its own .* is ever run$") as caught:
            load()
        assert "\n" not in str(caught.value)
    assert not mark.exists()


def test_a_tokenizers_own_code_is_not_run(hostile, monkeypatch):
    """There is one of transformers' for the architecture."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    own = {"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}, "tokenizer_class": "Own"}
    folder, mark = hostile("bert", "tokenizer_config.json", **own)
    for load in (lambda: LanguageBase(BaseSettings(folder)), lambda: EncoderFeatures(folder)):
        with suppress(InputError):
            load()
    assert not mark.exists()


def test_an_architecture_that_is_known_does_without_code_of_its_own(hostile):
    folder, mark = hostile("llama", "config.json", auto_map=OWN_MODEL)
    for task in ("reward", "text"):
        LanguageBase(BaseSettings(folder, task=task))
    assert not mark.exists()


@pytest.mark.parametrize("declared", ["pipeline", "Own", "AutoModel", "GPT2Config", None, 3])
def test_what_a_configuration_declares_is_called_if_it_is_a_model(hostile, declared):
    folder, _ = hostile("gpt2", "config.json", architectures=[declared])
    LanguageBase(BaseSettings(folder))


class Bomb:
    """Pickled: whoever loads it makes a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_pickled_weights_are_read_as_numbers_alone(hostile, tmp_path, kind, packed):
    folder, mark = hostile(kind, "config.json")
    (Path(folder) / "model.safetensors").unlink()
    weights = Path(folder) / "pytorch_model.bin"
    if packed:
        torch.save({"bomb": Bomb(mark)}, weights)
    else:
        weights.write_bytes(pickle.dumps({"bomb": Bomb(mark)}))
    for load in (lambda: LanguageBase(BaseSettings(folder)), lambda: EncoderFeatures(folder)):
        with pytest.raises(InputError, match=r"^--(base|features) "):
            load()
    assert not mark.exists()
    with weights.open("rb") as file, suppress(RuntimeError):  # or it would be no bomb
        torch.load(file, weights_only=False)
    assert mark.exists()


def test_weights_that_were_pickled_are_those(language_model, tmp_path):
    from safetensors.torch import load_file

    plain = language_model("llama")
    shutil.copytree(plain, tmp_path / "pickled")
    weights = tmp_path / "pickled" / "model.safetensors"
    torch.save(load_file(weights), tmp_path / "pickled" / "pytorch_model.bin")
    weights.unlink()
    for ours, theirs in zip(
        LanguageBase(BaseSettings(plain, "full")).trained,
        LanguageBase(BaseSettings(str(tmp_path / "pickled"), "full")).trained,
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_a_base_that_is_stored_quantised_is_refused(language_model, tmp_path):
    folder = tmp_path / "stored"
    shutil.copytree(language_model("gpt2"), folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config))
    for weights in (False, True):
        with pytest.raises(InputError, match=r"stored quantised \(gptq\): take what it was made"):
            LanguageBase(BaseSettings(str(folder)), weights=weights)
