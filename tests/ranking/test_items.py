"""Tests of one-hot features of items."""

import json

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import feature_map
from murmuration.ranking.items import ItemFeatures


def test_one_feature_an_item_and_board():
    features = ItemFeatures(("a", "b", "c"), ("x", "y"))
    phi_RD = features(["x", "y", "y"], ["a", "c", " b"])
    assert np.flatnonzero(phi_RD).tolist() == [0, 6 + 5, 12 + 4]
    assert features.dimension == 6 and features.uses_prompt


def test_without_boards_the_prompt_is_not_looked_at():
    features = ItemFeatures(("a", "b"))
    assert not features.uses_prompt
    assert (features(["?", "!"], ["b", "b"]) == [[0, 1], [0, 1]]).all()


def test_it_comes_back_from_its_description():
    features = ItemFeatures(("a", "b"), ("x",))
    assert feature_map(json.loads(json.dumps(features.to_config()))) == features


@pytest.mark.parametrize(
    ("prompt", "response", "message"), [("x", "z", "no item"), ("z", "a", "no category")]
)
def test_what_is_on_no_list_has_no_features(prompt, response, message):
    with pytest.raises(InputError, match=message):
        ItemFeatures(("a", "b"), ("x", "y"))([prompt], [response])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["one"], "at least two items"),
        (["GPT-4", "gpt-4"], "looks like 'GPT-4'"),
        ([*map(str, range(5_001))], "at most 5,000 items, and there are 5,001"),
    ],
)
def test_lists_that_are_no_board(names, message):
    with pytest.raises(InputError, match=message):
        ItemFeatures(names)
