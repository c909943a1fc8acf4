"""How far a policy moved: against a computation of its own, and what is thought of it."""

import numpy as np
import pytest
import torch
from language_models import start

from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.server.policy_distance import FAR, NEAR, QUESTIONS, measured, nats_moved, remark


@pytest.fixture
def make_base(language_model):
    def make(kind="gpt2", train="lora", **settings):
        path = language_model(kind)
        return LanguageBase(
            BaseSettings(path, train, rank=2, task="policy", loss="dpo", **settings)
        )

    return make


def by_hand(base, theta_D, longest=32):
    """The divergence of each next token, by full passes of one answer each in float64."""
    openings = base.texts.openings(QUESTIONS, min(longest, base.texts.limit // 2))
    base.put(theta_D)
    sampling = Sampling(max_new_tokens=min(longest, base.texts.limit // 2))
    answers = Writer(base.model, base.texts).continue_tokens(openings, sampling, ended=True)
    each = []
    for opening, answer in zip(openings, answers, strict=True):
        ids = torch.tensor([[*opening, *answer]])
        places = slice(len(opening) - 1, ids.shape[1] - 1)
        logs = []
        for theta in (theta_D, np.zeros_like(theta_D)):
            base.put(theta)
            with torch.no_grad():
                logs.append(base.model(input_ids=ids).logits[0, places].double().log_softmax(1))
        each.append((logs[0].exp() * (logs[0] - logs[1])).sum(1))
    return float(torch.cat(each).mean())


@pytest.mark.parametrize(
    "settings",
    [{}, {"kind": "llama"}, {"train": "full"}, {"kind": "llama", "layers": "last:1"}],
    ids=str,
)
def test_it_is_the_divergence_of_the_next_token(make_base, settings):
    base = make_base(**settings)
    theta_D = np.asarray(start(base), dtype=np.float32)
    expected = by_hand(base, theta_D)
    assert expected > 1e-5
    assert nats_moved(base, theta_D) == pytest.approx(expected, rel=1e-3, abs=1e-8)


def test_a_policy_that_did_not_move_is_its_reference(make_base):
    base = make_base()
    assert nats_moved(base, np.zeros(base.dimension)) == 0.0


def test_farther_is_more_and_what_is_no_number_is_infinitely_far(make_base):
    base = make_base(train="full")
    theta_D = np.asarray(start(base), dtype=np.float32)
    near, far = (nats_moved(base, share * theta_D) for share in (0.1, 1.0))
    assert 0.0 < near < far
    assert nats_moved(base, np.full(base.dimension, 1e30)) == np.inf


def test_what_fails_costs_a_run_nothing(make_base, monkeypatch):
    def fails(base, theta_D):
        raise MemoryError("too many words")

    monkeypatch.setattr("murmuration.server.policy_distance.nats_moved", fails)
    moved, (words,) = measured(make_base(), np.zeros(1))
    assert moved == np.inf and "could not be measured: too many words" in words


def test_what_is_thought_of_it():
    assert remark((NEAR + FAR) / 2) is None
    assert "Hardly different from its base: by 0.0009 nats" in str(remark(0.0009))
    for moved in (0.5, np.inf):
        assert "FAR FROM ITS BASE" in str(remark(moved)) and "--learning-rate" in str(remark(moved))
