"""Rankings with a known truth: drawn by Plackett and Luce's model, rows, exponents."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.research.reproductions import aup_kwise
from murmuration.research.reproductions.aup_kwise import (
    CENTRED,
    PUBLISHED,
    SAMPLING,
    STRATEGIES,
    ULS,
    Rankings,
)

SETTINGS = replace(aup_kwise._SETTINGS, rounds=6, cohort=60, epsilon=50.0)


def test_the_first_of_a_ranking_is_as_likely_as_the_model_says():
    """Gumbel noise makes it the softmax: summed over judgements, chances and firsts agree."""
    people = Rankings.draw(3, 4, users=500, each=10, dimension=5)
    x_JWD = people.examples.x_RD.double().numpy().reshape(-1, 3, 5)
    # Rewards of the others less the first's, which is zero.
    others_JW = -(x_JWD @ people.truth_D)
    chance_J = 1.0 / (1.0 + np.exp(others_JW).sum(axis=1))
    rewards_JK = np.concatenate([np.zeros((len(others_JW), 1)), others_JW], axis=1)
    p_JK = np.exp(rewards_JK) / np.exp(rewards_JK).sum(axis=1, keepdims=True)
    # The first is the k-th with chance p_k, so its own chance has the mean of Σ_k p_k².
    off = chance_J - (p_JK**2).sum(axis=1)
    assert abs(off.mean()) < 4.0 * off.std() / np.sqrt(len(off))


def test_maximum_likelihood_finds_the_model_of_many_rankings():
    for responses in (2, 5):
        people = Rankings.draw(0, responses, users=2000, each=10, dimension=4)
        assert people.error(people.likeliest()) < 0.1
        assert people.error(np.zeros(4)) == pytest.approx(2.0)


def test_rows_have_the_best_scale_of_each_and_exponents_of_several():
    rows = aup_kwise.aup_kwise(
        responses=(2, 3, 6),
        seeds=2,
        sizes=(120, 5, 3),
        scales=(1.0, 4.0),
        settings=SETTINGS,
    )
    measured = [row for row in rows if "responses" in row]
    assert [row["strategy"] for row in measured[::3]] == [SAMPLING, PUBLISHED, CENTRED, ULS]
    assert [row["responses"] for row in measured[:3]] == [2, 3, 6]
    assert {row["scale"] for row in measured[:3]} == {None}
    assert {row["scale"] for row in measured[3:]} <= {1.0, 4.0}
    assert all(row["error_mean"] > 0.0 for row in measured)
    slopes = rows[len(measured) :]
    for row in slopes:
        assert row["low"] < row["slope"] < row["high"]
    assert slopes[0]["slope"] < 0.0  # a longer ranking tells more
    # With two values of K it is about the log of a ratio of means.
    ratio_R = np.log([row["error_mean"] for row in measured[1:3]])
    assert slopes[0]["slope"] == pytest.approx((ratio_R[1] - ratio_R[0]) / np.log(2.0), abs=0.3)
    assert len(slopes) == 1 + len(STRATEGIES)
