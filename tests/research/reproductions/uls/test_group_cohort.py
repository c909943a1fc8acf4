"""The check of Estimate-and-Double: what is trained, what each strategy would have taken."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.planning.estimate_and_double import Point, Space, estimate_and_double, noise
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.research.reproductions.alignment.claims import AGREES, DISAGREES, OPEN
from murmuration.research.reproductions.entry import where
from murmuration.research.reproductions.uls import group_cohort
from murmuration.research.reproductions.uls.group_cohort import DOUBLE, ORACLE, RANDOM, WORSE

SETTINGS = replace(group_cohort._SETTINGS, rounds=5, delta=1e-3)


@pytest.fixture(scope="module")
def rows():
    return group_cohort.group_cohort(
        users=64,
        each=2,
        dimension=3,
        epsilons=(0.3, 0.6),
        seeds=2,
        rates=(2.0, 0.4),
        settings=SETTINGS,
    )


def test_every_pair_is_trained_with_what_other_people_say(rows):
    pairs = [row for row in rows if "error_mean" in row]
    assert len(pairs) == 2 * 2 * 2
    for row in pairs:
        assert 0.0 < row["error_mean"] < 3.0
        assert row["noise"] > 0.0 and row["error_interval"] > 0.0
    clips = {row["group_size"]: row["clip"] for row in pairs}
    assert clips[2] < clips[1]
    noises = {(r["epsilon"], r["group_size"], r["cohort"]): r["noise"] for r in pairs}
    assert noises[0.6, 1, 32] < noises[0.3, 1, 32]


def test_every_strategy_has_every_budget_every_epsilon_and_all(rows):
    chosen = [row for row in rows if "strategy" in row]
    assert len(chosen) == 6 * (3 + 2 + 1)
    for row in chosen:
        assert row["regret_mean"] >= 0.0
        assert row["regret_interval"] is not None
    (own,) = where(chosen, strategy=DOUBLE, compute=None, epsilon=None)
    for name in WORSE:
        *parts, over_all = where(chosen, strategy=name, compute=None)
        difference = own["regret_mean"] - over_all["regret_mean"]
        assert over_all["difference_mean"] == pytest.approx(difference)
        assert over_all["regret_mean"] == pytest.approx(np.mean([r["regret_mean"] for r in parts]))


def test_the_step_size_is_the_best_on_average_over_seeds(monkeypatch):
    """Each seed would have another: 2 has errors of 0.1 and 1.0, 0.4 has 0.5 and 0.5."""
    errors = iter([{2.0: 0.1, 0.4: 0.5}, {2.0: 1.0, 0.4: 0.5}])

    def result(function, tasks):
        for _ in tasks:
            by_rate = next(errors)
            yield {(1.0, g, 32, rate): by_rate[rate] for g in (1, 2) for rate in by_rate}

    monkeypatch.setattr(group_cohort, "in_processes", result)
    monkeypatch.setattr(group_cohort.accountant, "noise_multiplier_for", lambda *a, **k: 1.0)
    rows = group_cohort.group_cohort(
        users=32, each=2, dimension=3, epsilons=(1.0,), seeds=2, rates=(2.0, 0.4)
    )
    assert [(row["rate"], row["error_mean"]) for row in rows[:2]] == [(0.4, 0.5)] * 2


def test_what_each_would_take():
    """Errors that only like cohorts, gradients that only like groups; the best pair is that of
    the mean, also for a seed of which it is not."""
    losses = {Point(g, m): np.array([1.0, 3.0]) / m for g in (1, 2, 4) for m in (32, 64, 128)}
    losses[Point(4, 32)] = np.array([1.0 / 256, 1.0])
    norms = GroupNorms({1: 1.0, 2: 0.1, 4: 0.01}, 0.1, 4, np.array([4]), 2)
    result = group_cohort._regrets(losses, Space(Point(1, 32), 128, 1000), norms, lambda m: 1.0)
    misled = [1 / 256 - 1 / 128, 1 - 3 / 128]  # it doubled the group twice
    for name in (DOUBLE, "max group size", "least noise"):
        assert result[name] == pytest.approx(misled)
    assert (result["max cohort"] == 0.0).all() and (result[ORACLE] == 0.0).all()
    middle = np.array([1.0, 3.0]) / 64 - np.array([1.0, 3.0]) / 128
    assert result[RANDOM] == pytest.approx((np.array(misled) + middle) / 3)


def regrets(own, oracle, random=(0.5, 0.6, 0.5)):
    """Regrets (E, B, S) of one ε; the first of the budgets has no choice."""
    given = {DOUBLE: own, ORACLE: oracle, RANDOM: random}
    return {name: np.array([[[0.0] * 3, each]]) for name, each in given.items()}


@pytest.mark.parametrize(
    ("own", "oracle", "beats", "as_good"),
    [
        ([0.05, 0.05, 0.06], [0.0, 0.0, 0.0], AGREES, AGREES),
        ([0.3, 0.35, 0.3], [0.0, 0.0, 0.0], AGREES, DISAGREES),
        ([0.9, 0.95, 0.9], [0.9, 0.95, 0.9], DISAGREES, AGREES),
        ([0.0, 1.0, 0.5], [0.0, 0.0, 0.0], OPEN, OPEN),
    ],
)
def test_verdicts_follow_their_rules(own, oracle, beats, as_good):
    rows = group_cohort._compared(regrets(own, oracle), (1.0,), (32, 64))
    (over_all,) = where(rows, strategy=RANDOM, compute=None, epsilon=None)
    assert over_all["verdict"] == beats
    (no_choice,) = where(rows, strategy=ORACLE, compute=32)
    assert "verdict" not in no_choice
    (row,) = where(rows, strategy=ORACLE, compute=64)
    (over_all,) = where(rows, strategy=ORACLE, compute=None, epsilon=None)
    assert row["verdict"] == over_all["verdict"] == as_good


def test_most_is_more_than_half_and_half_against_is_too_many():
    assert group_cohort._most([AGREES, AGREES, OPEN]) == AGREES
    assert group_cohort._most([AGREES, AGREES, DISAGREES, DISAGREES]) == DISAGREES
    assert group_cohort._most([AGREES, OPEN, DISAGREES]) == OPEN
    assert group_cohort._most([]) == OPEN


def test_the_oracle_follows_the_loss():
    space = Space(Point(1, 32), 256, 4096)
    assert group_cohort.greedy_oracle(space, lambda p: -p.cohort) == Point(1, 256)
    assert group_cohort.greedy_oracle(space, lambda p: -p.group_size) == Point(8, 32)

    def length(group_size):
        return group_size**-0.5

    def multiplier(cohort):
        return 0.6 + 30.0 * cohort / 4096

    result = group_cohort.greedy_oracle(space, lambda p: noise(p, length, multiplier))
    assert result == estimate_and_double(space, length, multiplier)[-1].to
