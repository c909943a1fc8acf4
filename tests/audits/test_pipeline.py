"""Audits of whole runs."""

import numpy as np
import pytest

from murmuration.audits import policy_pipeline
from murmuration.audits.auditing import CONFIDENCE, Scores, Task, one_run_bound, threshold_bound
from murmuration.audits.pipeline import (
    TARGETS,
    LinearRewards,
    Outcome,
    _directions,
    canary_words,
    guesses_about,
    one_run,
    pooled,
    run_canaries,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness

ADD = Adjacency.ADD_REMOVE
ONE_RUN = policy_pipeline.TARGETS


def task(adjacency=ADD, epsilon=8.0, trials=500):
    return Task(adjacency, epsilon, trials, Randomness(0))


def test_canaries_have_features_of_their_own():
    x_MD = _directions(canary_words(200))
    np.testing.assert_allclose(x_MD @ x_MD.T, np.eye(200), atol=1e-12)
    with pytest.raises(ValueError, match="more features"):
        canary_words(3000)


def test_guesses_are_counted_at_both_ends():
    in_M = np.array([False] * 50 + [True] * 50)
    right = Outcome(in_M, np.arange(100.0), -np.arange(100.0), 1.0)
    assert right.correct(right.white_M, 20) == 20
    assert right.correct(right.black_M, 20) == 0


@pytest.mark.parametrize("adjacency", [ADD, Adjacency.REPLACE_LABELS])
def test_a_run_tells_the_attacker_something_and_not_too_much(quick_runs, adjacency):
    asked = task(adjacency)
    found = run_canaries(asked, 0, learner=LinearRewards(400))
    assert found.claimed == pytest.approx(8.0, rel=1e-3)
    assert 150 < found.in_M.sum() < 250
    for white in (True, False):
        everybody = pooled(asked, [found], white=white)
        assert everybody.lower <= everybody.claimed
        assert everybody.fit > (1.0 if white else 0.0)
        alone = one_run(asked, found, white=white)
        assert alone.lower <= alone.claimed


def test_a_bug_between_client_and_ledger_shows(quick_runs, monkeypatch):
    """Noise at a thirtieth, in the one place where it is added."""
    monkeypatch.setattr(
        GaussianSum, "std", property(lambda self: self.noise_multiplier * self.clip.norm / 30)
    )
    asked = task(epsilon=1.0)
    found = run_canaries(asked, 0, learner=LinearRewards(400))
    assert found.claimed == pytest.approx(1.0, rel=1e-3)
    for white in (True, False):
        assert pooled(asked, [found], white=white).lower > 1.0
        assert one_run(asked, found, white=white).lower > 1.0


@pytest.mark.parametrize("name", ONE_RUN | TARGETS)
def test_an_attacker_who_never_errs_refutes_what_is_claimed(name):
    target, terms = (ONE_RUN | TARGETS)[name], {"delta": 1e-5, "confidence": CONFIDENCE}
    if "one-run" in name or name in ONE_RUN:
        canaries = 2 * target.trials
        guesses = guesses_about(canaries)
        ceiling = one_run_bound(guesses, guesses, canaries, **terms)
    else:
        certain_N = np.ones(target.trials)
        ceiling = threshold_bound(Scores(certain_N, -certain_N), **terms)
    assert ceiling > 1.2 * target.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_targets(name):
    target = TARGETS[name]  # at 8, where even a quarter of the trials show more than chance
    found = target.measure(task(trials=max(500, target.trials // 4)))
    assert 0.5 < found.lower <= found.claimed
