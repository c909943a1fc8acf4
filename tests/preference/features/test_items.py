"""Tests of one-hot features of items, and of the public lists that they come from."""

import json

import numpy as np
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.features.items import ItemFeatures, read_names


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
        (["GPT-4", "gpt-4"], "looks like 'GPT-4'"),
        (["a", " a"], "stands there twice"),
        (["gpt-4", "gpt-\uff14"], "looks like"),  # a wide digit
        (["one"], "at least two items"),
        (["a", 3], "is no name"),
        (["a", "a\u200b"], "looks like 'a'"),  # a blank of no width
        (["a", "\u200b"], "is no name"),
        (["a", "\u202egnp.exe"], r"'\\u202egnp.exe' has a control character"),
        (["a", "b\x1b[2J"], r"'b\\x1b\[2J' has a control character"),
        ([*map(str, range(5_001))], "at most 5,000 items, and there are 5,001"),
    ],
)
def test_names_that_cannot_be_told_apart(names, message, tmp_path):
    path = tmp_path / "items.json"
    path.write_text(json.dumps(names), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        ItemFeatures(read_names("--items", str(path)))


def test_lists_are_lines_or_json(tmp_path):
    lines, array = tmp_path / "items.txt", tmp_path / "items.json"
    lines.write_text("\ufeffa b\n\n c \n", encoding="utf-8")
    array.write_text('["a b", "c"]', encoding="utf-8")
    for source in (str(lines), str(array), '["a b", "c"]'):
        assert read_names("--items", source) == ("a b", "c")
    for bad in (str(tmp_path / "none"), '["a", ', '{"a": 1}.json'):
        with pytest.raises(InputError, match="--items"):
            read_names("--items", bad)
