"""A user's own file: whole or refused, on disk before anything is said, and read by nobody else."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from murmuration.client.labels import private_file
from murmuration.client.labels.private_file import PrivateFile
from murmuration.preference.data.errors import InputError

FIRST, SECOND = {"users": {"a": 1}}, {"users": {"a": 1, "ü": [2, 3]}}


@pytest.fixture
def file(tmp_path):
    return PrivateFile(tmp_path / "deep" / "s.state")


def put(file, document):
    with file.locked():
        file.write(document)


def get(file):
    with file.locked():
        return file.read()


def test_what_was_written_is_read(file):
    assert get(file) == {}
    put(file, FIRST)
    put(file, SECOND)
    assert get(PrivateFile(file.path)) == SECOND
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["s.state", "s.state.lock"]


def test_nobody_else_may_read_it(file):
    before = os.umask(0)
    try:
        put(file, FIRST)
    finally:
        os.umask(before)
    for path in (file.path, file.lock_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.path.chmod(0o640)
    with pytest.raises(InputError, match=r"s\.state can be read by others \(mode 640\): chmod 600"):
        get(file)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:20],
        lambda data: b"",
        lambda data: data.replace(b'"a":1', b'"a":2'),
        lambda data: data + b" ",
        lambda data: data.partition(b"\n")[2],
        lambda data: data.replace(b"file 1", b"file 2"),
        lambda data: b"\0" * len(data),
    ],
)
def test_a_damaged_file_is_refused(file, damage):
    put(file, FIRST)
    file.path.write_bytes(damage(file.path.read_bytes()))
    with pytest.raises(InputError, match=r"s\.state is damaged, so nothing is answered"):
        get(file)


def test_a_file_that_is_gone_is_refused(file):
    put(file, FIRST)
    copy = file.path.read_bytes()
    file.path.unlink()
    with pytest.raises(InputError, match=r"s\.state is gone"):
        get(file)
    file.path.write_bytes(copy)
    file.path.chmod(0o600)
    assert get(file) == FIRST
    file.path.unlink()
    file.lock_path.unlink()
    assert get(file) == {}


@pytest.mark.parametrize("before", [{}, FIRST])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_cannot_be_written_changes_nothing(file, monkeypatch, step, before):
    if before:
        put(file, before)

    def full(*_):
        raise OSError(28, "No space left on device")

    where = (Path, "replace") if step == "replace" else (private_file.os, step)
    monkeypatch.setattr(*where, full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        put(file, SECOND)
    monkeypatch.undo()
    assert get(file) == before
    assert len(list(file.path.parent.iterdir())) == 1 + bool(before)
    put(file, SECOND)
    assert get(file) == SECOND


class Killed(BaseException):
    """The process ends here."""


def test_a_file_that_a_crash_left_behind_is_missed_once_it_was_read(file, monkeypatch):
    real_replace = Path.replace

    def killed(path, target):
        real_replace(path, target)
        raise Killed

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(Killed):
        put(file, FIRST)
    monkeypatch.undo()
    assert get(file) == FIRST  # which may be told now
    file.path.unlink()
    with pytest.raises(InputError, match=r"s\.state is gone"):
        get(file)


def test_a_copy_without_its_lock_is_missed_once_it_was_read(file, tmp_path):
    put(file, FIRST)
    copy = PrivateFile(tmp_path / "copy")
    copy.path.write_bytes(file.path.read_bytes())
    copy.path.chmod(0o600)
    assert get(copy) == FIRST
    copy.path.unlink()
    with pytest.raises(InputError, match="copy is gone"):
        get(copy)


@pytest.mark.parametrize("writing", [True, False])
def test_nothing_is_said_before_it_would_be_missed(file, monkeypatch, writing):
    if not writing:
        put(file, FIRST)
        file.lock_path.unlink()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PrivateFile, "_remember", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        put(file, FIRST) if writing else get(file)


def test_a_crash_before_anything_was_there_loses_nothing(file, monkeypatch):
    def killed(*_):
        raise Killed

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(Killed):
        put(file, FIRST)
    monkeypatch.undo()
    assert get(file) == {}


def test_a_file_that_vanished_while_it_could_not_be_written_is_missed(file, monkeypatch):
    put(file, FIRST)

    def full(*_):
        file.path.unlink()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="cannot be written"):
        put(file, SECOND)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"s\.state is gone"):
        get(file)


def test_file_and_folder_are_flushed_in_order(file, monkeypatch):
    steps = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"flush {kind}")
        real_fsync(descriptor)

    def replace(path, target):
        steps.append("rename")
        return real_replace(path, target)

    put(file, FIRST)
    monkeypatch.setattr(private_file.os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    put(file, SECOND)
    assert steps == ["flush file", "rename", "flush folder"]


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        get(PrivateFile(tmp_path / "taken" / "s"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        get(PrivateFile(tmp_path / "folder"))


def test_one_file_has_one_lock_whatever_it_is_called(file, tmp_path):
    put(file, FIRST)
    link = tmp_path / "link"
    link.symlink_to(file.path)
    assert PrivateFile(link).lock_path == file.lock_path
    put(PrivateFile(link), SECOND)
    assert link.is_symlink()
    assert get(file) == SECOND


def test_turns_are_taken(file):
    order = []

    def second():
        with PrivateFile(file.path).locked():
            order.append("second")

    with file.locked():
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
