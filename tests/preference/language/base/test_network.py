"""Loading a language model, θ, and what is said when it cannot be."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from damage import no_file_above

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.base import network
from murmuration.preference.language.base.network import LanguageBase, language_base
from murmuration.preference.language.base.settings import BaseSettings


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
    base.put(torch.randn(base.dimension, generator=torch.Generator().manual_seed(0)))
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
    units_1D, at = base.to_theta(torch.ones(1, base.dimension)), 0
    for parameter, former in zip(base.trained, before, strict=True):
        unit_P = units_1D[0, at : at + former.numel()]
        at += former.numel()
        # What θ counts in is the size of the numbers where they begin, to the next power of two;
        # of zeros 1 (biases), or (the head, 16 wide) what keeps the length of what comes in.
        zero = 1.0 if former.ndim == 1 else 1 / math.sqrt(former.shape[1])
        size = float(former.square().mean().sqrt()) or zero
        assert unit_P.unique().tolist() == [2.0 ** math.ceil(math.log2(size) - 0.5)]
        torch.testing.assert_close(parameter, former + 0.5 * unit_P[0])
    assert units_1D[0, -16:].eq(0.25).all()
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


def test_a_description_makes_an_equal_one_and_one_of_another_type_another(language_model):
    settings = BaseSettings(language_model("gpt2"), "lora", rank=2, max_tokens=9)
    base = language_base({"kind": "language-model", **vars(settings)})
    assert language_base(json.loads(json.dumps(base.to_config()))).settings == base.settings
    half = language_base({**base.to_config(), "dtype": "bfloat16"})
    assert (base.to_config()["dtype"], half.to_config()["dtype"]) == ("float32", "bfloat16")


@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_random_theta_moves_everything(language_model, train):
    base = LanguageBase(BaseSettings(language_model("gpt2"), train))
    before = [p.clone() for p in base.trained]
    base.put(base.random_theta())
    assert all((p != b).all() for p, b in zip(base.trained, before, strict=True))
    assert torch.equal(base.random_theta(), base.random_theta())


def moved(base, theta_D):
    """How far the last states move, over how long they are at θ = 0."""
    ids_RL, found = torch.arange(3, 15).reshape(2, 6), []
    for at_D in (torch.zeros(base.dimension), theta_D):
        base.put(at_D)
        with torch.no_grad():
            found.append(base.model.get_base_model().base_model(input_ids=ids_RL)[0])
    return float((found[1] - found[0]).norm() / found[0].norm())


def test_equal_noise_moves_narrow_and_wide_models_alike(language_model):
    """In weights' own units it would move the widest several times as far as the narrowest."""
    found, unscaled = [], []
    for width, rank in [(16, 2), (64, 8), (512, 16)]:
        path = language_model("gpt2", n_embd=width, initializer_range=width**-0.5)
        base = LanguageBase(BaseSettings(path, rank=rank, task="sft"))
        units_D = base.to_theta(torch.ones(1, base.dimension))[0]
        noise_SD = 0.1 * torch.randn(6, base.dimension, generator=torch.Generator().manual_seed(0))
        found.append(np.mean([moved(base, noise_D) for noise_D in noise_SD]))
        unscaled.append(np.mean([moved(base, noise_D / units_D) for noise_D in noise_SD]))
    assert max(found) < 1.6 * min(found)
    assert max(unscaled) > 4.0 * min(unscaled)


@pytest.mark.parametrize(("rank", "unit"), [(2, 1 / 2), (4, 1 / 2), (8, 1 / 4), (32, 1 / 8)])
def test_a_size_halfway_between_two_powers_is_the_lower_one(
    language_model, monkeypatch, rank, unit
):
    """Whichever way a C library rounds its logarithms; else machines would have different θ."""
    path, log2 = language_model("gpt2"), math.log2
    for apart in (-1, 0, 1):
        monkeypatch.setattr(math, "log2", lambda x, k=apart: log2(x) * (1.0 + k * 2.0**-52))
        base = LanguageBase(BaseSettings(path, rank=rank, task="sft"))
        units = base.to_theta(torch.ones(1, base.dimension))[0].split(
            [p.numel() for p in base.trained]
        )
        second = [u for u, p in zip(units, base.trained, strict=True) if not p.any()]
        assert second
        assert all(unit_P.eq(unit).all() for unit_P in second)


