"""Tests of public lists of names: how they are read, and what cannot be told apart."""

import json

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import read_names, whole_path


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["GPT-4", "gpt-4"], "looks like 'GPT-4'"),
        (["a", " a"], "stands there twice"),
        (["gpt-4", "gpt-\uff14"], "looks like"),  # a wide digit
        (["a", 3], "is no name"),
        (["a", "a\u200b"], "looks like 'a'"),  # a blank of no width
        (["a", "\u200b"], "is no name"),
        (["a", "\u202egnp.exe"], r"'\\u202egnp.exe' has a control character"),
        (["a", "b\x1b[2J"], r"'b\\x1b\[2J' has a control character"),
    ],
)
def test_names_that_cannot_be_told_apart(names, message, tmp_path):
    path = tmp_path / "items.json"
    path.write_text(json.dumps(names), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_names("--items", "item", str(path))


def test_lists_are_lines_or_json(tmp_path):
    lines, array = tmp_path / "items.txt", tmp_path / "items.json"
    lines.write_text("\ufeffa b\n\n c \n", encoding="utf-8")
    array.write_text('["a b", "c"]', encoding="utf-8")
    for source in (str(lines), str(array), '["a b", "c"]'):
        assert read_names("--items", "item", source) == ("a b", "c")
    for bad in (str(tmp_path / "none"), '["a", ', '{"a": 1}.json'):
        with pytest.raises(InputError, match="--items"):
            read_names("--items", "item", bad)


def test_a_file_is_named_from_any_folder_and_an_array_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "items.txt").write_text("a\nb\n")
    whole = whole_path("--items", "item", "items.txt")
    assert (
        whole.startswith(str(tmp_path / "items.txt")) and whole_path("--i", "item", whole) == whole
    )
    assert read_names("--items", "item", whole) == ("a", "b")
    assert whole_path("--items", "item", '["a"]') == '["a"]'
    with pytest.raises(InputError, match=r"--items none\.txt cannot be used"):
        whole_path("--items", "item", "none.txt")


def test_a_list_that_was_changed_is_refused(tmp_path):
    path = tmp_path / "items.json"
    path.write_text('["a", "b"]')
    whole = whole_path("--items", "item", str(path))
    path.write_text('["b", "a"]')
    with pytest.raises(InputError, match=r"--items .*items\.json cannot be used: it is not what"):
        read_names("--items", "item", whole)
