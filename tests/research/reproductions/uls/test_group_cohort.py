"""The check of Estimate-and-Double: what is trained, what each strategy would have taken."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.planning.estimate_and_double import Point, Space, estimate_and_double, noise
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.research.reproductions.uls import group_cohort

SETTINGS = replace(group_cohort._SETTINGS, rounds=5, delta=1e-3)


@pytest.fixture(scope="module")
def rows():
    return group_cohort.group_cohort(
        users=64,
        each=2,
        dimension=3,
        epsilons=(0.3, 0.6),
        seeds=1,
        rates=(2.0,),
        settings=SETTINGS,
    )


def test_every_pair_is_trained_with_what_other_people_say(rows):
    pairs = [row for row in rows if "error_mean" in row]
    assert len(pairs) == 2 * 2 * 2
    for row in pairs:
        assert 0.0 < row["error_mean"] < 3.0
        assert row["noise"] > 0.0
    clips = {row["group_size"]: row["clip"] for row in pairs}
    assert clips[2] < clips[1]
    noises = {(r["epsilon"], r["group_size"], r["cohort"]): r["noise"] for r in pairs}
    assert noises[0.6, 1, 32] < noises[0.3, 1, 32]


def test_every_strategy_has_every_budget(rows):
    chosen = [row for row in rows if "strategy" in row]
    assert len(chosen) == 6 * 3
    for row in chosen:
        assert row["regret_mean"] >= 0.0
        assert row["regret_sd"] is not None


def test_what_each_would_take():
    """Errors that only like cohorts, gradients that only like groups."""
    losses = {Point(g, m): 1.0 / m for g in (1, 2, 4) for m in (32, 64, 128)}
    norms = GroupNorms({1: 1.0, 2: 0.1, 4: 0.01}, 0.1, 4, np.array([4]), 2)
    found = group_cohort._chosen(losses, Space(Point(1, 32), 128, 1000), norms, lambda m: 1.0)
    assert found["estimate-and-double"] == 1 / 32 - 1 / 128  # misled: it doubled the group twice
    assert found["max group size"] == found["least noise"] == found["estimate-and-double"]
    assert found["max cohort"] == found["greedy local oracle"] == 0.0
    assert found["random"] == pytest.approx((1 / 32 + 1 / 64 + 1 / 128) / 3 - 1 / 128)


def test_the_oracle_follows_the_loss():
    space = Space(Point(1, 32), 256, 4096)
    assert group_cohort.greedy_oracle(space, lambda p: -p.cohort) == Point(1, 256)
    assert group_cohort.greedy_oracle(space, lambda p: -p.group_size) == Point(8, 32)

    def length(group_size):
        return group_size**-0.5

    def multiplier(cohort):
        return 0.6 + 30.0 * cohort / 4096

    found = group_cohort.greedy_oracle(space, lambda p: noise(p, length, multiplier))
    assert found == estimate_and_double(space, length, multiplier)[-1].to


def test_quick_is_less_of_the_same(monkeypatch):
    monkeypatch.setattr(group_cohort._Trained, "__init__", lambda self, *given: None)
    monkeypatch.setattr(group_cohort._Trained, "error", lambda self, *given: 1.0)
    monkeypatch.setattr(group_cohort.accountant, "noise_multiplier_for", lambda *a, **k: 1.0)
    rows = group_cohort.group_cohort(True)
    assert {row["epsilon"] for row in rows if "error_mean" in row} == {1.0, 8.0}
    assert max(row["cohort"] for row in rows if "error_mean" in row) == 256


def test_remarks_and_plot(rows):
    (words,) = group_cohort.remarks(rows)
    assert all(name in words for name in ("estimate-and-double", "greedy local oracle", "random"))
    figure = group_cohort.plot(rows)
    assert len(figure.axes) == 3
    assert len(figure.axes[-1].lines) == 6
