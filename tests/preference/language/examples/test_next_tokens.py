"""Losses of next tokens: against one backward pass for each user, and blind to labels."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from language_models import log_likelihood, model_on, start, taken

from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.features import mapped_rows
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.next_tokens import scored_tokens
from murmuration.preference.models import preference_model

BTL = preference_model("btl")
TEXTS = [
    ["Put some aside first.", "Save it.", "Wait and compare prices, keep the old one, save it."],
    ["Bet on it."],
    ["Keep the old one.", "Take the loan, live now.", "Buy it today!", "what", "Spend all of it."],
]


def own(texts=TEXTS):
    rows = [{"user_id": f"u{u}", "text": t} for u, found in enumerate(texts) for t in found]
    return UserTexts.from_placed_rows(("f", i, row) for i, row in enumerate(rows))


@pytest.fixture
def made(language_model, make_rows):
    """A function: a base and the examples of a few users."""

    def make(kind="gpt2", train="lora", task="text", data=None, **settings):
        folder = language_model(kind) if isinstance(kind, str) else kind
        base = LanguageBase(BaseSettings(folder, train, rank=2, task=task, **settings))
        if data is None:
            data = own() if task == "text" else Judgements.from_rows(make_rows([3, 1, 2]))
        return base, model_on(base).examples(data)

    return make


def differentiated(base, examples, theta_D, taken_N, taken_S):
    """Each user's mean gradient by a backward pass of their own, (S, D)."""
    base.put(theta_D)
    found = []
    with base.differentiable() as parameters:
        for part in taken_N.split(taken_S.tolist()):
            loss = 0.0
            for j in part.tolist():
                texts = [t for t in examples.text_JK[j] if t >= 0]
                scored = [log_likelihood(base, examples.tokens, t) for t in texts]
                loss -= sum(log / tokens for log, tokens in scored) / len(texts)
            grads = torch.autograd.grad(loss / len(part), list(parameters.values()))
            found.append(torch.cat([g.reshape(-1) for g in grads]))
    return base.to_theta(torch.stack(found))


def ours(examples, theta_D, chosen, together=False):
    found = examples.user_gradients(theta_D, *chosen, BTL, shared_passes=together)
    return torch.cat([g.clone() for g in found])


@pytest.mark.parametrize("task", ["text", "sft"])
@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt2-chat"])
def test_equal_to_a_backward_pass_for_each_user(made, kind, train, task):
    base, examples = made(kind, train, task)
    chosen, theta_D = taken(examples), start(base)
    expected = differentiated(base, examples, theta_D, *chosen)
    assert expected.norm(dim=1).min() > 1e-3
    assert (ours(examples, theta_D, chosen) - expected).norm() / expected.norm() < 1e-5


def test_tied_weights_have_both_their_parts(made):
    """GPT-2's head is its embedding; Llama's, in these tests, is not."""
    for kind, tied in (("gpt2", True), ("llama", False)):
        base, examples = made(kind, "full")
        embedding, head = (
            base.model.get_input_embeddings().weight,
            base.model.get_output_embeddings().weight,
        )
        assert (embedding is head) == tied
        assert sum(p is embedding or p is head for p in base.trained) == (1 if tied else 2)
    base, examples = made("gpt2", "full")
    place = [p is base.model.get_input_embeddings().weight for p in base.trained].index(True)
    sizes = [p.numel() for p in base.trained]
    part = slice(sum(sizes[:place]), sum(sizes[: place + 1]))
    chosen = taken(examples)
    expected = differentiated(base, examples, start(base), *chosen)[:, part]
    found = ours(examples, start(base), chosen)[:, part]
    assert (found - expected).norm() / expected.norm() < 1e-5


def test_with_lora_embedding_and_head_stay(made):
    base, _ = made("gpt2", "lora")
    before = base.model.get_output_embeddings().weight.clone()
    base.put(start(base, 1.0))
    assert torch.equal(base.model.get_output_embeddings().weight, before)


