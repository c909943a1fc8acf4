"""Saved models that say the next token, used to score responses."""

import numpy as np
import pytest
import torch
from language_models import saved_model

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.language import likelihood as module
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.likelihood import (
    SavedLikelihood,
    load_next_token,
    load_scorer,
)
from murmuration.preference.reward import RewardModel

PROMPTS, RESPONSES = ["What now?"] * 2, ["Save it.", "Bet on it, live now."]


@pytest.fixture
def saved(language_model, tmp_path):
    """A function: a model away from its beginning, saved; and its base."""

    def save(kind="gpt2", train="lora", task="sft"):
        folder = tmp_path / f"{kind}-{train}-{task}"
        return folder, saved_model(folder, language_model(kind), train, task=task)

    return save


def expected(model, tokenizer, prompt, response):
    """The log-likelihood of a response and the end, by transformers alone."""
    head = tokenizer(prompt + "\n\n", add_special_tokens=False)["input_ids"]
    tail = tokenizer(response, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    with torch.no_grad():
        logs = model.eval()(torch.tensor([head + tail])).logits[0].log_softmax(1)
    return sum(float(logs[len(head) + i - 1, token]) for i, token in enumerate(tail))


@pytest.mark.parametrize("task", ["sft", "text"])
@pytest.mark.parametrize(("kind", "train"), [("gpt2", "lora"), ("gpt2", "full"), ("llama", "full")])
def test_what_is_saved_is_loaded_by_transformers_and_scores_alike(saved, kind, train, task):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, base = saved(kind, train, task)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if train == "lora":
        from peft import PeftModel

        model = AutoModelForCausalLM.from_pretrained(base.settings.path)
        model = PeftModel.from_pretrained(model, folder)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder)
    scorer = load_scorer(folder)
    assert isinstance(scorer, SavedLikelihood)
    found = scorer.score(PROMPTS, RESPONSES)
    assert (found < 0).all()
    pairs = zip(PROMPTS, RESPONSES, strict=True)
    np.testing.assert_allclose(
        found, [expected(model, tokenizer, *pair) for pair in pairs], atol=1e-4
    )


def test_rewards_are_scored_as_before(saved, tmp_path):
    folder, _ = saved(task="reward")
    np.testing.assert_array_equal(
        load_scorer(folder).score(PROMPTS, RESPONSES),
        RewardModel.load(folder).score(PROMPTS, RESPONSES),
    )
    RewardModel(np.ones(9), HashingFeatures(dimension=9)).save(tmp_path / "linear")
    assert isinstance(load_scorer(tmp_path / "linear"), RewardModel)


@pytest.mark.parametrize("task", ["reward", "sft"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_many_are_scored_together_and_as_alone(saved, kind, task):
    if (kind, task) == ("bert", "sft"):
        pytest.skip("an encoder says no next token")
    scorer = load_scorer(saved(kind, "full", task)[0])
    generator = np.random.default_rng(0)
    responses = [" ".join(generator.choice(["save", "it", "bet"], n)) for n in (1, 9, 4, 30, 2, 9)]
    responses *= 5
    prompts = ["what now ?"] * len(responses)
    model = scorer._model if task == "sft" else scorer._base.model
    calls = []
    with torch.no_grad():
        handle = model.register_forward_hook(lambda *_: calls.append(1))
        together = scorer.score(prompts, responses)
        handle.remove()
    assert len(calls) < len(responses) / 5
    pairs = zip(prompts, responses, strict=True)
    alone = [scorer.score([prompt], [response])[0] for prompt, response in pairs]
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    assert len(scorer.score([], [])) == 0


def test_a_base_scores_as_what_says_the_next_token(language_model):
    base = language_model("llama")
    assert isinstance(load_scorer(base), SavedLikelihood)
    scores = load_scorer(base).score(PROMPTS, RESPONSES)
    np.testing.assert_allclose(scores, SavedLikelihood.load(base).score(PROMPTS, RESPONSES))


def test_a_base_goes_by_its_name_on_a_hub(language_model, tmp_path, monkeypatch):
    """But what has a folder here for an owner is rather spelled wrongly."""
    base, names = language_model("llama"), []
    resolve = module.resolve_base
    monkeypatch.setattr(
        module, "resolve_base", lambda name: names.append(name) or resolve(str(base))
    )
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_scorer("somebody/tiny"), SavedLikelihood)
    (tmp_path / "runs").mkdir()
    for wrong in ("runs/tiny", "tiny"):
        with pytest.raises(InputError, match="no such model folder"):
            load_scorer(wrong)
    assert names == ["somebody/tiny"]


@pytest.mark.parametrize("train", ["lora", "full"])
def test_what_was_learnt_after_a_system_prompt_is_used_after_it(language_model, tmp_path, train):
    """Unless another is named, or none."""
    path = language_model("gpt2-chat")
    base = saved_model(tmp_path / "m", path, train, task="sft", system="save it")
    expected = base.texts(PROMPTS, RESPONSES, ended=True).ids.tolist()
    assert (
        load_scorer(tmp_path / "m").texts(PROMPTS, RESPONSES, ended=True).ids.tolist() == expected
    )
    for system in ("", "wait"):
        _, texts = load_next_token(tmp_path / "m", system=system)
        other = LanguageBase(BaseSettings(path, task="sft", system=system)).texts
        ids = texts(PROMPTS, RESPONSES).ids.tolist()
        assert ids == other(PROMPTS, RESPONSES).ids.tolist() != expected
