"""The bandit's judges, and what is learned from them behind each protection."""

import numpy as np
import pytest

from murmuration.research.reproductions.bandits import bandit
from murmuration.research.reproductions.bandits.bandit import BALL, LENGTH, Bandit, Channel, learn

CHANNELS = [Channel("none"), Channel("centre", 1.0), Channel("local", 1.0)]


def test_shapes_and_lengths():
    drawn = Bandit.draw(3, users=50, dimension=4, prompts=7, responses=5)
    assert drawn.x_JD.shape == (50, 4)
    assert drawn.phi_SAD.shape == (7, 5, 4)
    np.testing.assert_allclose(np.linalg.norm(drawn.phi_SAD, axis=2), 1.0)
    assert np.linalg.norm(drawn.x_JD, axis=1).max() <= LENGTH + 1e-12
    assert np.linalg.norm(drawn.truth_D) == pytest.approx(BALL)
    again = Bandit.draw(3, users=50, dimension=4, prompts=7, responses=5)
    assert (again.x_JD == drawn.x_JD).all()
    assert (again.first_J == drawn.first_J).all()


def test_judges_follow_the_truth():
    drawn = Bandit.draw(0, users=20_000, dimension=3)
    logit_J = drawn.x_JD @ drawn.truth_D
    for low, high in ((-2.0, -1.0), (-0.5, 0.5), (1.0, 2.0)):
        there_J = (low < logit_J) & (logit_J < high)
        expected = (1 / (1 + np.exp(-logit_J[there_J]))).mean()
        assert drawn.first_J[there_J].mean() == pytest.approx(expected, abs=0.03)


def test_skew_leaves_directions_unjudged():
    even, skewed = (
        (Bandit.draw(0, users=5000, dimension=4, skew=skew).x_JD ** 2).mean(axis=0)
        for skew in (0.0, 2.0)
    )
    assert even.max() < 1.2 * even.min()
    assert skewed[0] > 20 * skewed[3]
    matters = [Bandit.draw(s, users=1, dimension=4, matter=2.0).truth_D ** 2 for s in range(50)]
    assert np.mean(matters, axis=0)[0] > 0.7 * BALL**2


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.kind)
def test_the_set_holds_the_truth_about_as_often_as_it_says(channel):
    """In 60 draws of a 90 % set, 41 or fewer would come up once in a million."""
    inside = 0
    for seed in range(60):
        drawn = Bandit.draw(seed, users=1500, dimension=3, prompts=2, responses=2)
        inside += learn(drawn, channel, seed, failure=0.1).contains(drawn.truth_D)
    assert inside > 41


def test_the_set_would_miss_if_noise_were_forgotten(monkeypatch):
    """A seeded fault: the centre's noise is drawn, but the set takes labels for clean."""
    channel, held, forgotten = Channel("centre", 0.3), 0, 0
    for seed in range(30):
        drawn = Bandit.draw(seed, users=1000, dimension=3, prompts=2, responses=2)
        known = learn(drawn, channel, seed)
        clean = learn(drawn, Channel("none"), seed)
        faulty = bandit.ConfidenceSet(known.theta_D, clean.precision_DD, clean.radius)
        held += known.contains(drawn.truth_D)
        forgotten += faulty.contains(drawn.truth_D)
    assert held >= 24
    assert forgotten < held - 8


def test_privacy_costs_and_the_centre_costs_less():
    def off(channel):
        return np.mean(
            [
                np.linalg.norm(learn(drawn, channel, seed).theta_D - drawn.truth_D)
                for seed in range(8)
                for drawn in [Bandit.draw(seed, users=4000, dimension=4)]
            ]
        )

    none, centre, local = map(off, [Channel("none"), Channel("centre", 0.2), Channel("local", 0.2)])
    assert none < centre < local
    assert off(Channel("local", 30.0)) == pytest.approx(none, rel=1e-6)
