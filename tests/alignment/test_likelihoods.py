"""Answers' likelihoods, token by token: those of the whole network, whatever is computed once."""

import pytest
import torch

from murmuration.alignment.likelihoods import AnswerLikelihoods
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import Sampling

pytest.importorskip("peft")

TEMPERATURE = 0.7


def policy(language_model, kind, layers):
    path, targets = str(language_model(kind)), "all-linear" if kind == "llama" else ""
    base = LanguageBase(BaseSettings(path, task="policy", rank=2, targets=targets, layers=layers))
    base.put(0.5 * base.random_theta())
    return base


def by_hand(base, opening, answer, temperature=TEMPERATURE):
    """How likely each token of an answer is, (K,), by the whole network."""
    ids = torch.tensor([[*opening, *answer]])
    logits = base.model(input_ids=ids).logits[0].double() / temperature
    log_LV = logits[len(opening) - 1 : -1].log_softmax(1)
    return log_LV.gather(1, ids[0, len(opening) :, None])[:, 0]


def gradient(base, loss):
    """That of what ``loss()`` gives, by PyTorch, (D,)."""
    with base.differentiable() as parameters:
        loss().backward()
        return torch.cat([p.grad.flatten() for p in parameters.values()])


OPENINGS = [[8, 9, 10], [11, 12, 13, 14, 9], [10, 8]]
ANSWERS = [[9, 10], [8], [14, 13, 12, 11]]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("layers", ["all", "last:1"])
def test_each_token_is_as_likely_as_by_the_whole_network(language_model, kind, layers):
    base = policy(language_model, kind, layers)
    assert (base.lower is None) == (layers == "all")
    likelihoods = AnswerLikelihoods(base, TEMPERATURE)
    for _ in range(2):  # the second time from what is kept
        with torch.no_grad():
            log_RK = likelihoods(OPENINGS, ANSWERS)
            expected = [by_hand(base, *row) for row in zip(OPENINGS, ANSWERS, strict=True)]
        assert log_RK.shape == (3, 4)
        for row, answer in enumerate(ANSWERS):
            torch.testing.assert_close(
                log_RK[row, : len(answer)].double(), expected[row], atol=1e-5, rtol=1e-5
            )
            assert not log_RK[row, len(answer) :].any()


def test_states_that_were_kept_are_those_of_every_policy_on_the_base(language_model):
    base = policy(language_model, "llama", "last:1")
    likelihoods = AnswerLikelihoods(base, TEMPERATURE)
    with torch.no_grad():
        first = likelihoods(OPENINGS, ANSWERS)
        base.put(torch.zeros(base.dimension))
        at_zero = likelihoods(OPENINGS, ANSWERS)
        likelihoods.forget()
        assert torch.equal(likelihoods(OPENINGS, ANSWERS), at_zero)
    assert not torch.allclose(first, at_zero)


def test_the_lower_layers_are_computed_once_for_each_text(language_model, monkeypatch):
    base, texts = policy(language_model, "llama", "last:1"), []
    honest = base.lower_states

    def counted(inputs):
        texts.append(len(inputs["input_ids"]))
        return honest(inputs)

    monkeypatch.setattr(base, "lower_states", counted)
    likelihoods = AnswerLikelihoods(base, TEMPERATURE)
    with torch.no_grad():
        likelihoods([*OPENINGS, OPENINGS[0]], [*ANSWERS, ANSWERS[0]])
        likelihoods(OPENINGS[1:], ANSWERS[1:])
        likelihoods([[8, 9]], [[12]])
    assert texts == [3, 1]


@pytest.mark.parametrize("layers", ["all", "last:1"])
def test_answers_that_the_policy_wrote_are_not_computed_from_below_again(
    language_model, monkeypatch, layers
):
    base = policy(language_model, "llama", layers)
    likelihoods = AnswerLikelihoods(base, TEMPERATURE)
    openings = [opening for opening in OPENINGS for _ in range(3)]
    answers = likelihoods.written(openings, Sampling(TEMPERATURE, max_new_tokens=6), (0, 1))
    if layers != "all":
        monkeypatch.setattr(base, "lower_states", None)
    rows = list(zip(openings, answers, strict=True))
    actual = gradient(base, lambda: likelihoods(openings, answers).sum())
    expected = gradient(base, lambda: torch.cat([by_hand(base, *row) for row in rows]).sum())
    with torch.no_grad():
        log_RK = likelihoods(openings, answers)
        for row, log_K in enumerate(by_hand(base, *each) for each in rows):
            torch.testing.assert_close(
                log_RK[row, : len(log_K)].double(), log_K, atol=1e-5, rtol=1e-5
            )
    assert float((actual - expected).norm()) < 1e-5 * float(expected.norm())


@pytest.mark.parametrize("layers", ["all", "last:1"])
def test_gradients_are_plain_pytorchs(language_model, layers):
    base = policy(language_model, "llama", layers)
    likelihoods, weight_R = AnswerLikelihoods(base, TEMPERATURE), torch.tensor([1.0, -2.0, 0.5])
    rows = list(zip(OPENINGS, ANSWERS, strict=True))
    actual = gradient(base, lambda: likelihoods(OPENINGS, ANSWERS).sum(1) @ weight_R)
    expected = gradient(
        base, lambda: torch.stack([by_hand(base, *row).sum() for row in rows]) @ weight_R.double()
    )
    assert float((actual - expected).norm()) < 1e-5 * float(expected.norm())
