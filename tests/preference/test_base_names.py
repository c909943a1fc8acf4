"""What a saved model calls its base, and how that is found again."""

import json

import pytest

from murmuration.preference.base_names import last_name, name_for, place_of
from murmuration.preference.data.errors import InputError


@pytest.fixture
def base(tmp_path):
    folder = tmp_path / "bases" / "small"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "runs" / "a" / "model"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["gpt2", "org/small", "minilm"])
def test_hubs_names_stay(name, model):
    assert name_for(name, model) == last_name(name) == name
    assert place_of(str(model / "elsewhere"), model, given=name) == name


def test_a_folder_is_named_by_the_way_to_it_and_found(base, model, tmp_path):
    name = name_for(str(base), model)
    assert name == "../../../bases/small"
    assert place_of(name, model) == str(base)
    assert name_for(str(model / "below"), model) == "./below"  # never as a hub's name
    linked = tmp_path / "elsewhere" / "deep" / "linked"
    linked.parent.mkdir(parents=True)
    linked.symlink_to(model)
    assert place_of(name, linked) == str(base)


@pytest.mark.parametrize("path", ["/mnt/models/small", "/home/small", "/small"])
def test_a_way_through_the_top_tells_nothing(path, model):
    assert name_for(path, model) == "./small"


def test_an_absolute_path_of_an_earlier_version_is_taken_as_it_is(base, model):
    assert place_of(str(base), model) == str(base)
    assert place_of("/not/there", model) == "/not/there"


def test_what_was_moved_is_found_where_somebody_says(base, model, monkeypatch, tmp_path):
    with pytest.raises(
        InputError,
        match="made on the base 'small', and no such folder is here: give it with --base",
    ):
        place_of("./small", model)
    for said in (base.parent, base):
        monkeypatch.setenv("MURMURATION_BASES", f"/not/there:{said}")
        assert place_of("./small", model) == str(base)
    other = model / "small"
    other.mkdir()
    assert place_of("./small", model) == str(base)  # what somebody says comes first
    monkeypatch.delenv("MURMURATION_BASES")
    assert place_of("./small", model) == str(other)


def test_a_run_knows_where_its_base_lay(base, model):
    record = model.parent / "base.json"
    record.write_text(json.dumps({"path": str(base)}))
    assert place_of("./small", model) == str(base)
    for broken in ("", "[]", '{"path": 3}', '{"path": "small"}'):
        record.write_text(broken)
        with pytest.raises(InputError, match="no such folder is here"):
            place_of("./small", model)


def test_what_is_given_comes_before_all(base, model, monkeypatch):
    monkeypatch.setenv("MURMURATION_BASES", str(base))
    other = base.parent / "other"
    other.mkdir()
    assert place_of("./small", model, given=str(other)) == str(other)
    assert place_of("org/small", model, given="org/other") == "org/other"
