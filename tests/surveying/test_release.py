"""What a survey's release tells: intervals that hold what they claim, and nothing below zero."""

import json

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.surveying.questionnaire import Questionnaire
from murmuration.surveying.release import SurveyRelease

FORM = Questionnaire()
#: Users by bin of their number of judgements.
BINS = np.array([101, 150, 260, 190, 140, 80, 40, 24, 15, 0], dtype=float)


def exact_sum():
    """The sum of 1,000 users' vectors, with every other question answered alike."""
    sum_V = np.zeros(FORM.dimension)
    sum_V[0] = BINS.sum()
    sum_V[FORM.places[0]] = BINS
    for place in FORM.places[1:]:
        sum_V[place.start] = BINS.sum()
    return sum_V


def released(noise=10.0, seed=0, sum_V=None, **changes):
    sum_V = exact_sum() if sum_V is None else sum_V
    noisy_V = sum_V + np.random.default_rng(seed).normal(0.0, noise, FORM.dimension)
    fields = {"topics": (), "noise": noise, "stated_users": None, "epsilon": 0.5, "delta": 1e-5}
    return SurveyRelease(**{**fields, "sum_V": noisy_V, **changes})


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of 400 releases each; the binomial's four standard deviations."""
    users = BINS.sum()
    hits, total, wrongly_seen = 0, 0, 0
    for seed in range(400):
        release = released(noise=20.0, seed=seed)
        for share, truth in zip(release.per_user, BINS / users, strict=True):
            hits += abs(share.share - truth) <= share.error
            total += 1
        wrongly_seen += any(
            not share.within_noise and not exact
            for shares, place in zip(release.shares.values(), FORM.places, strict=True)
            for share, exact in zip(shares, exact_sum()[place], strict=True)
        )
    assert abs(hits / total - 0.95) < 4 * np.sqrt(0.95 * 0.05 / total)
    assert wrongly_seen <= 400 * 0.05 + 4 * np.sqrt(400 * 0.05 * 0.95)


@pytest.mark.parametrize(
    ("part", "truth"), [(0.25, (2, 2)), (0.5, (3, 4)), (0.75, (9, 16)), (0.99, (129, 256))]
)
def test_quantiles_of_next_to_no_noise(part, truth):
    assert released(noise=1e-6).quantile(part) == truth


def test_quantiles_hold_the_truth_as_often_as_they_say():
    """The share of 400 releases in which the median's bin is in the range."""
    hits = 0
    for seed in range(400):
        least, most = released(noise=60.0, seed=seed).quantile(0.5)
        hits += least <= 3 and (most is None or most >= 4)
    assert hits > 400 * 0.95 - 4 * np.sqrt(400 * 0.95 * 0.05)


def test_where_noise_leaves_nothing_a_quantile_may_be_anything():
    release = released(noise=200.0, seed=1)
    least, most = release.quantile(0.9)
    assert least <= 33 and most is None


def test_noise_alone_is_nothing_learnt():
    silent = [released(sum_V=np.zeros(FORM.dimension), seed=seed) for seed in range(300)]
    assert np.mean([release.learnt_nothing for release in silent]) > 0.94
    (nothing,) = [release for release in silent if release.learnt_nothing][:1]
    for shares in nothing.shares.values():
        assert all(share.within_noise and np.isnan(share.share) for share in shares)
    assert not released().learnt_nothing


def test_no_interval_leaves_what_shares_can_be():
    for seed in range(50):
        for shares in released(noise=30.0, seed=seed).shares.values():
            for share in shares:
                assert 0.0 <= share.low <= share.high <= 1.0


def test_counts_stay_as_they_were_released():
    release = released(seed=3)
    counts = [share.count for shares in release.shares.values() for share in shares]
    assert counts == release.sum_V[1:].tolist() and min(counts) < 0
    again = SurveyRelease.from_json(json.loads(json.dumps(release.to_json())))
    assert again.to_json() == release.to_json()


@pytest.mark.parametrize(
    "changes",
    [
        {"sum_V": np.zeros(3)},
        {"sum_V": np.full(FORM.dimension, np.nan)},
        {"noise": 0.0},
        {"topics": ("a", "A")},
    ],
)
def test_what_is_no_release(changes):
    written = {**released().to_json(), **changes}
    with pytest.raises(InputError):
        SurveyRelease.from_json(written)
    with pytest.raises(InputError, match="no release of a survey"):
        SurveyRelease.from_json({"noise": 1.0})
