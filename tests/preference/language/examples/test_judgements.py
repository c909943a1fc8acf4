"""Users' gradients of judgements as tokens, against automatic differentiation."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.judgements import token_examples
from murmuration.preference.language.machine import MOST_ROW_BYTES
from murmuration.preference.linear.gradients import windows
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip

BTL = preference_model("btl")
TOKEN_COUNTS = [3, 1, 5, 2]


@pytest.fixture
def make_token_examples(language_model, make_rows):
    """A function: examples of four users, θ, sampled judgements and the preference model."""

    def make(kind="gpt2", train="lora", rows=None, schema=PAIRS, **settings):
        base = LanguageBase(BaseSettings(language_model(kind), train, rank=2, **settings))
        judgements = Judgements.from_rows(rows or make_rows(TOKEN_COUNTS), schema=schema)
        examples = token_examples(judgements, base)
        theta_D = 0.1 * torch.randn(base.dimension, generator=torch.Generator().manual_seed(0))
        words = np.arange(len(examples.counts_U), dtype=np.uint64) * 7
        taken = windows(examples.start_U, np.arange(len(words)), 4, words)
        name = "btl" if examples.width == 1 else "plackett-luce"
        return examples, theta_D, taken, preference_model(name, examples.kind, examples.width)

    return make


def differentiated(examples, theta_D, taken, model):
    """Each user's mean gradient by a backward pass of their own, (S, D)."""
    taken_N, taken_S = taken
    base, grads_UD = examples.base, []
    base.put(theta_D)
    for p in base.trained:
        p.requires_grad_(True)
    for part in taken_N.split(taken_S.tolist()):
        loss = torch.zeros(())
        for j in part.tolist():
            texts = examples.text_JK[j]
            there = texts[1:] >= 0
            rewards = base.rewards(examples.tokens, texts[texts >= 0])
            logits = torch.zeros(1, examples.width)
            logits[0, : there.sum()] = rewards[0] - rewards[1:]
            y = examples.y_R.view(-1, examples.width)[j][None]
            loss = loss + model.loss(logits, y).sum()
        gradients = torch.autograd.grad(loss / len(part), base.trained, allow_unused=True)
        pairs = zip(gradients, base.trained, strict=True)
        grads_UD.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs])
        )
    for p in base.trained:
        p.requires_grad_(False)
    return base.to_theta(torch.stack(grads_UD))


