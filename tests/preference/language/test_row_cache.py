"""Rows that are found under their names, whatever happened to the file; tokens, references and
embeddings, whose tests try crashes and several processes, are kept so."""

import os
import stat

import pytest
from damage import change

from murmuration.preference.language.row_cache import RowCache

ROWS = {bytes([n]) * 32: bytes([n]) * (8 + n) for n in range(10)}


@pytest.fixture
def file(tmp_path):
    cache = RowCache(tmp_path / "kept", "key", "numbers")
    cache.add(ROWS)
    cache.write()
    (file,) = (tmp_path / "kept").iterdir()
    return file


def again(file, key="key", kind="numbers"):
    return RowCache(file.parent, key, kind).find([*ROWS, b"another"])


def test_rows_are_found_by_name(file):
    assert again(file) == ROWS
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_what_is_not_written_yet_is_found(tmp_path):
    cache = RowCache(tmp_path, "key", "numbers")
    cache.add(ROWS)
    assert cache.find([*ROWS]) == ROWS and not [*tmp_path.iterdir()]


def test_many_names_are_more_than_a_query(tmp_path):
    rows = {str(n).encode(): str(-n).encode() for n in range(3000)}
    RowCache(tmp_path, "key", "numbers").add(rows)
    assert RowCache(tmp_path, "key", "numbers").find([*rows]) == rows


def test_others_of_the_same_folder_are_not_taken(file):
    assert not again(file, key="another") and not again(file, kind="others")


def test_another_key_in_the_name_does_not_make_it_ones_own(file, caplog):
    file.rename(file.with_name("other.numbers"))
    assert not again(file, key="other")
    assert "numbers are computed again" in caplog.text and not [*file.parent.iterdir()]


def test_no_damage_of_a_byte_changes_a_row(file):
    whole = file.read_bytes()
    lost = 0
    for at in range(0, len(whole), 23):
        file.write_bytes(whole)
        change(at, 0b100)(file)
        found = again(file)
        assert found.items() <= ROWS.items()
        lost += not found
    assert lost > 3


@pytest.mark.parametrize("size", [0, 40, 5000])
def test_a_file_that_was_cut_is_written_anew(file, size):
    file.write_bytes(file.read_bytes()[:size])
    cache = RowCache(file.parent, "key", "numbers")
    assert not cache.find([*ROWS])
    cache.add(ROWS)
    cache.write()
    assert again(file) == ROWS


def test_a_file_has_an_upper_size(file):
    size = file.stat().st_size
    cache = RowCache(file.parent, "key", "numbers", max_bytes=size + 100)
    cache.add({b"large": bytes(101)})
    cache.write()
    assert file.stat().st_size == size


def test_nothing_is_kept_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = RowCache(None, "key", "numbers")
    cache.add(ROWS)
    cache.write()
    assert not cache.find([*ROWS]) and not [*tmp_path.iterdir()]


def test_nothing_new_nothing_written(tmp_path):
    cache = RowCache(tmp_path / "none", "key", "numbers")
    cache.write()
    assert not cache.find([]) and not (tmp_path / "none").exists()


@pytest.mark.parametrize("how", ["readable", "writable", "another account's", "a link"])
def test_a_file_that_is_not_for_its_owner_alone_is_not_used(file, how, monkeypatch, caplog):
    if how == "readable":
        file.chmod(0o640)
    elif how == "writable":
        file.chmod(0o602)
    elif how == "a link":
        elsewhere = file.rename(file.parent.parent / "elsewhere")
        file.symlink_to(elsewhere)
    else:
        account = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: account + 1)
    assert again(file) == {}
    assert "not for this account alone" in caplog.text
    assert file.exists()  # it is not ours to remove
