"""Files are replaced whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from murmuration.privacy.durable_files import replace_file


def test_replaced(tmp_path):
    path = tmp_path / "a.json"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_flushed_before_it_takes_the_place_and_its_name_after(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.json", []
    replace_file(path, b"old")
    fsync = os.fsync

    def noted(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, path.read_bytes()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    replace_file(path, b"new")
    assert seen == [("file", b"old"), ("folder", b"new")]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_file(path, b"old")

    def full(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
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


def test_readable_by_nobody_else_if_asked_for(tmp_path):
    replace_file(tmp_path / "a", b"", mode=0o600)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_name_that_could_not_be_flushed_is_an_error(tmp_path, monkeypatch):
    """Whoever was told that it is on disk would be wrong."""
    path, fsync = tmp_path / "a", os.fsync

    def of_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", of_files)
    with pytest.raises(OSError, match="Input/output"):
        replace_file(Path(path), b"new")
