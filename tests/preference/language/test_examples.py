"""What is the same of all examples in tokens: chunks, batches, choices of users, the first look."""

import numpy as np
import pytest
import torch
from learnt import model_on

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip

BTL = preference_model("btl")


@pytest.fixture
def made(language_model, make_rows):
    def make(task="sft", train="full", counts=(3, 1, 2), **settings):
        base = LanguageBase(BaseSettings(language_model("gpt2"), train, task=task, **settings))
        return model_on(base).examples(Judgements.from_rows(make_rows(list(counts))))

    return make


@pytest.mark.parametrize("task", ["reward", "sft"])
def test_some_users_are_those_users(made, task):
    examples = made(task)
    chosen = examples.select(np.array([2, 0]))
    assert type(chosen) is type(examples)
    assert chosen.counts_U.tolist() == [2, 3]
    np.testing.assert_array_equal(
        chosen.text_JK, np.concatenate([examples.text_JK[4:], examples.text_JK[:3]])
    )
    assert examples.select(np.array([], dtype=np.int64)).counts_U.tolist() == []


@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_head_can_learn_alone(made, train):
    """Its gradient is what it is beside the others', which are zero."""
    examples = made("reward", train)
    theta_D = examples.base.random_theta()
    head, every_N = slice(*examples.base.head_part), torch.arange(6)
    whole = [g.clone() for g in examples.user_gradients(theta_D, every_N, examples.counts_U, BTL)]
    alone = [
        g.clone()
        for g in examples.of_head().user_gradients(theta_D, every_N, examples.counts_U, BTL)
    ]
    for whole_1D, alone_1D in zip(whole, alone, strict=True):
        assert torch.equal(alone_1D[:, head], whole_1D[:, head])
        assert whole_1D[:, head].any()
        alone_1D[:, head] = 0.0
        assert not alone_1D.any()
    with pytest.raises(ValueError, match="no head of its own"):
        made("sft").of_head()


def test_what_is_used_outside_its_layer_is_found_before_the_first_round(made):
    made().check(BTL)
    examples = made()
    network = examples.base.model
    forward = network.forward

    def elsewhere(**inputs):
        out = forward(**inputs)
        out.logits = out.logits + network.transformer.ln_f.weight.sum() * out.logits.tanh()
        return out

    network.forward = elsewhere
    with pytest.raises(InputError, match=r"'transformer.ln_f.weight' is used outside its own"):
        examples.check(BTL)
    assert not any(p.requires_grad or p.grad is not None for p in examples.base.trained)


def fused(network):
    """One layer's MLP as one operation on the layers' weights, as fused kernels have it."""
    mlp = network.transformer.h[0].mlp

    def forward(x):
        inner = torch.nn.functional.gelu(x @ mlp.c_fc.weight + mlp.c_fc.bias, approximate="tanh")
        return inner @ mlp.c_proj.weight + mlp.c_proj.bias

    mlp.forward = forward


@pytest.mark.parametrize("task", ["reward", "sft", "text"])
def test_a_fused_layer_is_refused_though_a_new_head_is_zero(language_model, task):
    base = LanguageBase(BaseSettings(language_model("gpt2"), "full", task=task))
    examples = model_on(base).trial_examples(PAIRS)
    examples.check(BTL)
    fused(base.model)
    with pytest.raises(InputError, match=r"'transformer\.h\.0\.mlp\.c_fc\.weight' is used outside"):
        examples.check(BTL)
    assert all(not p.requires_grad and p.grad is None for p in base.trained)


def test_lora_beside_a_fused_layer_is_refused_too(language_model):
    """Whose LoRA is in effect, and whose hooks do not see it."""
    base = LanguageBase(BaseSettings(language_model("gpt2"), "lora", rank=2, targets="c_fc"))
    layer = base.model.get_base_model().transformer.h[0].mlp.c_fc

    def forward(x):
        change = layer.lora_A["default"].weight.T @ layer.lora_B["default"].weight.T
        return layer.base_layer(x) + x @ change

    model_on(base).trial_examples(PAIRS).check(BTL)
    layer.forward = forward
    with pytest.raises(InputError, match=r"lora_A.* is used outside its own layer"):
        model_on(base).trial_examples(PAIRS).check(BTL)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_check_leaves_the_base_where_it_begins(language_model, kind, train):
    base = LanguageBase(BaseSettings(language_model(kind), train))
    before = [p.clone() for p in base.trained]
    model_on(base).trial_examples(Schema("ranking", 3)).check(
        preference_model("plackett-luce", "ranking", 2)
    )
    assert all(torch.equal(p, b) for p, b in zip(base.trained, before, strict=True))


def test_trial_texts_are_of_many_lengths_and_no_words_of_anybody(language_model):
    base = LanguageBase(BaseSettings(language_model("gpt2")))
    examples = model_on(base).trial_examples(PAIRS)
    assert len(set(examples.tokens.lengths_T.tolist())) == 8
    assert examples.counts_U.tolist() == [2, 2]
    assert base.tokenizer.pad_token_id not in examples.tokens.ids