def test_weights_that_are_not_finite_are_refused(language_model, tmp_path):
    from transformers import AutoModelForCausalLM

    path = shutil.copytree(language_model("gpt2"), tmp_path / "base")
    for value in (math.nan, math.inf):
        model = AutoModelForCausalLM.from_pretrained(path)
        with torch.no_grad():
            model.transformer.h[0].ln_1.weight[3] = value
        model.save_pretrained(path)
        with pytest.raises(InputError, match="not finite"):
            LanguageBase(BaseSettings(str(path), "full"))


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "electra"])
def test_a_server_without_weights_knows_what_is_trained_and_where_the_head_is(language_model, kind):
    """DistilBERT's has a layer below it, which is drawn, and RoBERTa's is one of two in a head."""
    settings = BaseSettings(language_model(kind), rank=2)
    node, server = LanguageBase(settings), LanguageBase(settings, weights=False)
    assert (node.dimension, node._names) == (server.dimension, server._names)
    of_head = [node.is_of_head(name) for name in node._names]
    parts = zip(node.trained, of_head, strict=True)
    node.put(torch.cat([torch.full((p.numel(),), float(here)) for p, here in parts]))
    head = node.model.get_base_model().get_submodule(node.head.split(".")[0])
    layer = head.modules_to_save["default"]
    layer = layer.out_proj if "." in node.head else layer
    assert layer.weight.eq(0.25).all()
    assert layer.bias.eq(1.0).all()
    assert sum(p.numel() for p, here in zip(node.trained, of_head, strict=True) if here) == 17


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("train", ["lora", "full"])
def test_what_is_trained_has_a_float32_master(language_model, train, dtype):
    """The network has θ's sum with where it began, rounded once."""
    base = LanguageBase(BaseSettings(language_model("llama"), train, rank=2, dtype=dtype))
    exact = LanguageBase(BaseSettings(language_model("llama"), train, rank=2, dtype="float32"))
    base.put(torch.zeros(base.dimension))
    before = [p.clone() for p in base.trained]
    small_D = torch.full((base.dimension,), 2.0**-18)
    base.put(small_D)
    pairs = [
        (p[b.abs() > 0.1], b[b.abs() > 0.1]) for p, b in zip(base.trained, before, strict=True)
    ]
    same_P = torch.cat([p == b for p, b in pairs])
    assert len(same_P) > 10
    assert same_P.float().mean() > 0.9  # the network does not see most of it
    base.put(2.0**12 * small_D)
    exact.put(2.0**12 * small_D)
    assert any((p != b).any() for p, b in zip(base.trained, before, strict=True))
    for rounded, whole in zip(base.trained, exact.trained, strict=True):
        assert rounded.dtype == getattr(torch, dtype)
        if train == "full":  # whose beginning was not rounded, as LoRA's was that peft drew
            assert torch.equal(rounded, whole.to(rounded.dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rotations_are_made_of_float32(language_model, dtype):
    """As transformers has them: rounded, angles would be wrong by radians far into a text."""
    base = LanguageBase(BaseSettings(language_model("llama"), dtype=dtype))
    exact = LanguageBase(BaseSettings(language_model("llama"), dtype="float32"))
    buffers = dict(base.model.named_buffers())
    assert any("inv_freq" in name for name in buffers)
    for name, buffer in exact.model.named_buffers():
        assert torch.equal(buffers[name], buffer)


@pytest.mark.parametrize("train", ["lora", "full"])
def test_what_is_saved_is_not_rounded(language_model, tmp_path, train):
    from safetensors.torch import load_file

    base = LanguageBase(BaseSettings(language_model("llama"), train, rank=2, dtype="bfloat16"))
    theta_D = base.random_theta().numpy()
    base.write(tmp_path, theta_D)
    (weights,) = tmp_path.glob("*model.safetensors")
    saved = load_file(weights)
    assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
    head = next(tensor for name, tensor in saved.items() if name.endswith("score.weight"))
    torch.testing.assert_close(
        head.reshape(-1), torch.from_numpy(theta_D[-16:]) / 4, rtol=0, atol=0
    )
    assert not torch.equal(head, head.bfloat16().float())
    assert {p.dtype for p in base.model.parameters()} == {torch.bfloat16}  # as before


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("task", ["reward", "sft"])
def test_there_is_no_cache_of_keys_and_values(language_model, tokens, kind, task, monkeypatch):
    if (kind, task) == ("bert", "sft"):
        pytest.skip("an encoder")
    from transformers import cache_utils

    base = LanguageBase(BaseSettings(language_model(kind), task=task))
    made = []
    monkeypatch.setattr(cache_utils.Cache, "__init__", lambda *_, **__: made.append(1))
    texts = tokens(base)
    every = np.arange(2)
    found = base.rewards(texts, every) if task == "reward" else base.states(texts, every)[0]
    assert torch.isfinite(found).all()
    assert not made
    assert base.attention == "sdpa"


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("task", ["reward", "sft"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_without_weights_there_are_names_shapes_and_tokens(language_model, kind, task, train):
    if (kind, task) == ("bert", "sft"):
        pytest.skip("an encoder")
    settings = BaseSettings(language_model(kind), train, rank=2, task=task)
    whole, outline = LanguageBase(settings), LanguageBase(settings, weights=False)
    assert outline.dimension == whole.dimension
    assert outline.words == whole.words
    assert outline.to_config() == whole.to_config()
    assert [p.shape for p in outline.trained] == [p.shape for p in whole.trained]
    assert all(p.is_meta for p in outline.model.parameters())
    assert outline.texts.limit == whole.texts.limit


@pytest.mark.parametrize("most", [0, 1000, 3000])
def test_a_full_disk_is_an_error_of_the_system_whichever_library_writes(
    language_model, tmp_path, most
):
    base = LanguageBase(BaseSettings(language_model("llama"), "head"))
    with no_file_above(most), pytest.raises(OSError, match="File too large") as it:
        base.write(tmp_path, base.random_theta().numpy())
    assert it.value.errno == 27


def test_a_tokenizer_that_finds_no_room_is_an_error_of_the_system(
    language_model, tmp_path, monkeypatch
):
    def no_room(folder):
        raise Exception("No space left on device (os error 28)")

    base = LanguageBase(BaseSettings(language_model("llama"), "head"))
    monkeypatch.setattr(base.tokenizer, "save_pretrained", no_room)
    with pytest.raises(OSError, match="No space left") as it:
        base.save(tmp_path)
    assert (it.value.errno, it.value.filename) == (28, str(tmp_path))


@pytest.mark.parametrize("task", ["reward", "policy"])
def test_a_base_that_is_replaced_while_it_is_loaded_is_refused(
    language_model, tmp_path, monkeypatch, task
):
    """A model, and states in the cache, would stand under the other one's digest."""
    shutil.copytree(language_model("llama"), tmp_path / "m")
    name = "load_with_head" if task == "reward" else "load_causal"
    load = getattr(network, name)

    def replaced(*given):
        result = load(*given)
        with (tmp_path / "m" / "config.json").open("a") as file:
            file.write("\n")
        return result

    monkeypatch.setattr(network, name, replaced)
    with pytest.raises(InputError, match="another model is here"):
        LanguageBase(BaseSettings(str(tmp_path / "m"), task=task, rank=2))


def test_sizes_are_of_one_network(language_model):
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2))
    other = base.in_batches(99)
    assert (other.batch_tokens, base.batch_tokens) == (99, 2048)
    assert other.model is base.model
    assert other.in_batches(0) is base
    assert other is base.in_batches(99)
    assert other.to_config() == {**base.to_config(), "batch_tokens": 99}
    described = {**base.to_config(), "batch_tokens": 7}
    one, two_ = (language_base(described | {"batch_tokens": n}) for n in (7, 8))
    assert one.model is two_.model
    assert (one.batch_tokens, two_.batch_tokens) == (7, 8)
