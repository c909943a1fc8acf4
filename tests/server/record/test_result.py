"""A result is written and read as a whole, or not at all."""

import json

import pytest
from cards import RESULT

from murmuration.preference.data.errors import InputError
from murmuration.server.record.result import FILE, Result


def test_a_result_is_read_as_it_was_written(tmp_path):
    assert Result.read(tmp_path) is None
    result = Result(**RESULT)
    (tmp_path / FILE).write_text(json.dumps(result.to_json()))
    assert Result.read(tmp_path) == result
    assert result.to_json() == RESULT


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("epsilon", {"epsilon": "3"}),
        ("rounds", {"rounds": 2.5}),
        ("private", {"private": 1}),
        ("delta", {"delta": True}),
        ("warnings", {"warnings": None}),
        ("features", {"features": []}),
        ("a_new_field", {"a_new_field": 1}),
    ],
)
def test_another_type_or_field_is_named_with_the_file(tmp_path, name, change):
    (tmp_path / FILE).write_text(json.dumps(RESULT | change))
    with pytest.raises(InputError) as refused:
        Result.read(tmp_path)
    assert f"{tmp_path / FILE}: {name} " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", RESULT)
def test_a_missing_field_is_named_with_the_file(tmp_path, name):
    (tmp_path / FILE).write_text(json.dumps({k: v for k, v in RESULT.items() if k != name}))
    with pytest.raises(InputError, match=f"{name} is missing"):
        Result.read(tmp_path)
