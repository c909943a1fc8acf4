"""Policies that are fitted and write: labels decide, and nothing else changes between fits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.research.reproductions.policies import written
from murmuration.research.reproductions.policies.written import Contest, Pairs
from murmuration.sims.population.population import Population

PEOPLE = (-1.3, 1.1, -1.5)


@pytest.fixture
def contest(language_model, monkeypatch):
    monkeypatch.setattr(written, "LAYER", "1.mlp.down_proj")
    monkeypatch.setattr(written, "FIT", written.PolicyFit(epochs=4, batch=8, rate=0.01))
    monkeypatch.setattr(written, "SAMPLING", written.Sampling(max_new_tokens=4))
    prompts = ["what now ?", "wait and compare ?", "put some aside ?"] * 8
    first_J = np.arange(24) % 2 == 0
    shown = [("save it .", "buy today !")[:: 1 if first else -1] for first in first_J]
    asked = list(Population().prompts("train", 3))
    return Contest(language_model("llama"), Pairs(prompts, shown, first_J), asked, PEOPLE, 5)


@pytest.mark.parametrize("loss", ["chipo", "square-chipo"])
def test_a_policy_prefers_what_is_stated(contest, loss):
    truth_J = contest.pairs.first_J
    for stated_J in (truth_J, ~truth_J):
        theta_D = torch.from_numpy(contest._fit(loss, stated_J, 0.0)[1])
        margin_J = replace(contest._examples, public=True).logits_R(theta_D).numpy()
        assert ((margin_J > 0) == stated_J).all()


def test_coins_are_told_to_losses_that_correct_for_them(contest):
    truth_J = contest.pairs.first_J
    near, far = (contest._fit("square-chipo", truth_J, flip)[1] for flip in (0.0, 0.45))
    assert (near != far).any()
    # One that takes statements for true does not mind.
    near, far = (contest._fit("chipo", truth_J, flip)[1] for flip in (0.0, 0.45))
    np.testing.assert_array_equal(near, far)


def test_what_was_fitted_before_does_not_matter(contest, language_model):
    truth_J = contest.pairs.first_J
    alone = contest._fit("chipo", truth_J, 0.0)[1]
    contest.won("square-chipo", ~truth_J, 0.3)
    np.testing.assert_array_equal(contest._fit("chipo", truth_J, 0.0)[1], alone)


def test_answers_that_cannot_be_read_are_counted(contest):
    won = contest.won("dpo", contest.pairs.first_J)
    assert won == (0.5, 1.0)  # neither can: this network says nothing


def test_what_is_fitted_is_the_last_layer_of_the_reference():
    assert written.LAYER == "3.mlp.down_proj"


def test_where_little_can_be_read_nothing_is_claimed():
    assert written.cautions(0.45) == []
    (said,) = written.cautions(0.65)
    assert said.startswith("65% of all answers cannot be read")