@pytest.mark.parametrize("settings", [{"batch_tokens": 1}, {"batch_tokens": 40}])
@pytest.mark.parametrize("task", ["text", "sft"])
def test_batches_change_nothing_but_last_digits(made, task, settings):
    base, examples = made(task=task)
    _, other = made(task=task, **settings)
    chosen, theta_D = taken(examples), start(base)
    torch.testing.assert_close(
        ours(other, theta_D, chosen, True), ours(examples, theta_D, chosen), atol=1e-6, rtol=0
    )
    one, two = examples.accuracy(theta_D.numpy()), other.accuracy(theta_D.numpy())
    assert one.pooled == two.pooled
    assert one.loss == pytest.approx(two.loss, abs=1e-6)


def test_loss_and_accuracy_are_pooled_over_tokens(made):
    base, examples = made()
    theta_D = start(base)
    found = examples.accuracy(theta_D.numpy())
    base.put(theta_D)
    loss = right = scored = 0.0
    by_user = []
    for user in range(3):
        low, high = examples.start_U[user : user + 2].tolist()
        mine = [0.0, 0]
        for text in range(low, high):
            ids = examples.tokens.ids.long()[examples.tokens.start_T[text] :][
                : examples.tokens.lengths_T[text]
            ]
            logits = base.model(input_ids=ids[None]).logits[0, :-1]
            loss += float(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="sum"))
            mine[0] += int((logits.argmax(1) == ids[1:]).sum())
            mine[1] += len(ids) - 1
        right, scored = right + mine[0], scored + mine[1]
        by_user.append(mine[0] / mine[1])
    assert found.judgements == scored
    assert found.users == 3
    assert found.pooled == pytest.approx(right / scored)
    assert found.by_user == pytest.approx(np.mean(by_user))
    assert found.loss == pytest.approx(loss / scored, rel=1e-5)
    assert found.chance == pytest.approx(1 / base.words)
    part = examples.select(np.array([2, 0])).accuracy(theta_D.numpy())
    assert part.judgements < found.judgements
    nobody = examples.select(np.array([], dtype=np.int64)).accuracy(theta_D.numpy())
    assert (nobody.users, nobody.judgements) == (0, 0)
    assert math.isnan(nobody.pooled)


def test_a_long_text_is_cut_and_every_token_but_the_first_is_scored_once(made):
    words = "Wait and compare prices , keep the old one . Save it today ! Buy it"
    base, examples = made(data=own([[words], ["Save it."]]), max_tokens=6)
    length = len(base.tokenizer(words)["input_ids"]) + 1  # and the end
    windows_ = examples.counts_U.tolist()[0]
    assert windows_ == math.ceil((length - 1) / 5)
    tokens = examples.tokens
    parts = [
        tokens.ids[tokens.start_T[t] : tokens.start_T[t + 1]].tolist() for t in range(windows_)
    ]
    assert all(len(part) <= 6 for part in parts)
    whole = base.tokenizer(words)["input_ids"] + [base.tokenizer.eos_token_id]
    assert parts[0] + [i for part in parts[1:] for i in part[1:]] == whole
    assert all(one[-1] == two[0] for one, two in pairwise(parts))
    assert (
        scored_tokens(examples.tokens, np.arange(len(examples.tokens.second_T)))[:windows_].sum()
        == length - 1
    )


def test_prompts_are_not_scored(made, make_rows):
    rows = make_rows([2])
    base, examples = made(task="sft", data=Judgements.from_rows(rows))
    other = Judgements.from_rows([{**row, "prompt": "Spend? Bet?"} for row in rows])
    _, changed = made(task="sft", data=other)
    assert (examples.tokens.second_T > 1).all()
    assert (
        scored_tokens(examples.tokens, np.arange(len(examples.tokens.second_T))).tolist()
        == scored_tokens(changed.tokens, np.arange(len(examples.tokens.second_T))).tolist()
    )
    for text in range(len(examples.tokens.lengths_T)):
        first, last = examples.tokens.second_T[text], examples.tokens.lengths_T[text]
        ids = examples.tokens.ids[examples.tokens.start_T[text] :][first:last]
        assert ids[-1] == base.tokenizer.eos_token_id
        assert base.tokenizer.decode(ids[:-1]).split()[0] not in ("what", "spend?")


