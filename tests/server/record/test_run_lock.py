"""Whose a folder is, and what its lock remembers."""

import signal
import subprocess
import sys

import pytest

from murmuration.server.record.run_lock import RunInUse, RunLock


def test_one_at_a_time(tmp_path):
    first = RunLock(tmp_path / "run")
    with pytest.raises(RunInUse, match=r"--out .*run is in use by another run"):
        RunLock(tmp_path / "run")
    first.close()
    RunLock(tmp_path / "run")


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; "
        "from murmuration.server.record.run_lock import RunLock\n"
        "lock = RunLock(Path(sys.argv[1])); print('locked', flush=True); time.sleep(120)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        with pytest.raises(RunInUse):
            RunLock(tmp_path)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    RunLock(tmp_path)


def test_a_lock_of_a_folder_that_was_moved_away_is_none(tmp_path):
    first = RunLock(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "aside")
    second = RunLock(tmp_path / "run")
    first.close()
    with pytest.raises(RunInUse):
        RunLock(tmp_path / "run")
    second.close()


def test_what_it_remembers(tmp_path):
    lock = RunLock(tmp_path)
    assert not lock.begun
    lock.note_begun()
    lock.note_begun()
    assert lock.begun
    lock.close()
    again = RunLock(tmp_path)
    assert again.begun
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
