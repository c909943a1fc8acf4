"""Known tastes: that what is measured is one where the truth is found, and less elsewhere."""

import numpy as np
import pytest

from murmuration.research.reproductions.rivals import known_tastes
from murmuration.research.reproductions.rivals.known_tastes import Case, cosine, known


def test_a_rotation_of_the_truth_is_the_truth_and_what_is_missing_is_none():
    draw = np.random.default_rng(0)
    truth_NV = draw.standard_normal((200, 2))
    turned = truth_NV @ np.array([[0.6, 0.8], [-0.8, 0.6]]) * 7.0
    assert cosine(turned, truth_NV) == pytest.approx(1.0)
    more = np.concatenate([draw.standard_normal((200, 1)), turned], axis=1)
    assert cosine(more, truth_NV) == pytest.approx(1.0)
    assert cosine(turned[:, :1], truth_NV) == 0.0
    half = np.stack([truth_NV[:, 0], draw.standard_normal(200)], axis=1)
    assert cosine(half, truth_NV) < 0.3


def test_the_truth_is_what_camps_differ_in():
    users = known(Case(), "test", 3, 20, 64)
    assert len(users.truth_NV) == len(users.people.half_J)
    assert users.people.pairs.counts_U.max() <= 20
    assert len(users.people.pairs.counts_U) == 20
    later = known(Case(), "test", 4, 1, 64)
    first, end = users.people.pairs.start_U[1:3].tolist()
    np.testing.assert_array_equal(later.truth_NV, users.truth_NV[first:end])
    # One camp likes what its direction says more of, and the other what it says less of.
    means = [
        users.truth_NV[a:b].mean()
        for a, b in np.lib.stride_tricks.sliding_window_view(users.people.pairs.start_U, 2)
    ]
    assert min(means) < -0.2 < 0.2 < max(means)


def test_a_miniature_finds_more_than_chance():
    result = known_tastes.known_tastes(True)
    (row,) = result.rows
    assert 0.3 < row["cosine_mean"] <= 1.0
    assert row["crowd_mean"] < row["personal_ceiling"] <= 1.0
    assert len(result.remarks) == 1
    assert result.plot is not None
    (legend,) = result.plot.legends
    assert [text.get_text() for text in legend.texts] == [
        *("true own rewards", "the crowd's reward"),
        *("each user's own", "as an agent tells it, ε = 3"),
    ]
