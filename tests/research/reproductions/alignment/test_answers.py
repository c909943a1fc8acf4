"""A pool of answers: what cannot be read is worth the least, and rewards look at the texts."""

import numpy as np
import pytest

from murmuration.research.reproductions.alignment.answers import WORST, Answers
from murmuration.sims.population.population import Population, true_reward


@pytest.fixture(scope="module")
def pool():
    texts = list(Population().texts("train", 3))
    prompts = [prompt for prompt, _, _ in texts]
    return Answers.of(prompts, [[row[1] for row in texts], [row[2] for row in texts], ["no"] * 3])


def test_what_cannot_be_read_is_worth_the_least(pool):
    assert pool.unreadable_PN.tolist() == [[False, False, True]] * 3
    assert pool.unreadable == pytest.approx(1 / 3)
    assert (pool.truth_PN[:, 2] == WORST).all()
    assert (pool.truth_PN[:, :2] > WORST).all()


def test_nothing_is_worth_less_than_the_worst():
    every = [
        true_reward(Population.crowd, (side * strength, (sentences - 3) / 2, technical))
        for side in (-1, 1)
        for strength in (0.5, 0.75, 1.0)
        for sentences in (1, 2, 3, 4, 5, 6)
        for technical in (0.0, 1.0)
    ]
    assert min(every) == pytest.approx(WORST)


def test_rewards_are_of_each_answer(pool):
    theta_D = np.zeros(pool.phi_PND.shape[2], np.float32)
    theta_D[-1] = 1.0  # the length
    by_length_PN = pool.rewards(theta_D)
    assert by_length_PN.shape == (3, 3)
    assert (by_length_PN.argmin(axis=1) == 2).all()
    np.testing.assert_allclose(by_length_PN, pool.phi_PND[:, :, -1], rtol=1e-6)


def test_the_first_answers_and_the_rest_are_all(pool):
    first, rest = pool.first(1), pool.rest(1)
    np.testing.assert_array_equal(np.hstack([first.truth_PN, rest.truth_PN]), pool.truth_PN)
    assert first.phi_PND.shape[1] == 1