def ours(examples, theta_D, taken, model, together=False):
    chunks = examples.user_gradients(theta_D, *taken, model, shared_passes=together)
    return torch.cat([g.clone() for g in chunks])


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("together", [False, True])
def test_equal_to_automatic_differentiation(make_token_examples, kind, train, together):
    given = make_token_examples(kind, train)
    expected = differentiated(*given)
    assert expected.norm(dim=1).min() > 1e-3
    assert (ours(*given, together) - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize(
    ("tokens", "train", "memory"), [(1, "lora", 512), (60, "lora", 512), (0, "full", 1)]
)
def test_batches_change_nothing_but_last_digits(
    make_token_examples, monkeypatch, tokens, train, memory
):
    whole = ours(*make_token_examples(train=train))
    monkeypatch.setitem(MOST_ROW_BYTES, "cpu", memory * 2**20)
    grads_UD = ours(*make_token_examples(train=train, batch_tokens=tokens), together=True)
    torch.testing.assert_close(grads_UD, whole, atol=1e-6, rtol=0)


RESPONSES = ["Save it.", "Bet on it.", "Wait and compare prices.", "Buy it today!"]


def shared_rows(users=5, each=3, prompt="What now?"):
    """Judgements of several users on the same four texts."""
    drawn = np.random.default_rng(0)
    for user, _ in product(range(users), range(each)):
        chosen, rejected = drawn.choice(RESPONSES, 2, replace=False)
        yield {"user_id": f"u{user}", "prompt": prompt, "chosen": chosen, "rejected": rejected}


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("together", [False, True])
def test_once_per_text_is_equal_to_automatic_differentiation(
    make_token_examples, kind, train, together
):
    given = make_token_examples(kind, train, rows=[*shared_rows()], once_per_text=True)
    expected = differentiated(*given)
    assert expected.norm(dim=1).min() > 1e-3
    assert (ours(*given, together) - expected).norm() / expected.norm() < 1e-5


def test_once_per_text_each_text_goes_through_the_network_once(make_token_examples, monkeypatch):
    given, read = make_token_examples(rows=[*shared_rows()], once_per_text=True), []
    rewards = given[0].base.rewards
    monkeypatch.setattr(
        given[0].base, "rewards", lambda tokens, r: (read.extend(r), rewards(tokens, r))[1]
    )
    ours(*given)
    assert sorted(read) == sorted(set(given[0].text_JK.reshape(-1)))


@pytest.mark.parametrize("one_by_one", [False, True])
def test_once_per_text_nobody_moves_another(make_token_examples, monkeypatch, one_by_one):
    """Bit for bit: whoever else is there, whatever they judged, and however users are parted."""
    many = [
        *shared_rows(6),
        {"user_id": "z", "prompt": "And now?", "chosen": "No.", "rejected": "Y"},
    ]
    examples, theta_D, taken, model = make_token_examples(rows=many, once_per_text=True)
    if one_by_one:
        monkeypatch.setattr(type(examples), "_sharing", lambda self, mine: ([one] for one in mine))
    whole = ours(examples, theta_D, taken, model)
    ends = taken[1].cumsum(0).tolist()
    for user, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        alone = ours(examples, theta_D, (taken[0][low:high], taken[1][user : user + 1]), model)
        assert torch.equal(alone[0], whole[user])


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("once_per_text", [False, True])
def test_a_text_without_a_finite_gradient_costs_its_own_users_alone(
    make_token_examples, together, once_per_text
):
    """A token of one user's text, at a model where nothing finite comes of it."""
    own = {"user_id": "z", "prompt": "What now?", "chosen": RESPONSES[0], "rejected": "Lose it."}
    others = [*shared_rows()]
    examples, theta_D, taken, model = make_token_examples(
        train="full", rows=[*others, own], once_per_text=once_per_text
    )
    ids, start_T = examples.tokens.ids.numpy(), examples.tokens.start_T
    of_text = [{*ids[low:high].tolist()} for low, high in pairwise(start_T)]
    mine = int(examples.text_JK[-1, 1])
    token = min(of_text[mine] - set().union(*of_text[:mine], *of_text[mine + 1 :]))
    theta_D[:] = 0.0
    base, start = examples.base, 0
    for trained in base.trained:
        if trained is base.model.get_input_embeddings().weight:
            theta_D[start + token * trained.shape[1]] = math.inf
        start += trained.numel()
    grads_UD = ours(examples, theta_D, taken, model, together)
    assert grads_UD.isfinite().all(dim=1).tolist() == [True] * 5 + [False]
    assert grads_UD[:5].norm(dim=1).min() > 1e-3


@pytest.mark.usefixtures("one_mebibyte")
def test_once_per_text_keeps_to_its_memory(make_token_examples, monkeypatch):
    examples, _, (taken_N, taken_S), _ = make_token_examples(
        rows=[*shared_rows(8)], once_per_text=True
    )
    monkeypatch.setattr(type(examples), "dimension", property(lambda self: 2**18 // 3))
    mine_SN = np.split(taken_N.numpy(), taken_S.cumsum(0)[:-1].numpy())
    chunks = list(examples._sharing(mine_SN))
    np.testing.assert_array_equal(np.concatenate([np.concatenate(c) for c in chunks]), taken_N)
    for chunk in chunks:
        assert len(chunk) == 1 or len(np.unique(examples._texts_of(np.concatenate(chunk)))) <= 3
    assert len(chunks) > 1


def test_once_per_text_the_sum_is_that_of_clipped_vectors(make_token_examples):
    examples, theta_D, taken, model = make_token_examples(
        rows=[*shared_rows()], once_per_text=True, train="full"
    )
    clip = UserClip(0.05)
    expected = clip.clip_sum(differentiated(examples, theta_D, taken, model))
    for add in (None, clip.add_to):
        summed = examples.sum_over_users(theta_D, *taken, clip.clip_sum, model, add=add)
        assert (summed - expected).norm() / expected.norm() < 1e-5


def test_once_per_text_after_local_steps_of_their_own(make_token_examples):
    """Users are at places of their own: as without."""
    given = [
        make_token_examples(rows=[*shared_rows()], once_per_text=shared) for shared in (True, False)
    ]
    for local, bits in ((LocalSteps(2, 0.5), True), (LocalSteps(1, 0.5), False)):
        one, other = (
            torch.cat([g.clone() for g in e.user_gradients(theta_D, *taken, model, local)])
            for e, theta_D, taken, model in given
        )
        assert torch.equal(one, other) if bits else (one - other).norm() < 1e-5 * other.norm()


def test_once_per_text_is_for_judgements_and_layers(language_model):
    for settings in ({"task": "sft"}, {"task": "text"}, {"train": "head"}):
        with pytest.raises(InputError, match="--once-per-text is for --task reward or policy"):
            BaseSettings(language_model("gpt2"), once_per_text=True, **settings)


def test_judgements_over_several_responses(make_token_examples):
    rows = [
        {"user_id": f"u{i % 3}", "prompt": "What now?", "responses": shown, "best": best}
        for i, (shown, best) in enumerate(
            [
                (["Save it.", "Bet on it.", "Wait and compare prices."], 1),
                (["Keep the old one.", "Buy it today!"], 0),
                (["Save it.", "Bet on it.", "Take the loan, live now."], [0, 2]),
                (["Save it.", "Buy it today!", "Bet on it."], 2),
            ]
        )
    ]
    given = make_token_examples(rows=rows, schema=Schema("top-1", 3))
    expected = differentiated(*given)
    assert (ours(*given) - expected).norm() / expected.norm() < 1e-5


def test_the_sum_is_that_of_clipped_vectors(make_token_examples):
    examples, theta_D, taken, model = make_token_examples(batch_tokens=50)
    clip = UserClip(0.05)
    sum_D = examples.sum_over_users(theta_D, *taken, clip.clip_sum, model)
    expected = clip.clip_sum(differentiated(examples, theta_D, taken, model))
    assert (sum_D - expected).norm() / expected.norm() < 1e-5


@pytest.mark.usefixtures("one_mebibyte")
def test_no_more_users_are_kept_than_fit_into_memory(make_token_examples, monkeypatch):
    examples, theta_D, taken, model = make_token_examples(train="full")
    monkeypatch.setattr(type(examples), "dimension", property(lambda self: 150_000))
    monkeypatch.setattr(type(examples), "_add", lambda *_: None)
    monkeypatch.setattr(examples.base, "put", lambda _: None)
    chunks = examples.user_gradients(theta_D, *taken, model, shared_passes=True)
    assert [len(g) for g in chunks] == [1, 1, 1, 1]


def test_local_steps_are_each_users_own(make_token_examples):
    examples, theta_D, taken, model = make_token_examples(rows=None)
    local = LocalSteps(3, 0.5)
    moves_UD = torch.cat(
        [g.clone() for g in examples.user_gradients(theta_D, *taken, model, local)]
    )
    ends = taken[1].cumsum(0).tolist()
    for user, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        at_D, alone = theta_D, (taken[0][low:high], taken[1][user : user + 1])
        for _ in range(3):
            at_D = at_D - 0.5 * differentiated(examples, at_D, alone, model)[0]
        torch.testing.assert_close(moves_UD[user], theta_D - at_D, atol=1e-5, rtol=1e-4)


def test_logits_are_differences_of_rewards(make_token_examples):
    examples, theta_D, _, _ = make_token_examples(batch_tokens=40)
    logits_R = examples.logits_R(theta_D)
    examples.base.put(theta_D)
    for j in (0, 4, 10):
        rewards = examples.base.rewards(examples.tokens, examples.text_JK[j])
        torch.testing.assert_close(logits_R[j], rewards[0] - rewards[1], atol=1e-5, rtol=1e-5)
    chosen = examples.select(np.array([2, 0]))
    assert chosen.counts_U.tolist() == [5, 3]
    torch.testing.assert_close(
        chosen.logits_R(theta_D), torch.cat([logits_R[4:9], logits_R[:3]]), atol=1e-5, rtol=1e-5
    )


def test_a_response_that_does_not_fit_names_its_row(make_token_examples, make_rows):
    rows = make_rows([2])
    rows[1]["chosen"] = "save it " * 40
    with pytest.raises(InputError, match="row 2: a response of 80 tokens"):
        make_token_examples(rows=rows)
    base = make_token_examples()[0].base
    data, left_out = Judgements.from_rows(rows), LeftOut("isolate")
    examples = token_examples(data, base, left_out)
    assert examples.counts_U.tolist() == [1]
    (reason,) = left_out.reasons
    assert reason.startswith("row 2: a response of ") and "does not fit" in reason
    assert torch.equal(
        examples.tokens.ids, token_examples(Judgements.from_rows(rows[:1]), base).tokens.ids
    )
    assert token_examples(data.keep(np.zeros(2, bool)), base).counts_U.tolist() == [0]
