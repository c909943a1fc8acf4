"""Synthetic users: their features, their judgements, their node."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Population, Training, node_of, without_labels
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.solved.label_moment import DEFAULT_CLIP, LabelMoment

SETTINGS = RunConfig(
    strategy="nonprivate",
    delta=1e-3,
    rounds=20,
    cohort=30,
    adjacency="replace-labels",
    test="the true model",
)


def test_a_population_is_a_function_of_its_seed():
    one, same, other = (Population.draw(s, users=4, each=3, dimension=5) for s in (0, 0, 1))
    assert np.array_equal(one.examples.x_RD, same.examples.x_RD)
    assert not np.array_equal(one.truth_D, other.truth_D)
    assert one.examples.counts_U.tolist() == [3] * 4
    assert one.error(np.zeros(5)) == pytest.approx(2.0)
    assert one.error(one.truth_D) == 0.0


def test_judgements_follow_the_model_they_are_said_to():
    population = Population.draw(0, users=2000, each=10, dimension=4)
    x_RD = population.examples.x_RD.numpy()
    lengths = np.linalg.norm(x_RD, axis=1)
    assert 1.3 < np.sqrt((lengths**2).mean()) < 1.5  # two directions of length one, at random
    logits_R = x_RD @ population.truth_D
    # E[σ(−z) sign] over the calibration: where |z| is about one, 73 % agree.
    near = np.abs(np.abs(logits_R) - 1.0) < 0.1
    assert (logits_R[near] > 0).mean() == pytest.approx(1 / (1 + np.exp(-1)), abs=0.03)
    assert population.error(population.likeliest()) < 0.15


def test_the_node_hosts_everybody():
    population = Population.draw(0, users=7, each=2, dimension=3)
    grid = node_of(population.examples, Randomness(0))
    assert len(Registry.ask(grid, Randomness(0), features="{}")) == 7


def test_the_semi_norm_is_how_far_log_odds_are_off():
    population = Population.draw(0, users=50, each=4, dimension=3)
    theta_D = np.array([0.3, -1.0, 0.2])
    off_R = population.examples.x_RD.numpy() @ (theta_D - population.truth_D)
    assert population.semi_norm_error(theta_D) == pytest.approx(np.sqrt((off_R**2).mean()))
    assert population.semi_norm_error(population.truth_D) == 0.0


def test_the_public_half_does_not_change_with_labels():
    examples = Population.draw(0, users=30, each=3, dimension=4).examples
    turn_R = torch.where(torch.rand(90, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1)
    turned = replace(examples, x_RD=examples.x_RD * turn_R[:, None])
    one, other = without_labels(examples), without_labels(turned)
    assert torch.equal(one.x_RD, other.x_RD)
    assert (one.x_RD[:, 0] >= 0).all()
    assert (one.y_R == 1).all()
    np.testing.assert_allclose(one.x_RD.abs(), examples.x_RD.abs())


def test_a_run_comes_closer_than_answering_zero_and_is_repeated_exactly():
    people = Population.draw(1, users=60, each=10, dimension=3)
    training, found = Training(people.examples, Randomness(1)), []
    for _ in range(2):
        strategy, _ = training.run(replace(SETTINGS, seed=1))
        found.append(people.error(strategy.optimizer.result_D))
        assert strategy.rounds_done == 20
    assert found[0] == found[1] < 1.0


def test_who_is_in_a_run_can_be_said():
    people = Population.draw(1, users=60, each=10, dimension=3)
    others = np.arange(60) < 30
    changed_R = people.examples.x_RD.clone()
    changed_R[: 30 * 10] = 0.0
    same = replace(people, examples=replace(people.examples, x_RD=changed_R))
    found = [
        Training(users.examples, Randomness(1)).run(replace(SETTINGS, users=60), in_N=~others)[0]
        for users in (people, same)
    ]
    assert np.array_equal(found[0].optimizer.result_D, found[1].optimizer.result_D)


def test_settings_hold_and_are_charged():
    training = Training(Population.draw(1, users=60, each=10, dimension=3).examples, Randomness(1))
    with pytest.raises(ValueError, match="--cohort 90 is more than"):
        training.run(replace(SETTINGS, strategy="uls", rounds=2, cohort=90))
    private = replace(SETTINGS, strategy="uls", epsilon=4.0, rounds=2)
    _, ledger = training.run(private)
    assert 3.9 < ledger.epsilon() <= 4.0


def test_label_moments_have_the_settings_that_were_chosen():
    people = Population.draw(0, users=200, each=4, dimension=3)
    config = RunConfig.from_run_config(
        {
            "strategy": "label-moment",
            "adjacency": "replace-labels",
            "delta": 1e-5,
            "epsilon": 3.0,
            "test": "the true model",
            "clip-norm": 0.3,
            "ridge": 7.0,
        }
    )
    training = Training(people.examples, Randomness(0))
    with training.begun(config) as (strategy, _):
        assert isinstance(strategy, LabelMoment)
        assert strategy.plan.clip.norm == 0.3
        assert strategy.solver.ridge_for([]) == 7.0
    with training.begun(config.changed(clip_norm=0.0, ridge=0.0)) as (usual, _):
        assert isinstance(usual, LabelMoment)
        assert usual.plan.clip.norm == DEFAULT_CLIP
