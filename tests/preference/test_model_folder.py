"""Folders that are written whole or not at all."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from murmuration.preference import model_folder
from murmuration.preference.data.errors import InputError
from murmuration.preference.model_folder import replace_folder


def write(text):
    return lambda folder: (folder / "file").write_text(text)


def test_a_folder_is_replaced(tmp_path):
    replace_folder(tmp_path / "m", write("old"), lambda _: None, overwrite=False)
    replace_folder(tmp_path / "m", write("new"), lambda _: None, overwrite=True)
    assert (tmp_path / "m" / "file").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_what_fails_leaves_the_former(tmp_path):
    replace_folder(tmp_path / "m", write("old"), lambda _: None, overwrite=False)

    def fail(folder):
        (folder / "half").write_text("")
        raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        replace_folder(tmp_path / "m", fail, lambda _: None, overwrite=True)
    assert (tmp_path / "m" / "file").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_what_is_there_is_left_alone(tmp_path):
    def no_model(_):
        raise InputError("not a model")

    (tmp_path / "m").mkdir()
    for overwrite, said in ((False, "already exists"), (True, "not a model")):
        with pytest.raises(InputError, match=said):
            replace_folder(tmp_path / "m", write("x"), no_model, overwrite=overwrite)
    assert not list((tmp_path / "m").iterdir())


@pytest.mark.parametrize("one_step", [True, False])
@pytest.mark.parametrize("fails", ["rename", "fsync"])
def test_a_rename_or_a_flush_that_fails_loses_nothing(tmp_path, monkeypatch, one_step, fails):
    """Each in turn, as on a full disk: what is at the place afterwards is a whole model."""
    replace_folder(tmp_path / "m", write("old"), lambda _: None, overwrite=False)
    if not one_step:
        monkeypatch.setattr(model_folder, "_exchange", lambda one, other: False)
    owner, name = (Path, "rename") if fails == "rename" else (os, "fsync")
    real = getattr(owner, name)
    for number in range(1, 9):
        calls, texts = [], ("old", "new")

        def fail(*args, calls=calls, number=number):
            calls.append(args)
            if len(calls) == number:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args)

        with monkeypatch.context() as full, suppress(OSError):
            full.setattr(owner, name, fail)
            replace_folder(tmp_path / "m", write("new"), lambda _: None, overwrite=True)
        whole = [f.read_text() for f in tmp_path.glob("*/file")]
        assert (tmp_path / "m" / "file").read_text() in texts
        assert len(whole) == 1 or len(calls) == number
        for left in tmp_path.glob(".m.*"):  # a former one that was not removed
            shutil.rmtree(left)
        if len(calls) < number:
            break
    else:
        pytest.fail("some step was not reached")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the former is beside its place")
def test_a_kill_at_any_step_leaves_a_whole_model_in_its_place(tmp_path):
    """SIGKILL before each call to the system that has to do with files."""
    code = """
import os, pathlib, shutil, signal, sys
from murmuration.preference import model_folder

place, left = sys.argv[1], int(sys.argv[2])

def killed(owner, name):
    real = getattr(owner, name)

    def call(*args, **named):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **named)

    setattr(owner, name, call)

for owner, name in ((os, "fsync"), (pathlib.Path, "rename"), (shutil, "rmtree"),
                    (model_folder, "_exchange")):
    killed(owner, name)
write = lambda folder: (folder / "file").write_text("new" * 9)
model_folder.replace_folder(place, write, lambda _: None, overwrite=True)
"""
    place = tmp_path / "m"
    for left in range(1, 20):
        shutil.rmtree(place, ignore_errors=True)
        replace_folder(place, write("old"), lambda _: None, overwrite=False)
        done = subprocess.run([sys.executable, "-c", code, place, str(left)], check=False)
        assert (place / "file").read_text() in ("old", "new" * 9)
        if done.returncode == 0:
            assert left == 6  # flushes of file, folder and its parent, exchange, removal
            break
        assert done.returncode == -signal.SIGKILL
