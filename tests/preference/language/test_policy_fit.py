"""A policy fitted to labels that lie here: against steps by hand, and towards what is preferred."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from language_models import assert_equal_but_for_roundings, model_on, noted_gradients

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language import policy_fit
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import PolicyExamples
from murmuration.preference.language.policy_fit import PolicyFit
from murmuration.preference.models import preference_model
from murmuration.preference.policy_losses import POLICY_LOSSES

BTL = preference_model("btl")


@pytest.fixture
def made(language_model, make_rows):
    """A function: a policy's examples, of eleven judgements."""

    def make(loss="dpo", flip=0.0, train="lora", **settings) -> PolicyExamples:
        settings = {"beta": 0.3, "r_max": 500.0, "rank": 2} | settings
        base = LanguageBase(
            BaseSettings(language_model("gpt2"), train, task="policy", loss=loss, **settings)
        )
        judgements = Judgements.from_rows(make_rows([11]))
        if flip:
            judgements = replace(judgements, flip_R=np.full(len(judgements), flip))
        found = model_on(base).examples(judgements)
        assert isinstance(found, PolicyExamples)
        return found

    return make


@pytest.mark.parametrize("loss", POLICY_LOSSES)
def test_what_is_preferred_is_learnt(made, loss):
    examples = made(loss)
    theta_D = PolicyFit(epochs=30, batch=4, rate=0.1)(examples)
    assert examples.accuracy(theta_D).pooled > 0.8
    # Where it began: nothing, but for last digits of texts in other batches than the reference's.
    assert examples.logits_R(torch.zeros(len(theta_D))).abs().max() < 1e-4


@pytest.mark.parametrize("train", ["lora", "full"])
def test_the_first_step_goes_down_the_mean_gradient(made, train):
    """Adam's first step is the rate along the gradient's signs."""
    examples = made(train=train)
    theta_D = PolicyFit(epochs=1, batch=11, rate=0.01)(examples)
    everything = (torch.arange(11), torch.tensor([11]))
    (grad_1D,) = examples.user_gradients(torch.zeros(len(theta_D)), *everything, BTL)
    clear_D = grad_1D[0].abs() > 1e-4
    assert clear_D.sum() > 50
    expected_D = -0.01 * grad_1D[0].sign()
    np.testing.assert_allclose(theta_D[clear_D], expected_D[clear_D], rtol=1e-3)


@pytest.fixture
def gradients(monkeypatch):
    """A function: fit, and return each step's gradient."""

    def fitted(fit, *given):
        with monkeypatch.context() as patch:
            noted = noted_gradients(patch, policy_fit)
            fit(*given)
        return noted

    return fitted


def test_orders_and_results_follow_from_the_seed(made):
    fit, other = PolicyFit(epochs=1, batch=2, seed=1), PolicyFit(epochs=1, batch=2, seed=2)
    one = fit(made())
    torch.rand(3)  # whatever else draws
    np.testing.assert_array_equal(one, fit(made()))
    assert not np.array_equal(one, other(made()))


def test_weights_say_which_judgements_count(made, gradients):
    examples = made()
    weight_J = np.where(np.arange(11) < 5, 1.0, 0.0)
    theta_D = torch.from_numpy(PolicyFit(epochs=40, batch=11, rate=0.05)(examples, weight_J))
    logits_R = examples.logits_R(theta_D)
    assert (logits_R[:5] > 0).all()
    five = replace(
        examples,
        text_JK=examples.text_JK[:5],
        y_R=examples.y_R[:5],
        start_U=torch.tensor([0, 5]),
        reference_T=np.where(np.arange(len(examples.reference_T)) < 99, np.nan, 0.0),
    )
    five.reference_T[-1] = 0.0
    fit = PolicyFit(epochs=5, batch=11, rate=0.05)
    assert_equal_but_for_roundings(gradients(fit, examples, weight_J), gradients(fit, five))


def test_losses_that_know_of_the_coins_use_them(made):
    fit = PolicyFit(epochs=2, batch=11)
    true, noisy = fit(made("square-chipo")), fit(made("square-chipo", flip=0.4))
    assert not np.allclose(true, noisy, atol=1e-4)
    np.testing.assert_array_equal(fit(made("dpo")), fit(made("dpo", flip=0.4)))


def test_the_network_is_back_where_it_began(made):
    examples = made()
    before = [p.clone() for p in examples.base.trained]
    PolicyFit(epochs=1, batch=4)(examples)
    assert all(torch.equal(a, b) for a, b in zip(before, examples.base.trained, strict=True))
    assert not any(p.requires_grad for p in examples.base.trained)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"batch": 0}, "a batch must be at least 1"),
        ({"rate": 0.0}, "--learning-rate"),
        ({"rate": np.inf}, "--learning-rate"),
    ],
)
def test_what_cannot_be_is_refused(wrong, named):
    with pytest.raises(InputError, match=named):
        PolicyFit(**wrong)


def test_no_judgements_are_refused(made):
    examples = made()
    none = replace(examples, text_JK=examples.text_JK[:0], y_R=examples.y_R[:0])
    with pytest.raises(InputError, match="no judgements"):
        PolicyFit()(none)


def test_a_step_that_is_not_finite_is_refused(made):
    examples = made()
    with torch.no_grad():
        next(examples.base.model.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="not finite"):
        PolicyFit()(examples)
