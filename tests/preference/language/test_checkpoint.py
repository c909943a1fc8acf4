"""Checkpoints that are not whole, and which one is meant."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from murmuration.preference.data.errors import InputError
from murmuration.preference.language import checkpoint
from murmuration.preference.language.base.network import LanguageBase, language_base
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.checkpoint import (
    digest_of,
    folder_of,
    origin_below,
    revision_of,
)
from murmuration.preference.language.loading import contents_of
from murmuration.preference.language.reward import SavedReward


@pytest.fixture
def changed(language_model, tmp_path):
    """A function: a copy of a model whose tensors a function has changed."""

    def make(kind, change):
        folder = tmp_path / kind
        shutil.copytree(language_model(kind), folder)
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return str(folder)

    return make


def without(*parts):
    def change(tensors):
        for name in [name for name in tensors if any(part in name for part in parts)]:
            del tensors[name]

    return change


@pytest.mark.parametrize("train", ["lora", "full", "head"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_each_tensor_that_is_missing_is_refused_by_name(changed, language_model, kind, train):
    name = sorted(load_file(Path(language_model(kind)) / "model.safetensors"))[2]
    with pytest.raises(InputError, match=rf"--base .*it lacks (bert\.)?{name}$"):
        LanguageBase(BaseSettings(changed(kind, without(name)), train))


def test_a_tensor_that_is_cut(changed):
    def cut(tensors):
        name = "transformer.h.1.mlp.c_fc.weight"
        tensors[name] = tensors[name][:, :-1].contiguous()

    with pytest.raises(InputError, match=r"shape .*h\.1\.mlp\.c_fc\.weight \(16, 63\) for \(16"):
        LanguageBase(BaseSettings(changed("gpt2", cut)))


@pytest.mark.parametrize("name", ["transformer.h.7.ln_1.weight", "more.weight"])
@pytest.mark.parametrize("task", ["reward", "text"])
def test_a_tensor_too_many(changed, name, task):
    folder = changed("gpt2", lambda tensors: tensors.update({name: torch.zeros(16)}))
    with pytest.raises(InputError, match=f"nothing is known of {name}"):
        LanguageBase(BaseSettings(folder, task=task))


def test_a_head_that_the_configuration_declares_is_no_new_one(changed):
    folder = changed("llama", without("lm_head"))
    LanguageBase(BaseSettings(folder))  # a reward needs none
    with pytest.raises(InputError, match=r"it lacks lm_head\.weight"):
        LanguageBase(BaseSettings(folder, task="text"))


def test_a_head_that_another_weight_gives_is_not_missing(changed):
    folder = changed("gpt2", lambda tensors: None)
    assert "lm_head.weight" not in load_file(Path(folder) / "model.safetensors")
    LanguageBase(BaseSettings(folder, task="text"))


def test_what_pretraining_and_earlier_versions_left_is_no_part_of_the_model(changed):
    """As in bert-base-uncased, which declares a head for masked words and has another one, too."""
    more = {"cls.seq_relationship.bias": torch.zeros(2)}
    more["embeddings.position_ids"] = torch.arange(64)[None]
    LanguageBase(BaseSettings(changed("bert", lambda tensors: tensors.update(more))))


def test_heads_of_other_tasks_make_room_for_a_reward(language_model, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    for kind in (AutoModelForSequenceClassification, AutoModelForTokenClassification):
        folder = tmp_path / kind.__name__
        shutil.copytree(language_model("bert"), folder)
        kind.from_pretrained(folder, num_labels=3).save_pretrained(folder)
        base = LanguageBase(BaseSettings(str(folder), "head"))
        assert not base.model.get_submodule(base.head).weight.any()


def test_an_adapter_without_some_of_its_tensors(language_model, tmp_path):
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2))
    base.write(tmp_path, torch.ones(base.dimension).numpy())
    about = {"format": "murmuration-language-reward-1", "base": base.to_config()}
    (tmp_path / "murmuration.json").write_text(json.dumps(about))
    SavedReward.load(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({name: t for name, t in tensors.items() if "h.0" not in name}, file)
    with pytest.raises(InputError, match=r"it lacks .*h\.0\.attn\.c_attn\.lora_A"):
        SavedReward.load(tmp_path)


def test_an_adapter_is_not_put_on_another_base(changed, language_model, tmp_path):
    folder = changed("gpt2", lambda tensors: None)
    base = LanguageBase(BaseSettings(folder, rank=2))
    base.write(tmp_path / "model", torch.ones(base.dimension).numpy())
    about = {"format": "murmuration-language-reward-1", "base": base.to_config()}
    (tmp_path / "model" / "murmuration.json").write_text(json.dumps(about))
    tensors = load_file(Path(folder) / "model.safetensors")
    tensors["transformer.wte.weight"][0, 0] += 1.0
    save_file(tensors, Path(folder) / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match="another model is here than the one that was stated"):
        SavedReward.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_the_digest_is_of_weights_configuration_and_tokenizer(language_model, tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(language_model("gpt2"), folder)
    before = digest_of(folder)
    assert before == digest_of(Path(language_model("gpt2")))  # wherever it lies
    (folder / "README.md").write_text("a card")
    assert digest_of(folder) == before
    found = (folder / name).read_bytes()
    (folder / name).write_bytes(found[:-1] + bytes([found[-1] ^ 1]))
    assert digest_of(folder) != before


def test_what_did_not_change_is_read_once(language_model, tmp_path, monkeypatch):
    shutil.copytree(language_model("gpt2"), tmp_path / "model")
    before = digest_of(tmp_path / "model")
    read = []
    monkeypatch.setattr(checkpoint.hashlib, "file_digest", lambda *_: read.append(1))
    assert digest_of(tmp_path / "model") == before
    assert not read


def test_a_node_with_another_base_than_the_stated_refuses(changed, language_model):
    stated = LanguageBase(BaseSettings(language_model("gpt2"))).to_config()
    assert len(stated["digest"]) == 64
    language_base(stated)
    other = changed("gpt2", lambda tensors: tensors["transformer.wte.weight"].add_(1.0))
    with pytest.raises(InputError, match="another model is here than the one that was stated"):
        language_base({**stated, "path": other})


def test_a_base_that_changes_in_place_is_loaded_again(changed):
    folder = changed("gpt2", lambda tensors: None)
    config = {"path": folder, "train": "lora"}
    first = language_base(config)
    assert language_base(first.to_config()) is first
    tensors = load_file(Path(folder) / "model.safetensors")
    tensors["transformer.wte.weight"][0, 0] += 1.0
    save_file(tensors, Path(folder) / "model.safetensors", metadata={"format": "pt"})
    assert language_base(config).settings.digest != first.settings.digest
    with pytest.raises(InputError, match="another model"):
        language_base(first.to_config())


def test_the_revision_of_a_hubs_snapshot(language_model, tmp_path, monkeypatch):
    from huggingface_hub import constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = tmp_path / "models--somebody--tiny"
    shutil.copytree(language_model("gpt2"), hub / "snapshots" / commit)
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = folder_of("somebody/tiny")
    assert revision_of(folder) == commit
    assert revision_of(tmp_path) == ""
    found = contents_of("somebody/tiny")
    assert (found.revision, found.digest) == (commit, digest_of(Path(language_model("gpt2"))))
    base = LanguageBase(BaseSettings("somebody/tiny"))
    assert base.to_config()["revision"] == commit


def test_an_adapter_tells_of_the_file_that_the_base_below_all_was_made_from(tmp_path):
    origin = {"name": "Tiny", "license": "apache-2.0", "sha256": "ab" * 32}
    below = str(tmp_path / "base")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps({"converted_from": origin}))
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        about = json.dumps({"base_model_name_or_path": below})
        (tmp_path / name / "adapter_config.json").write_text(about)
        below = str(tmp_path / name)
        assert origin_below(below) == origin
    shutil.rmtree(tmp_path / "base")
    for place in (below, str(tmp_path / "none"), "somebody/tiny", ""):
        assert origin_below(place) == {}