def flipped(rows):
    return [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]


def test_sft_sees_no_label(made, make_rows):
    """The same bits, whatever was chosen."""
    rows = make_rows([3, 1, 2])
    base, examples = made(task="sft", data=Judgements.from_rows(rows))
    _, other = made(task="sft", data=Judgements.from_rows(flipped(rows)))
    chosen, theta_D = taken(examples), start(base)
    assert torch.equal(ours(examples, theta_D, chosen), ours(other, theta_D, chosen))
    assert examples.accuracy(theta_D.numpy()) == other.accuracy(theta_D.numpy())
    assert np.array_equal(examples.tokens.ids.numpy(), other.tokens.ids.numpy())


def test_sft_sees_no_label_among_several(made):
    def read(rows, label):
        schema = Schema("ranking" if "ranking" in label else "top-1", 3)
        return Judgements.from_rows(rows, schema=schema)

    shown = ["Save it.", "Bet on it.", "Keep the old one."]
    row = {"user_id": "u", "prompt": "What now?", "responses": shown}
    found = []
    for label in ({"best": 0}, {"best": [1, 2]}, {"ranking": [3, 1, 2]}):
        base, examples = made(task="sft", data=read([{**row, **label}], label))
        found.append(ours(examples, start(base), taken(examples)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_mapped_texts_and_tokens_give_the_same_bits(made, monkeypatch):
    """And so do a user's own examples, taken out of all."""
    base, examples = made()
    theta_D, chosen = start(base), taken(examples, 9)
    expected = ours(examples, theta_D, chosen)
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 0)
    _, mapped = made(data=own())
    assert torch.equal(mapped.tokens.ids, examples.tokens.ids)
    assert mapped.tokens.start_T.tolist() == examples.tokens.start_T.tolist()
    assert torch.equal(ours(mapped, theta_D, chosen), expected)
    assert mapped.accuracy(theta_D.numpy()) == examples.accuracy(theta_D.numpy())
    for user in range(3):
        alone = mapped.select(np.array([user]))
        assert torch.equal(ours(alone, theta_D, taken(alone, 9)), expected[user : user + 1])


def test_what_few_users_show_is_short_however_many_texts_there_are(made):
    _, examples = made()
    few = examples.select(np.array([2]))
    text_M, place_JK = few.shown()
    assert text_M.tolist() == few.text_JK[:, 0].tolist() == [4, 5, 6, 7, 8]
    assert place_JK.tolist() == [[0], [1], [2], [3], [4]]
    gap = replace(few, text_JK=np.array([[7, -1], [4, 7]]))
    assert [part.tolist() for part in gap.shown()] == [[4, 7], [[1, 2], [0, 1]]]


def test_what_does_not_fit(made, make_rows):
    rows = make_rows([2])
    rows[1]["rejected"] = "save it " * 40
    with pytest.raises(InputError, match="row 2: a response of 80 tokens"):
        made(task="sft", data=Judgements.from_rows(rows))


def test_what_is_of_no_use_is_left_out_where_something_takes_it(made, make_rows, monkeypatch):
    """And nobody else's examples are other ones."""
    base, _ = made(task="sft")
    rows, left_out = make_rows([2, 1, 3]), LeftOut("isolate")
    rows[2]["rejected"] = "save it " * 40
    found = model_on(base).examples(Judgements.from_rows(rows), left_out)
    alone = model_on(base).examples(Judgements.from_rows(rows[:2] + rows[3:]))
    assert found.counts_U.tolist() == [2, 0, 3]
    theta_D = start(base)
    mine = ours(found.select(np.array([0, 2])), theta_D, taken(alone))
    assert torch.equal(mine, ours(alone, theta_D, taken(alone)))
    (reason,) = left_out.reasons
    assert reason.startswith("row 3: a response of ") and "does not fit" in reason
    base, _ = made()
    monkeypatch.setattr(type(base.texts), "_end", lambda *_: [])
    found = model_on(base).examples(own([["Save it."], ["what"], ["Bet on it."]]), left_out)
    assert found.counts_U.tolist() == [1, 0, 1]
    assert left_out.reasons[1].startswith("row 2: a text of a single token")
    assert model_on(base).examples(own([["what"]]), left_out).counts_U.tolist() == [0]


def test_data_of_another_task(made, make_rows):
    judgements = Judgements.from_rows(make_rows([1]))
    base, _ = made()
    with pytest.raises(InputError, match="--task text is not for users' judgements"):
        model_on(base).examples(judgements)
    base, _ = made(task="sft")
    with pytest.raises(InputError, match="--task sft is not for users' texts"):
        model_on(base).examples(own())
    reward = LanguageBase(replace(base.settings, task="reward"))
    with pytest.raises(InputError, match="--task reward is not for users' texts"):
        model_on(reward).examples(own())


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("most", [1, 100, 7 * 34])
def test_chunks_of_what_is_said_have_the_gradients_of_the_whole(made, kind, train, most):
    """And there are never more numbers than that, or than those of one token."""
    base, examples = made(kind, train)
    chosen, theta_D = taken(examples), start(base)
    whole, numbers = ours(examples, theta_D, chosen), []
    accuracy = examples.accuracy(theta_D.numpy())
    head = base.model.get_output_embeddings()
    head.register_forward_hook(lambda *call: numbers.append(call[2].numel()))
    base.most_logits = most
    found = ours(examples, theta_D, chosen)
    assert max(numbers) <= max(most, base.words)
    assert sum(numbers) == base.words * scored_tokens(examples.tokens, chosen[0].numpy()).sum()
    torch.testing.assert_close(found, whole, atol=1e-6, rtol=1e-5)
    chunked = examples.accuracy(theta_D.numpy())
    assert max(numbers) <= max(most, base.words)
    assert chunked.pooled == accuracy.pooled
    assert chunked.loss == pytest.approx(accuracy.loss, abs=1e-6)
    expected = differentiated(base, examples, theta_D, *chosen)
    assert (found - expected).norm() / expected.norm() < 1e-5


def test_states_are_computed_once(made):
    base, examples = made()
    base.most_logits, calls = 1, []
    chosen, theta_D = taken(examples), start(base)
    ours(examples, theta_D, chosen)  # also tries whether states are all that the head sees
    base.model.get_input_embeddings().register_forward_hook(lambda *_: calls.append(1))
    ours(examples, theta_D, chosen)
    assert len(calls) == 3  # users


def test_logits_that_are_changed_after_the_head_are_taken_as_they_come(made):
    base, examples = made(train="full")
    network = base.model
    forward = network.forward

    def capped(*args, **inputs):
        out = forward(*args, **inputs)
        out.logits = 2.0 * torch.tanh(out.logits / 2.0)
        return out

    network.forward = capped
    base.most_logits = 3 * base.words
    chosen, theta_D = taken(examples), start(base)
    expected = differentiated(base, examples, theta_D, *chosen)
    assert (ours(examples, theta_D, chosen) - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize("task", ["text", "sft", "policy", "reward"])
def test_of_a_public_test_texts_share_batches(made, task):
    base, examples = made(task=task)
    public, calls = replace(examples, public=True), []
    theta_D = start(base).numpy()
    one = examples.accuracy(theta_D)
    block = next(m for m in base.model.modules() if type(m).__name__ == "GPT2Block")
    handle = block.register_forward_hook(lambda module, args, out: calls.append(len(args[0])))
    two = public.accuracy(theta_D)
    handle.remove()
    assert len(calls) <= 2 and max(calls) == len(examples.tokens.lengths_T)
    assert one.pooled == two.pooled and one.judgements == two.judgements
    if task in ("text", "sft"):
        assert one.loss == pytest.approx(two.loss, abs=1e-6)
