"""Self-play of a language model: what an iteration asks, by hand, and what comes of it."""

import numpy as np
import pytest
import torch
from language_models import ROUNDING, model_on, noted_gradients

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.language import policy_fit
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.policy_fit import PolicyFit
from murmuration.preference.models import preference_model
from murmuration.research.strategies.self_play.general_preference import GeneralPreference
from murmuration.research.strategies.self_play.play import CLIP, PlayedPairs, SelfPlay


@pytest.fixture
def base(language_model):
    settings = {"task": "policy", "loss": "selfplay", "beta": 0.5, "rank": 2}
    return LanguageBase(BaseSettings(language_model("gpt2"), "lora", **settings))


@pytest.fixture
def pairs(base, make_rows):
    return model_on(base).examples(Judgements.from_rows(make_rows([6]))).in_public()


def played(pairs, eta=0.25, gain=1.5, former=0.4):
    judgements = len(pairs.text_JK)
    return PlayedPairs.from_pairs(
        pairs, np.full(judgements, gain), torch.full((judgements,), former), eta
    )


@pytest.mark.parametrize("reward", [-3.0, 0.0, 0.2, 0.62, 0.9])
def test_the_loss_is_as_the_paper_defines_it(pairs, reward):
    eta, gain, former = 0.25, 1.5, 0.4
    margin = (1 + 1 / eta) * reward - former / eta
    expected = (max(min(margin, CLIP), -CLIP) - gain) ** 2
    result = played(pairs).loss_N(torch.tensor([reward], dtype=torch.float64), np.array([0]))
    assert result.item() == pytest.approx(expected)


def test_slopes_are_derivatives(pairs):
    examples, taken_N = played(pairs), np.array([0, 2])
    texts_R = examples.text_JK[taken_N].ravel()
    examples.refer(np.unique(texts_R))
    reference_R = examples.reference_T[texts_R]
    weight_N, model = np.array([0.3, 0.7]), preference_model("btl")

    def loss(score_R):
        ratio_NK = torch.from_numpy(score_R - reference_R).view(-1, 2)
        values = examples.loss_N(examples.loss.logits(ratio_NK)[:, 0], taken_N)
        return float((values * torch.from_numpy(weight_N)).sum()) / 25.0  # (1 + 1/η)²

    score_R = reference_R + np.array([0.1, -0.2, 0.05, 0.15])
    slope_R = examples.slopes(texts_R, score_R, taken_N, weight_N, model)
    for place in range(4):
        step_R = 1e-6 * (np.arange(4) == place)
        difference = (loss(score_R + step_R) - loss(score_R - step_R)) / 2e-6
        assert slope_R[place] == pytest.approx(difference, rel=1e-5, abs=1e-9)


def test_beyond_the_clip_there_is_no_slope(pairs):
    examples, taken_N = played(pairs), np.array([0])
    texts_R = examples.text_JK[0]
    examples.refer(np.unique(texts_R))
    score_R = examples.reference_T[texts_R] + np.array([9.0, -9.0])
    slope_R = examples.slopes(texts_R, score_R, taken_N, np.ones(1), preference_model("btl"))
    assert (slope_R == 0).all()


def test_one_iteration_goes_to_the_regressions_minimiser(pairs):
    """H = (η·gain + former)/(1 + η), for pairs that have room for it."""
    eta, gain = 0.5, 0.8
    examples = played(pairs, eta, gain, 0.0)
    theta_D = PolicyFit(epochs=60, batch=6, rate=0.03)(examples)
    reward_J = examples.logits_R(torch.from_numpy(theta_D))
    np.testing.assert_allclose(reward_J, eta * gain / (1 + eta), atol=0.05)


def test_it_learns_to_write_what_is_preferred(base):
    """Among words that the base knows, one is preferred to all others."""
    words = ["save", "spend", "buy", "wait"]
    liked = [("save", other) for other in words[1:]] * 30
    preference = GeneralPreference.fit(liked, np.ones(len(liked)))
    examples_of = model_on(base).examples
    play = SelfPlay(iterations=3, pairs=48, fit=PolicyFit(epochs=4, batch=16, rate=0.05))
    done = []
    theta_D = play(preference, ["save or spend?"], base, examples_of, 6,
                   lambda now, all_: done.append((now, all_)))  # fmt: skip
    assert done == [(1, 3), (2, 3), (3, 3)]
    rows = [{"user_id": "u", "prompt": "save or spend?", "chosen": "save", "rejected": other}
            for other in words[1:]]  # fmt: skip
    result = examples_of(Judgements.from_rows(rows))
    assert np.isfinite(theta_D).all() and np.abs(theta_D).max() > 0
    assert (result.logits_R(torch.from_numpy(theta_D)) > 0).float().mean() > 0.5
    again = play(preference, ["save or spend?"], base, examples_of, 6)
    np.testing.assert_array_equal(theta_D, again)


def test_a_preference_without_opinion_leaves_the_policy_where_it_was(base, monkeypatch):
    """Its gradient is nothing but roundings. Adam would take whole steps along these."""

    class NoOpinion(GeneralPreference):
        def __call__(self, responses, others):
            return np.zeros(len(responses))

    class Longer(GeneralPreference):
        def __call__(self, responses, others):
            return np.sign(np.subtract([*map(len, responses)], [*map(len, others)]))

    play, lengths = SelfPlay(iterations=1, pairs=8, fit=PolicyFit(batch=8)), []
    for kind in (NoOpinion, Longer):
        preference = kind.fit([("save", "spend")], np.ones(1))
        with monkeypatch.context() as patch:
            noted = noted_gradients(patch, policy_fit)
            play(preference, ["save?"], base, model_on(base).examples, 4)
        lengths.append(float(noted[0].norm()))
    # A pair's two likelihoods, of some 16 nats, are as far off as their sums' roundings are; the
    # reward by beta = 0.5 times as much, what is squared by 1 + 1/eta = 2 times that. Where there
    # is an opinion, what is squared is about 1.
    assert lengths[0] < 2 * 16 * 0.5 * 2 * ROUNDING * lengths[1]


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"pairs": -1}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match="must be at least 1"):
        SelfPlay(**wrong)
