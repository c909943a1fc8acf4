"""Rewards of the strategies that are compared: settings of Table 5, and who can be told apart."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.research.reproductions.alignment import rewards
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    CENTRED,
    EVERYBODY,
    GROUP,
    NONPRIVATE,
    PRIVATE,
    PUBLISHED,
    RESPONSE,
    RESPONSE_SPLIT,
    USERWISE,
    People,
    Sizes,
)
from murmuration.strategies.settings.own import AupSettings, ElsSettings


@pytest.fixture(scope="module")
def people():
    return People(Sizes(users=100, each=8, cohort=25), seed=1)


def test_everybody_judges_as_often_as_is_said_and_no_tie():
    examples = rewards.judged(7, 5, seed=3)
    assert examples.counts_U.tolist() == [5] * 7
    assert set(examples.y_R.tolist()) == {1.0}
    assert not torch.equal(examples.x_RD, rewards.judged(7, 5, seed=4).x_RD)


def test_the_first_judgements_of_each_user():
    x_RD = torch.arange(12.0).reshape(6, 2)
    whole = PairExamples(x_RD, torch.ones(6), torch.tensor([0, 1, 4, 6]))
    some = rewards.first_of_each(whole, 2)
    assert some.start_U.tolist() == [0, 1, 3, 5]
    assert some.x_RD[:, 0].tolist() == [0.0, 2.0, 4.0, 8.0, 10.0]
    # As somebody with fewer judgements would have been drawn.
    fewer, more = (rewards.judged(3, each, seed=2) for each in (2, 4))
    assert torch.equal(rewards.first_of_each(more, 2).x_RD, fewer.x_RD)


def test_the_usual_radius_is_of_averaged_gradients():
    x_RD = torch.tensor([[2.0, 0.0], [4.0, 0.0], [0.0, 0.0], [0.0, 0.0], [3.0, 4.0], [3.0, 4.0]])
    examples = PairExamples(x_RD, torch.ones(6), torch.tensor([0, 2, 4, 6]))
    # Gradients −½ of (3, 0), (0, 0), (3, 4): apart by 1.5, 2 and 2.5.
    assert rewards.usual_radius(examples, 1.0) == pytest.approx(2.5)
    assert rewards.usual_radius(examples, 0.5) == pytest.approx(2.0)


def test_features_of_another_kind_are_of_the_same_people():
    hashed, fewer = (rewards.judged(3, 2, seed=2, kind=kind) for kind in ("hashing", "hashing:8"))
    assert torch.equal(hashed.y_R, fewer.y_R)
    assert fewer.dimension < hashed.dimension
    other = rewards.People(Sizes(100, 4, features="hashing:8"), 1)
    assert (
        other.settings(PUBLISHED, 3.0).clip_norm
        != rewards.People(Sizes(100, 4), 1).settings(PUBLISHED, 3.0).clip_norm
    )


def test_without_its_test_no_round_is_lost(people):
    """At this epsilon the test soon says no; noise, users and rounds are the same."""
    assert people.learnt(AS_RUN, 0.1).rounds < 10
    assert people.learnt(rewards.UNTESTED, 0.1).rounds == 10


def test_all_strategies_promise_the_same(people):
    for name in PRIVATE:
        if name in (RESPONSE, RESPONSE_SPLIT):
            continue
        config = people.settings(name, 3.0)
        assert (config.epsilon, config.delta, config.adjacency) == (3.0, 1e-5, "replace-labels")
    assert people.settings(USERWISE, 3.0).cohort == 25
    everybody = people.settings(EVERYBODY, 3.0)
    assert (everybody.cohort, everybody.rounds) == (100, 5)
    assert everybody.clip_norm == people.settings(PUBLISHED, 3.0).clip_norm > 0.1
    as_run = people.settings(AS_RUN, 3.0)
    assert as_run.of(AupSettings).variant == "published-as-run"
    assert (as_run.cohort, as_run.rounds) == (50, 10)
    assert people.settings(NONPRIVATE, None).strategy == "nonprivate"


def test_group_privacy_is_of_all_judgements_of_a_user(people):
    config = people.settings(GROUP, 3.0)
    assert config.group_size == 8
    assert (
        config.of(ElsSettings).sampling_probability == 0.25
    )  # as many judgements in a step as the others have


def test_rewards_of_strategies_differ_and_learn(people):
    found = {name: people.learnt(name, 20.0) for name in (USERWISE, CENTRED, RESPONSE)}
    found[NONPRIVATE] = people.learnt(NONPRIVATE, None)
    heads = [one.theta_D for one in found.values()]
    assert all(not np.array_equal(a, b) for a, b in itertools.pairwise(heads))
    assert all(one.accuracy > 0.55 for one in found.values())
    assert [one.rounds for one in found.values()] == [20, 20, 1, 20]


def test_randomized_labels_tell_less_at_a_small_epsilon(people):
    strict, mild = (people.learnt(RESPONSE, epsilon).accuracy for epsilon in (0.01, 100.0))
    assert strict < mild - 0.03


def test_labels_that_share_epsilon_are_flipped_more_often_than_labels_that_are_composed():
    composed, split = (LabelPromise(3.0, delta=delta).per_label(50) for delta in (1e-5, 0.0))
    assert (round(composed, 4), round(split, 4)) == (0.1046, 0.06)
    few = People(Sizes(users=20, each=50), seed=1)
    learnt = [few.learnt(name, 3.0).theta_D for name in (RESPONSE, RESPONSE_SPLIT)]
    assert not np.array_equal(*learnt)


def test_a_seed_has_every_strategy_at_every_epsilon(monkeypatch):
    monkeypatch.setattr(People, "learnt", lambda self, name, epsilon: (name, epsilon))
    found = rewards.compared((replace(Sizes(20, 2), cohort=5), 0, (3.0, 8.0), (GROUP, USERWISE)))
    assert list(found) == [
        (GROUP, 3.0), (USERWISE, 3.0), (GROUP, 8.0), (USERWISE, 8.0), (NONPRIVATE, None),
    ]  # fmt: skip
