"""Loading a language model, θ, and what is said when it cannot be."""

import json

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError
from murmuration.preference.language.base_model import (
    BaseSettings,
    LanguageBase,
    language_base,
    out_of_memory_advice,
)


@pytest.fixture
def tokens():
    def make(base):
        return base.texts(["What now?", "What?"], ["Save it.", "Bet on it."])

    return make


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_rewards_are_those_of_transformers(language_model, tokens, kind, train):
    base = LanguageBase(BaseSettings(language_model(kind), train))
    texts = tokens(base)
    base.put(torch.zeros(base.dimension))
    assert not base.rewards(texts, np.arange(2)).any()  # a head that was not there is zero
    base.put(0.3 * torch.randn(base.dimension, generator=torch.Generator().manual_seed(0)))
    together = base.rewards(texts, np.arange(2))
    assert together.abs().min() > 1e-3
    for text in range(2):
        ids = texts.ids[texts.start_T[text] : texts.start_T[text + 1]].long()[None]
        more = {"token_type_ids": texts.segments(np.array([text]), ids.shape[1])}
        alone = base.model(input_ids=ids, **(more if kind == "bert" else {})).logits
        torch.testing.assert_close(together[text], alone[0, 0])


def test_theta_is_a_change_of_what_is_trained(language_model):
    base = LanguageBase(BaseSettings(language_model("gpt2"), "full"))
    before = [p.clone() for p in base.trained]
    base.put(torch.full((base.dimension,), 0.5))
    for parameter, former in zip(base.trained[:-1], before[:-1], strict=True):
        torch.testing.assert_close(parameter, former + 0.5)
    # The head, 16 wide, is counted in quarters.
    torch.testing.assert_close(base.trained[-1], before[-1] + 0.125)
    ones_1D = base.to_theta(torch.ones(1, base.dimension))
    assert ones_1D[0, :-16].eq(1).all()
    assert ones_1D[0, -16:].eq(0.25).all()
    base.put(np.zeros(base.dimension))
    assert all(torch.equal(p, b) for p, b in zip(base.trained, before, strict=True))
    with pytest.raises(ValueError, match=r"for .* parameters"):
        base.put(torch.zeros(3))


def test_it_begins_the_same_everywhere(language_model):
    settings = BaseSettings(language_model("gpt2"), "lora", rank=4)
    torch.manual_seed(1)
    first = LanguageBase(settings)
    torch.manual_seed(2)
    second = LanguageBase(settings)
    for one, other in zip(first.trained, second.trained, strict=True):
        assert torch.equal(one, other)


def test_lora_of_other_layers(language_model):
    default = LanguageBase(BaseSettings(language_model("gpt2"), "lora", rank=2))
    other = LanguageBase(BaseSettings(language_model("gpt2"), "lora", rank=2, targets="c_fc"))
    head = 16
    assert default.dimension == 2 * 2 * (16 + 48) + head
    assert other.dimension == 2 * 2 * (16 + 64) + head


def test_a_description_makes_an_equal_one(language_model):
    settings = BaseSettings(language_model("gpt2"), "lora", rank=2, max_tokens=9)
    base = language_base({"kind": "language-model", **vars(settings)})
    assert language_base(json.loads(json.dumps(base.to_config()))).settings == base.settings


def test_the_context_is_the_models_if_that_is_shorter(language_model):
    assert LanguageBase(BaseSettings(language_model("gpt2"))).texts.limit == 64


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train": "half"}, "--train"),
        ({"rank": 0}, "--lora-rank"),
        ({"max_tokens": 0}, "--max-tokens"),
        ({"batch_tokens": -1}, "--batch-tokens"),
        ({"memory": 0}, "--user-memory"),
        ({"task": "write"}, "--task"),
        ({"task": "sft", "train": "head"}, "--task sft has no head of its own to train"),
    ],
)
def test_settings_that_no_model_could_have(changes, said):
    with pytest.raises(InputError, match=said):
        BaseSettings("x", **changes)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                     "allocate memory: you tried to allocate 4 bytes. Error code 12"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    ],
)  # fmt: skip
def test_out_of_memory_names_what_to_lower(error):
    with (
        pytest.raises(InputError, match=r"--batch-tokens .* --user-memory"),
        out_of_memory_advice(),
    ):
        raise error


def test_what_torch_says_on_a_processor_is_known():
    with pytest.raises(InputError, match="out of memory: lower"), out_of_memory_advice():
        torch.empty(2**60, dtype=torch.uint8)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes do not match"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("could not pin memory"),
        RuntimeError("out of memory, said a layer"),
    ],
)
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(RuntimeError) as raised, out_of_memory_advice():
        raise error
    assert raised.value is error


@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_random_theta_moves_everything(language_model, train):
    base = LanguageBase(BaseSettings(language_model("gpt2"), train))
    before = [p.clone() for p in base.trained]
    base.put(base.random_theta())
    assert all((p != b).all() for p, b in zip(base.trained, before, strict=True))
    assert torch.equal(base.random_theta(), base.random_theta())
