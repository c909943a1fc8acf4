"""What is the same of all examples in tokens: chunks, batches, choices of users, the first look."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from language_models import model_on
from torch.nn.functional import logsigmoid

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import ROUNDING, UserClip
from murmuration.research.bench.language_model import LmBench, examples, saved_model, texts

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
    model_on(base).largest_batch(PAIRS).check_memory(BTL)
    assert max(tried) == 512  # texts of 64 tokens, as long as the model reads
    tried.clear()
    model_on(base).largest_batch(PAIRS, 2).check_memory(BTL)
    assert max(tried) == 2 * texts * 64  # a smaller group never asks for more
    tried = short_of_memory(base, 511)
    with pytest.raises(InputError, match="out of memory: lower --batch-tokens"):
        model_on(base).largest_batch(PAIRS).check_memory(BTL)
    assert len(tried) == 1  # nothing smaller is tried instead


@pytest.mark.usefixtures("one_mebibyte")
def test_memory_for_the_gradients_of_several_users(language_model, monkeypatch):
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2))
    kept, empty = [], torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: kept.append(a[0]) or empty(*a, **k))
    model_on(base).largest_batch(PAIRS).check_memory(BTL, users=7)
    assert kept[0] == 6
    kept.clear()
    model_on(base).largest_batch(PAIRS).check_memory(BTL, users=10**6)
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
    found_D = examples.sum_over_users(*given, shared_passes=together, add=clip.add_to)
    assert torch.equal(found_D, examples.sum_over_users(*given, shared_passes=together))
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
    given = (examples.base.random_theta(), every_N, examples.counts_U, clip.clip_sum, BTL)
    found_D = examples.sum_over_users(*given, local=local, add=clip.add_to)
    assert torch.equal(found_D, examples.sum_over_users(*given, local=local))
    assert found_D.any()


# Users' gradients and losses, architecture by architecture, against transformers by itself. What
# is trained is saved, loaded by transformers (and peft) alone, and differentiated there, one user
# after the other and one text at a time: nothing of this package computes what is expected.


COUNTS = (3, 1, 2)
CLIP = 0.05
#: Of the length of a sum of clipped vectors in float32, whose unit roundoff is 6e-8. Most are below
#: 1e-6; where the rewards of two texts nearly cancel, both sides have lost as many digits: plain
#: transformers is then itself up to 4e-6 from what it computes in float64.
_ENCODERS = ("albert", "bert", "deberta-v2", "electra", "mpnet", "xlm-roberta")
SAME = dict.fromkeys((*_ENCODERS, "roberta"), 3e-6)
USUAL = 2e-6
#: So many times as far from float64 as plain transformers in float32, at most.
AS_PLAIN = 2.5
CAUSAL = (
    "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "opt", "bloom", "mpt", "falcon", "llama", "mistral",
    "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3",
    "olmo", "olmo2", "smollm3", "stablelm", "starcoder2", "cohere", "granite", "glm4",
)  # fmt: skip
ENCODERS = (
    "bert", "roberta", "xlm-roberta", "distilbert", "deberta-v2", "electra", "albert", "mpnet",
    "modernbert",
)  # fmt: skip
TRAINED = ("lora", "full")
DAILY = (
    ("gpt_neox", "reward", "lora"),
    ("roberta", "reward", "full"),
    ("deberta-v2", "reward", "lora"),
)
CASES = [
    pytest.param(*case, marks=() if case in DAILY else pytest.mark.slow)
    for case in (
        *product(CAUSAL, ("reward", "text"), TRAINED),
        *product(ENCODERS, ("reward",), TRAINED),
    )
]
#: What is refused, by kind, and by task or by what is trained.
REFUSED = {
    # Layers that see the tokens of all sequences in one row,
    ("mixtral", "full"): r"'model\.layers\.0\.mlp\.gate' does not keep sequences apart",
    ("qwen3_moe", "full"): r"'model\.layers\.0\.mlp\.gate' does not keep sequences apart",
    ("opt", "full"): r"layers\.0\.final_layer_norm' does not keep sequences apart",
    # or positions, which are the same for all.
    ("mpnet", "full"): r"'mpnet\.encoder\.relative_attention_bias' does not keep sequences apart",
    # Of which transformers has none with a head of one number.
    ("cohere", "reward"): "CohereConfig.* for this kind of AutoModel: .*SequenceClassification",
    ("granite", "reward"): "GraniteConfig.* for this kind of AutoModel: .*SequenceClassification",
}


def data(task, make_rows):
    rows = make_rows(list(COUNTS))
    if task == "reward":
        return Judgements.from_rows(rows)
    found = [{"user_id": row["user_id"], "text": row["chosen"]} for row in rows]
    return UserTexts.from_placed_rows(("f", i, row) for i, row in enumerate(found))


def loaded(base, folder):
    """The saved model, and what is trained in it by name, in the order of θ."""
    import transformers
    from peft import PeftModel

    settings = base.settings
    kind, more = "AutoModelForCausalLM", {}
    if settings.task == "reward":
        kind, more = "AutoModelForSequenceClassification", {"num_labels": 1}
    auto = getattr(transformers, kind)
    if settings.train == "lora":
        model = auto.from_pretrained(settings.path, **more)
        model = PeftModel.from_pretrained(model, folder, is_trainable=True)
    else:
        model = auto.from_pretrained(folder)
    parameters = dict(model.eval().named_parameters())
    with base.differentiable() as trained:
        return model, [parameters[name] for name in trained]


def losses(model, base, found, rows):
    """Of one user's examples, each by itself, by what transformers computes of one text."""
    tokenizer = base.tokenizer

    def reward(prompt, response):
        if tokenizer.sep_token is None:
            given = tokenizer(f"{prompt}\n\n{response}", return_tensors="pt")
        else:
            kinds = getattr(model.config, "type_vocab_size", 0) > 1
            given = tokenizer(prompt, response, return_token_type_ids=kinds, return_tensors="pt")
        return model(**given).logits[0, 0]

    for row in rows:
        if base.settings.task == "text":
            ids = [*tokenizer(found.texts[row])["input_ids"], tokenizer.eos_token_id]
            yield model(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss
        else:
            chosen, rejected = (reward(found.prompts[row], r) for r in found.responses[row])
            yield -logsigmoid(chosen - rejected)


def clipped_sum(model, trained, base, found):
    """The sum of users' clipped mean gradients (D,) float64, and each example's loss."""
    sum_D, each = torch.zeros(base.dimension, dtype=torch.float64), []
    for first, end in pairwise(found.start_U.tolist()):
        mine = torch.stack([*losses(model, base, found, range(first, end))])
        grads = torch.autograd.grad(mine.mean(), trained)
        own_D = base.to_theta(torch.cat([g.reshape(1, -1) for g in grads], dim=1))[0].double()
        sum_D += own_D * min(1.0, ROUNDING * CLIP / float(own_D.norm()))
        each += mine.tolist()
    return sum_D, each


def apart(sum_D, other_D):
    return float((sum_D - other_D).norm() / other_D.norm())


@pytest.mark.parametrize(("kind", "task", "train"), CASES)
def test_sums_and_losses_are_those_of_transformers(
    language_model, make_rows, tmp_path, kind, task, train
):
    settings = BaseSettings(language_model(kind), train, rank=2, task=task)
    if reason := REFUSED.get((kind, train)) or REFUSED.get((kind, task)):
        with pytest.raises(InputError, match=reason):
            model_on(LanguageBase(settings)).trial_examples(PAIRS).check(BTL)
        return
    base, found = LanguageBase(settings), data(task, make_rows)
    model_on(base).trial_examples(PAIRS).check(BTL)
    examples, theta_D = model_on(base).examples(found), base.random_theta()
    base.write(tmp_path, theta_D.numpy())
    model, trained = loaded(base, tmp_path)
    expected_D, each = clipped_sum(model, trained, base, found)
    model.config._experts_implementation = "eager"  # the quick one has no float64
    exact_D, _ = clipped_sum(model.double(), trained, base, found)
    assert expected_D.norm() > 0.1 * CLIP
    rounded = apart(expected_D, exact_D)
    for together in (False, True):
        every_N = torch.arange(len(each))
        clip_sum = UserClip(CLIP).clip_sum
        found_D = examples.sum_over_users(
            theta_D, every_N, examples.counts_U, clip_sum, BTL, shared_passes=together
        )
        assert apart(found_D, expected_D) < SAME.get(kind, USUAL)
        assert apart(found_D, exact_D) < AS_PLAIN * rounded, (apart(found_D, exact_D), rounded)
    if task == "reward":
        ours = BTL.loss(examples.logits_R(theta_D)[:, None], examples.y_R[:, None])
        assert ours.tolist() == pytest.approx(each, rel=1e-5)
    else:
        scored_J = np.diff(examples.tokens.start_T) - 1
        assert examples.accuracy(theta_D.numpy()).loss == pytest.approx(
            np.average(each, weights=scored_J), rel=1e-6
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("task", "train"), [("reward", "full"), ("text", "lora")])
def test_in_shared_passes_of_one_shape_neither_contents_nor_places_change_a_bit(dtype, task, train):
    bench = LmBench(users=6, judgements=2, tokens=24, layers=2, width=64, vocabulary=300, rank=4)
    with saved_model(bench) as path:
        settings = BaseSettings(path, train, rank=4, max_tokens=24, task=task, dtype=dtype)
        base = LanguageBase(settings)
    given = (texts if task == "text" else examples)(bench, base)
    theta_D = base.random_theta()

    def gradients(of):
        every_N = torch.arange(len(of.text_JK))
        chunks = of.user_gradients(theta_D, every_N, of.counts_U, BTL, shared_passes=True)
        return torch.cat([chunk_BD.clone() for chunk_BD in chunks])

    found_UD = gradients(given)
    moved_UD = gradients(given.select(np.array([3, 0, 1, 4, 5, 2])))
    for place, user in enumerate([3, 0, 1, 4, 5, 2]):
        assert torch.equal(moved_UD[place], found_UD[user])
    first = int(given.start_U[1]) * given.text_JK.shape[1] * bench.tokens  # tokens of user 0
    ids = torch.cat([given.tokens.ids[:first], given.tokens.ids[first:].flip(0)])
    other_UD = gradients(replace(given, tokens=replace(given.tokens, ids=ids)))
    assert torch.equal(other_UD[0], found_UD[0])
    assert not torch.equal(other_UD[1], found_UD[1])


def test_padding_is_what_passes_compute_beside_tokens(made):
    examples = made("sft", counts=(3, 1, 2), batch_tokens=1)  # a text, or a judgement, in each
    every = torch.arange(len(examples.text_JK)), examples.counts_U
    lengths_JK = examples.tokens.lengths_T[examples.text_JK]
    each = 1.0 - lengths_JK.sum() / (2 * lengths_JK.max(axis=1)).sum()
    for shared in (False, True):
        assert examples.padding(*every, shared_passes=shared) == pytest.approx(each)
    whole = examples.in_batches(10**6)
    alone, together = (whole.padding(*every, shared_passes=shared) for shared in (False, True))
    users = [whole.text_JK[low:high] for low, high in pairwise(whole.start_U.tolist())]
    computed = sum(text.size * examples.tokens.lengths_T[text].max() for text in users)
    assert alone == pytest.approx(1.0 - lengths_JK.sum() / computed)
    assert together == pytest.approx(1.0 - lengths_JK.mean() / lengths_JK.max())
