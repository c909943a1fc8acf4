"""Labels that were told: what fits together and what does not."""

import numpy as np
import pytest

from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse, ToldLabels

GOOD = {
    "start_U": np.array([0, 2, 2, 3]),
    "items_N": np.array([5, 5, 1], dtype=np.uint64),
    "answers_N": np.array([0, 1, 3]),
    "choices_N": np.array([2, 2, 4]),
    "per_label_U": np.array([0.5, 1.0, 2.0]),
}


def test_flips_follow_from_epsilon_and_choices():
    expected = [RandomizedResponse(0.5).flip_probability] * 2
    expected.append(RandomizedResponse(2.0, 4).flip_probability)
    assert ToldLabels(**GOOD).flips_N.tolist() == expected


def test_nobody():
    none = np.zeros(0, dtype=np.int64)
    empty = ToldLabels(
        np.zeros(1, np.int64), none.astype(np.uint64), none, none, none.astype(float)
    )
    assert empty.flips_N.shape == (0,)


@pytest.mark.parametrize(
    "changed",
    [
        {"start_U": np.array([0, 2, 3])},
        {"start_U": np.array([1, 2, 2, 3])},
        {"start_U": np.array([0, 2, 2, 4])},
        {"start_U": np.array([0, 3, 2, 3])},
        {"items_N": np.array([5, 5, 1])},
        {"items_N": np.array([5, 4, 1], dtype=np.uint64)},
        {"answers_N": np.array([0, 1])},
        {"answers_N": np.array([0, 2, 3])},
        {"answers_N": np.array([0, -1, 3])},
        {"choices_N": np.array([2, 2, 300])},
        {"choices_N": np.array([1, 2, 4])},
        {"per_label_U": np.array([np.nan, 1.0, 2.0])},
        {"per_label_U": np.array([0.0, 1.0, 2.0])},
    ],
)
def test_labels_that_do_not_fit(changed):
    with pytest.raises(ValueError, match=r"label|item|answer"):
        ToldLabels(**(GOOD | changed))
