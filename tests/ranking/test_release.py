"""Tests of what a release of votes holds."""

import json
from dataclasses import replace

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.ranking.release import Noise, RankingRelease

NOISE = Noise(net=3.0, variance=2.0, votes=4.0, squares=5.0, ties=6.0, voters=7.0, clipped=8.0)


def release(boards: tuple[str, ...] = ("",), **changes: object) -> RankingRelease:
    b, k = len(boards), 3
    numbers = np.arange(b * k, dtype=np.float64).reshape(b, k)
    fields = {
        "items": ("a", "b", "c"),
        "boards": boards,
        "pairing": "public",
        "net_BK": numbers,
        "variance_BK": numbers + 1,
        "votes_B": np.full(b, 30.0),
        "squares_B": np.full(b, 70.0),
        "ties_B": np.full(b, 2.0),
        "voters_B": np.full(b, 9.0),
        "clipped": 1.0,
        "noise": NOISE,
        "cap": 4,
        "clip_norm": 5.0,
    }
    if b > 1:
        fields |= {"overall_variance_K": np.ones(k), "overall_squares": 1.0, "overall_voters": 9.0}
    return RankingRelease(**{**fields, **changes})  # type: ignore[arg-type]


def test_it_comes_back_from_json() -> None:
    counts = np.ones((2, 3, 3)) - np.eye(3)
    before = release(("de", "en"), pairing="voters", pair_counts_BKK=counts, epsilon=1.0)
    after = RankingRelease.from_json(json.loads(json.dumps(before.to_json())))
    assert after.to_json() == before.to_json()
    assert after.noise == before.noise


def test_public_pairs_are_compared_alike() -> None:
    exposure_KK = release().exposure_BKK[0]
    assert (np.diag(exposure_KK) == 0).all()
    assert exposure_KK[0, 1] == 10.0 and exposure_KK.sum() == 60.0


def test_boards_add_up_with_their_noise() -> None:
    both = release(("de", "en"))
    whole = both.overall()
    assert whole.boards == ("",)
    assert np.allclose(whole.net_BK, both.net_BK.sum(axis=0, keepdims=True))
    assert whole.noise.net == pytest.approx(3.0 * 2**0.5) and whole.noise.clipped == 8.0
    assert both.board(1).boards == ("en",) and both.board(1).net_BK[0, 0] == 3.0


def test_what_voters_are_in_all_boards_together_is_not_what_they_are_in_each() -> None:
    noise = replace(NOISE, overall_variance=20.0, overall_squares=50.0, overall_voters=70.0)
    more = {"overall_variance_K": np.full(3, 99.0), "overall_squares": 98.0, "overall_voters": 9.5}
    both = release(("de", "en"), noise=noise, **more)
    whole = both.overall()
    assert (whole.variance_BK == 99.0).all()
    assert (whole.squares_B[0], whole.voters_B[0]) == (98.0, 9.5)
    assert (whole.noise.variance, whole.noise.squares, whole.noise.voters) == (20.0, 50.0, 70.0)
    assert whole.noise.net == pytest.approx(3.0 * 2**0.5)
    assert both.board(0).overall_variance_K is None is whole.overall_variance_K
    again = RankingRelease.from_json(json.loads(json.dumps(both.to_json())))
    assert again.overall().to_json() == whole.to_json()
    with pytest.raises(InputError, match="overall_variance_K"):
        replace(both, overall_variance_K=np.full(2, 1.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"pairing": "voters"},
        {"pairing": "drawn"},
        {"items": ("a", "a", "b")},
        {"net_BK": np.zeros((1, 2))},
        {"votes_B": np.array([np.nan])},
        {"boards": ()},
        {"overall_variance_K": np.ones(3)},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict) -> None:
    with pytest.raises(InputError):
        replace(release(), **changes)


def test_noise_is_no_negative_number() -> None:
    with pytest.raises(InputError):
        replace(NOISE, net=-1.0)
