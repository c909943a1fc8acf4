"""Configurations of adapters: plain LoRA within bounds, and nothing else."""

import json

import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.adapter_config import MOST_BYTES, adapted, adapter_config
from murmuration.preference.language.adapters import with_adapter
from murmuration.preference.language.checkpoint import MOST_ADAPTERS
from murmuration.preference.language.likelihood import SavedLikelihood
from murmuration.preference.language.loading import contents_of, load_causal

BASE = {"base_model_name_or_path": "./base"}
SLOW = "(a+)+" * 20 + "$"


def written(folder, **config):
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(BASE | config))
    return folder


def test_what_plain_lora_says_is_read(tmp_path):
    config = {
        "peft_type": "LORA",
        "r": 8,
        "target_modules": ["q_proj", "layers.0.v_proj"],
        "layers_to_transform": [0, 1],
        "layers_pattern": "layers",
        "rank_pattern": {"layers.0.v_proj": 4},
        "megatron_core": "megatron.core",
        "megatron_config": None,
        "loftq_config": {},
    }
    assert adapter_config(written(tmp_path, **config)) == BASE | config


@pytest.mark.parametrize(
    "names",
    [
        {"target_modules": SLOW},
        {"target_modules": ["q_proj", SLOW]},
        {"target_modules": ".*"},
        {"target_modules": ["n"] * 1_001},
        {"target_modules": ["n" * 201]},
        {"target_modules": 3},
        {"target_modules": [3]},
        {"exclude_modules": SLOW},
        {"rank_pattern": {SLOW: 4}},
        {"rank_pattern": {f"n{n}": 4 for n in range(100_000)}},
        {"alpha_pattern": {"^q": 4}},
        {"layers_pattern": [SLOW]},
        {"modules_to_save": ["score|.*"]},
        {"target_parameters": ["a\nb"]},
    ],
    ids=lambda names: next(iter(names)),
)
def test_names_are_plain_and_not_too_many(tmp_path, names):
    with pytest.raises(InputError, match=r"plain names of layers, and no patterns|than 1,048,576"):
        adapter_config(written(tmp_path, **names))


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"r": 10**9}, "ranks must be"),
        ({"r": True}, "ranks must be"),
        ({"rank_pattern": {"q_proj": 10**9}}, "ranks must be"),
        ({"layers_to_transform": [*range(100_000)]}, "layers_to_transform must be"),
        ({"layers_to_transform": 10**6}, "layers_to_transform must be"),
        ({"layers_to_transform": ["0"]}, "layers_to_transform must be"),
        ({"layer_replication": [[0, 100_000]]}, "sets 'layer_replication'"),
        ({"megatron_config": {"x": 1}, "megatron_core": "antigravity"}, "sets 'megatron_config'"),
        ({"peft_type": "IA3"}, "an adapter of kind 'IA3'"),
    ],
)
def test_what_is_no_plain_lora_or_too_large(tmp_path, numbers, reason):
    with pytest.raises(InputError, match=reason) as caught:
        adapter_config(written(tmp_path, **numbers))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"base_model_name_or_path": 3}', "[" * 50_000, " " * (MOST_BYTES + 1)],
    ids=["empty", "nothing", "list", "number", "deep", "long"],
)
def test_a_configuration_that_names_no_base(tmp_path, text):
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(InputError, match=r"adapter_config\.json: (cannot be read|names no model)"):
        contents_of(str(tmp_path))


def test_peft_is_not_asked_about_one_that_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("peft.PeftModel.from_pretrained", lambda *_: pytest.fail("peft read it"))
    with pytest.raises(InputError, match="plain names"):
        with_adapter(torch.nn.Linear(1, 1), written(tmp_path, target_modules=SLOW))


def test_an_adapter_on_itself_is_refused_wherever_it_is_loaded(tmp_path):
    """It was loaded for as long as Python's stack held."""
    for here, there in (("one", "other"), ("other", "one")):
        written(tmp_path / here, base_model_name_or_path=str(tmp_path / there))
    for load in (contents_of, load_causal, SavedLikelihood.load):
        with pytest.raises(InputError, match="put on itself") as caught:
            load(str(tmp_path / "one"))
        assert "\n" not in str(caught.value)


def test_adapters_are_not_put_on_each_other_without_end(tmp_path):
    for number in range(MOST_ADAPTERS + 2):
        base = str(tmp_path / f"a{number + 1}")
        written(tmp_path / f"a{number}", base_model_name_or_path=base)
    with pytest.raises(InputError, match=f"more than {MOST_ADAPTERS} adapters"):
        contents_of(str(tmp_path / "a0"))
    assert adapted(tmp_path / "a0") == str(tmp_path / "a1")