def test_gradients_that_are_all_zero_show_nothing(language_model):
    base = LanguageBase(BaseSettings(language_model("gpt2")))
    forward = base.model.forward

    def nothing(**inputs):
        out = forward(**inputs)
        out.logits = 0.0 * out.logits
        return out

    base.model.forward = nothing
    with pytest.raises(InputError, match="no finite gradient that is not zero"):
        model_on(base).trial_examples(PAIRS).check(BTL)


def short_of_memory(base, most):
    """A network that runs out of memory with more tokens than that at a time; what was tried."""
    tried = []

    def limited(_, args):
        tried.append(args[0].numel())
        if tried[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    base.model.get_input_embeddings().register_forward_pre_hook(limited)
    return tried


@pytest.mark.parametrize(("task", "texts"), [("reward", 2), ("sft", 2), ("text", 1)])
def test_memory_is_tried_with_the_largest_batch(language_model, task, texts):
    base = LanguageBase(BaseSettings(language_model("gpt2"), task=task, batch_tokens=512))
    tried = short_of_memory(base, 512)
    model_on(base).largest_batch(PAIRS).probe(BTL)
    assert max(tried) == 512  # texts of 64 tokens, as long as the model reads
    tried.clear()
    model_on(base).largest_batch(PAIRS, 2).probe(BTL)
    assert max(tried) == 2 * texts * 64  # a smaller group never asks for more
    tried = short_of_memory(base, 511)
    with pytest.raises(InputError, match="out of memory: lower --batch-tokens"):
        model_on(base).largest_batch(PAIRS).probe(BTL)
    assert len(tried) == 1  # nothing smaller is tried instead


@pytest.mark.parametrize(
    ("task", "train"),
    [("reward", "lora"), ("reward", "full"), ("sft", "lora"), ("policy", "lora"), ("text", "full")],
)
def test_who_keeps_activations_is_told_of_checkpointing(language_model, task, train):
    for checkpointing in (False, True):
        settings = {"task": task, "batch_tokens": 512, "checkpointing": checkpointing}
        base = LanguageBase(BaseSettings(language_model("gpt2"), train, **settings))
        short_of_memory(base, 511)
        with pytest.raises(InputError, match="lower --batch-tokens") as refused:
            model_on(base).largest_batch(PAIRS).probe(BTL)
        said = str(refused.value)
        assert "\n" not in said and ("--checkpointing" in said) != checkpointing


def test_checkpointing_is_no_advice_where_nothing_goes_back(language_model):
    base = LanguageBase(BaseSettings(language_model("gpt2"), task="policy", batch_tokens=512))
    short_of_memory(base, 3)
    with pytest.raises(InputError, match="lower --batch-tokens") as refused:
        model_on(base).largest_batch(PAIRS).logits_R(torch.zeros(base.dimension))
    assert "--checkpointing" not in str(refused.value)


def test_memory_for_the_gradients_of_several_users(language_model, monkeypatch):
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2, memory=1))
    kept, empty = [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: kept.append(a[0]) or empty(*a, **k))
    model_on(base).largest_batch(PAIRS).probe(BTL, users=7)
    assert kept[0] == 6
    kept.clear()
    model_on(base).largest_batch(PAIRS).probe(BTL, users=10**6)
    assert kept[0] == 2**20 // (4 * base.dimension) - 1


def test_a_node_without_users_has_nothing_to_look_at(made):
    examples = made().select(np.array([], dtype=np.int64))
    examples.check(BTL)
    none = torch.zeros(0, dtype=torch.int64)
    found = examples.sum_over_users(
        torch.zeros(examples.dimension), none, none, lambda g: g.sum(0), BTL
    )
    assert not found.any()


def clipped_rows(base, examples, users=None, clip=0.02):
    """Of each user alone: their gradient, and what is released of it."""
    theta_D = 0.1 * torch.randn(base.dimension, generator=torch.Generator().manual_seed(0))
    every_N, counts_U = torch.arange(len(examples.text_JK)), examples.counts_U
    rows = [row.clone() for row in examples.user_gradients(theta_D, every_N, counts_U, BTL)]
    sums = [UserClip(clip).clip_sum(row) for row in rows]
    return torch.cat(rows), torch.stack(sums)


#: Unit roundoffs are 2^-9 and 2^-12. On the way of a gradient through these networks there are some
#: hundred roundings, which add up as a random walk: 32 unit roundoffs are a thousand of them (28
#: were found, and in both types nearly the same number). Gradients that do not belong together are
#: 1.4 apart.
APART = {"bfloat16": 32 * 2**-9, "float16": 32 * 2**-12}


