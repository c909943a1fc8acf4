"""Users' gradients of language models: against automatic differentiation, however they are cut."""

import numpy as np
import pytest
import torch

from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.language.examples import token_examples
from murmuration.preference.linear.gradients import windows
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip

COUNTS = [3, 1, 5, 2]


@pytest.fixture
def made(language_model, make_rows):
    """A function: examples of four users, θ, sampled judgements and the preference model."""

    def make(kind="gpt2", train="lora", rows=None, schema=PAIRS, **settings):
        base = LanguageBase(BaseSettings(language_model(kind), train, rank=2, **settings))
        judgements = Judgements.from_rows(rows or make_rows(COUNTS), schema=schema)
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
    base, found = examples.base, []
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
        found.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs])
        )
    for p in base.trained:
        p.requires_grad_(False)
    return base.to_theta(torch.stack(found))


def ours(examples, theta_D, taken, model, together=False):
    found = examples.user_gradients(theta_D, *taken, model, batch_users=together)
    return torch.cat([g.clone() for g in found])


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
@pytest.mark.parametrize("together", [False, True])
def test_equal_to_automatic_differentiation(made, kind, train, together):
    given = made(kind, train)
    expected = differentiated(*given)
    assert expected.norm(dim=1).min() > 1e-3
    assert (ours(*given, together) - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize("settings", [{"batch_tokens": 1}, {"batch_tokens": 60}, {"memory": 1}])
def test_batches_change_nothing_but_last_digits(made, settings):
    train = "full" if "memory" in settings else "lora"
    assert_close = torch.testing.assert_close
    found = ours(*made(train=train, **settings), together=True)
    assert_close(found, ours(*made(train=train)), atol=1e-6, rtol=0)


def test_judgements_over_several_responses(made):
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
    given = made(rows=rows, schema=Schema("top-1", 3))
    expected = differentiated(*given)
    assert (ours(*given) - expected).norm() / expected.norm() < 1e-5


def test_the_sum_is_that_of_clipped_vectors(made):
    examples, theta_D, taken, model = made(batch_tokens=50)
    clip = UserClip(0.05)
    found = examples.sum_over_users(theta_D, *taken, clip.clip_sum, model)
    expected = clip.clip_sum(differentiated(examples, theta_D, taken, model))
    assert (found - expected).norm() / expected.norm() < 1e-5


def test_nobody_sampled_is_zero(made):
    examples, theta_D, _, model = made()
    none = torch.zeros(0, dtype=torch.int64)
    found = examples.sum_over_users(theta_D, none, none, UserClip(1.0).clip_sum, model)
    assert found.shape == (examples.dimension,)
    assert not found.any()


def test_no_more_users_are_kept_than_fit_into_memory(made, monkeypatch):
    examples, theta_D, taken, model = made(train="full")
    settings = BaseSettings(**{**vars(examples.base.settings), "memory": 1})
    monkeypatch.setattr(examples.base, "settings", settings)
    monkeypatch.setattr(type(examples), "dimension", property(lambda self: 150_000))
    monkeypatch.setattr(type(examples), "_add", lambda *_: None)
    monkeypatch.setattr(examples.base, "put", lambda _: None)
    chunks = examples.user_gradients(theta_D, *taken, model, batch_users=True)
    assert [len(g) for g in chunks] == [1, 1, 1, 1]


def test_local_steps_are_each_users_own(made):
    examples, theta_D, taken, model = made(rows=None)
    local = LocalSteps(3, 0.5)
    found = torch.cat([g.clone() for g in examples.user_gradients(theta_D, *taken, model, local)])
    ends = taken[1].cumsum(0).tolist()
    for user, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        at_D, alone = theta_D, (taken[0][low:high], taken[1][user : user + 1])
        for _ in range(3):
            at_D = at_D - 0.5 * differentiated(examples, at_D, alone, model)[0]
        torch.testing.assert_close(found[user], theta_D - at_D, atol=1e-5, rtol=1e-4)


def test_logits_are_differences_of_rewards(made):
    examples, theta_D, _, _ = made(batch_tokens=40)
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


def test_a_response_that_does_not_fit_names_its_row(made, make_rows):
    rows = make_rows([2])
    rows[1]["chosen"] = "save it " * 40
    with pytest.raises(InputError, match="row 2: a response of 80 tokens"):
        made(rows=rows)
    base = made()[0].base
    data, left_out = Judgements.from_rows(rows), LeftOut("isolate")
    found = token_examples(data, base, left_out)
    assert found.counts_U.tolist() == [1]
    assert left_out.reasons == ["row 2: a response that does not fit into the context"]
    assert torch.equal(
        found.tokens.ids, token_examples(Judgements.from_rows(rows[:1]), base).tokens.ids
    )
    assert token_examples(data.keep(np.zeros(2, bool)), base).counts_U.tolist() == [0]


def test_what_is_wrong_shows_before_the_first_round(made, monkeypatch):
    examples, _, _, model = made()
    examples.check(model)

    def exhausted(**_):
        raise MemoryError

    monkeypatch.setattr(examples.base.model, "forward", exhausted)
    with pytest.raises(InputError, match="--batch-tokens"):
        examples.check(model)
