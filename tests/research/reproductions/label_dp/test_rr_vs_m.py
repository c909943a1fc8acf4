"""Randomized response against the judgements of each user: rows and what they must show."""

import pytest

from murmuration.research.reproductions.label_dp import rr_vs_m
from murmuration.research.reproductions.label_dp.rr_vs_m import DEBIASED, LIKELIHOOD


@pytest.fixture(scope="module")
def rows():
    return rr_vs_m.rr_vs_m(judgements=2000, users=200, each=(1, 20), seeds=2, rounds=10)


def error(rows, held, m, estimator):
    (row,) = [
        row
        for row in rows
        if row["held"].endswith(held) and (row["m"], row["estimator"]) == (m, estimator)
    ]
    return row["error_mean"]


def test_what_is_held_is_held(rows):
    assert {row["m"] * row["users"] for row in rows if row["held"].endswith("in all")} == {2000}
    assert {row["users"] for row in rows if row["held"].endswith("users")} == {200}
    assert {
        row["epsilon_per_label"] for row in rows if row["estimator"] == DEBIASED and row["m"] == 20
    } == {3.0 / 20}


def test_the_same_judgements_from_fewer_users_say_less_behind_coins(rows):
    for estimator in (DEBIASED, LIKELIHOOD):
        assert error(rows, "in all", 20, estimator) > 2 * error(rows, "in all", 1, estimator)


def test_more_judgements_from_everybody_help_who_averages(rows):
    assert error(rows, "users", 20, "maximum likelihood") < error(
        rows, "users", 1, "maximum likelihood"
    )
    assert error(rows, "users", 20, "aup") < error(rows, "users", 1, "aup")