@pytest.mark.parametrize("dtype", APART)
@pytest.mark.parametrize(
    ("kind", "train", "task"),
    [
        ("gpt2", "lora", "reward"),
        ("llama", "full", "reward"),
        ("bert", "lora", "reward"),
        ("llama", "lora", "sft"),
        ("gpt2", "full", "text"),
    ],
)
def test_half_the_bits_give_nearly_the_gradients_of_float32(
    language_model, kind, train, task, dtype
):
    def made(dtype):
        settings = BaseSettings(language_model(kind), train, rank=2, task=task, dtype=dtype)
        base = LanguageBase(settings)
        return base, model_on(base).trial_examples(PAIRS)

    exact_BD, _ = clipped_rows(*made("float32"))
    base, examples = made(dtype)
    examples.check(BTL)  # plain gradients of the same type agree, too
    assert {p.dtype for p in base.model.parameters()} == {getattr(torch, dtype)}
    found_BD, sums_BD = clipped_rows(base, examples)
    assert found_BD.dtype == torch.float32
    error = (found_BD - exact_BD).norm(dim=1) / exact_BD.norm(dim=1)
    assert 0.0 < error.max() < APART[dtype]
    assert exact_BD.norm(dim=1).min() > 0.02  # so that all are clipped, and the bound holds:
    assert (sums_BD.norm(dim=1) <= 0.02).all()
    assert (sums_BD.norm(dim=1) > 0.01999).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize(
    ("kind", "task"), [("gpt2", "reward"), ("llama", "text"), ("bert", "reward"), ("gpt2", "sft")]
)
def test_checkpointing_changes_no_bit(language_model, kind, task, train, dtype):
    found = []
    for checkpointing in (False, True):
        settings = BaseSettings(
            language_model(kind), train, 2, task=task, dtype=dtype, checkpointing=checkpointing
        )
        base, passes = LanguageBase(settings), []
        names = [name for name, _ in base.model.named_modules()]
        inside = next(name for name in names if name.endswith(("0.mlp", "0.intermediate")))
        # Before it: recomputation stops at what is needed last.
        base.model.get_submodule(inside).register_forward_pre_hook(
            lambda *_, passes=passes: passes.append(1)
        )
        examples = model_on(base).trial_examples(PAIRS)
        examples.check(BTL)
        passes.clear()
        found.append(clipped_rows(base, examples)[0])
        assert len(passes) == (4 if checkpointing else 2)  # two users
    assert found[0].any(dim=1).all()
    assert torch.equal(*found)


def test_an_architecture_without_blocks_cannot_be_checkpointed(language_model, monkeypatch):
    from transformers import modeling_layers

    class Unknown(torch.nn.Module):
        pass

    monkeypatch.setattr(modeling_layers, "GradientCheckpointingLayer", Unknown)
    with pytest.raises(InputError, match="nothing in a GPT2ForSequenceClassification is known as"):
        LanguageBase(BaseSettings(language_model("gpt2"), checkpointing=True))


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("kind", "task", "train", "more"),
    [
        ("gpt2", "reward", "full", {}),
        ("gpt2", "sft", "full", {"dtype": "bfloat16"}),
        ("gpt2", "reward", "lora", {"dtype": "float16"}),
        ("llama", "reward", "full", {"checkpointing": True}),
        ("llama", "sft", "lora", {}),
        ("bert", "reward", "full", {"dtype": "bfloat16"}),
    ],
)
def test_a_row_that_is_used_again_has_the_bits_of_a_new_one(
    language_model, make_rows, kind, task, train, more, together
):
    """Whoever was computed before, and whether what they left is added up where it can be alone."""
    base = LanguageBase(BaseSettings(language_model(kind), train, task=task, rank=2, **more))
    people = Judgements.from_rows(make_rows([2, 1, 3, 2]))
    examples, theta_D = model_on(base).examples(people), base.random_theta()
    every_N, counts_U, clip = torch.arange(len(examples.text_JK)), examples.counts_U, UserClip(0.02)
    given = (theta_D, every_N, counts_U, clip.clip_sum, BTL)
    found_D = examples.sum_over_users(*given, batch_users=together, add=clip.add_to)
    assert torch.equal(found_D, examples.sum_over_users(*given, batch_users=together))
    ends = counts_U.cumsum(0).tolist()
    alone = [
        next(examples.user_gradients(theta_D, every_N[low:high], counts_U[user : user + 1], BTL))
        for user, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    ]
    if not together:
        rows = examples.user_gradients(theta_D, every_N, counts_U, BTL)
        assert all(torch.equal(*pair) for pair in zip(alone, rows, strict=True))
        assert torch.equal(found_D, clip.clip_sum(torch.cat(alone)))
    assert found_D.norm() > 0.02


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_local_steps_are_added_up_where_they_lead(made, rate):
    """The second step touches other words than the first only if its batch does: all are told."""
    examples, clip, local = made(batch_tokens=30), UserClip(0.02), LocalSteps(3, rate)
    every_N = torch.arange(len(examples.text_JK))
    given = (examples.base.random_theta(), every_N, examples.counts_U, clip.clip_sum, BTL, local)
    found_D = examples.sum_over_users(*given, add=clip.add_to)
    assert torch.equal(found_D, examples.sum_over_users(*given))
    assert found_D.any()
