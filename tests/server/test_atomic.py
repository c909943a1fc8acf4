"""Files are replaced whole or not at all."""

import os

import pytest

from server import atomic
from server.atomic import replace_file


def test_replaced(tmp_path):
    path = tmp_path / "a.json"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_flushed_before_it_takes_the_place(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.json", []
    replace_file(path, b"old")
    monkeypatch.setattr(atomic.os, "fsync", lambda _: seen.append(path.read_bytes()))
    replace_file(path, b"new")
    assert seen == [b"old"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_file(path, b"old")

    def full(_: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_readable_by_whom_the_mask_allows(tmp_path):
    mask = os.umask(0o027)
    try:
        replace_file(tmp_path / "a", b"")
    finally:
        os.umask(mask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
