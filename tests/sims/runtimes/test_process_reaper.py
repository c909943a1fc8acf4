"""Processes that a keeper must end: stubborn ones, detached ones, and those of a killed owner."""

import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from murmuration.sims.runtimes import process_reaper
from murmuration.sims.runtimes.process_reaper import descendants, keeping, kept

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sessions are POSIX")

# A shell that starts a child, a grandchild whose parent is gone, and a daemon in a session of its
# own; then says so.
FAMILY = """
sleep 100 &
( sleep 100 & )
setsid sleep 100 &
echo started
wait
"""


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return value


def alive(processes):
    return [process for process in processes if runs(process)]


def runs(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


def start(tmp_path, command, **kwargs):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "file").touch()
    output = (tmp_path / "output").open("wb")
    return kept(command, scratch=scratch, cwd=tmp_path, env=os.environ, output=output, **kwargs)


def test_everything_the_command_started_ends_with_the_block(tmp_path):
    with start(tmp_path, ["bash", "-c", FAMILY]) as process:
        wait_for(lambda: (tmp_path / "output").read_text() == "started\n")
        family = wait_for(lambda: found if len(found := descendants(process.pid)) >= 4 else None)
    assert alive(family) == []
    assert process.returncode == 0
    assert not (tmp_path / "scratch").exists()


def test_an_exception_in_the_block_passes_through_and_ends_them_too(tmp_path):
    with pytest.raises(KeyboardInterrupt), start(tmp_path, ["sleep", "100"]) as process:
        family = wait_for(lambda: descendants(process.pid))
        raise KeyboardInterrupt
    assert alive(family) == []
    assert not (tmp_path / "scratch").exists()


def test_a_block_that_ends_before_its_keeper_listens_removes_the_scratch_too(tmp_path):
    with start(tmp_path, ["sleep", "100"]):
        pass
    assert not (tmp_path / "scratch").exists()


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    stubborn = "trap '' TERM; echo started; while true; do sleep 0.05; done"
    with start(tmp_path, ["bash", "-c", stubborn], grace=0.3) as process:
        wait_for(lambda: (tmp_path / "output").read_text() == "started\n")
        family = descendants(process.pid)
        began = time.monotonic()
    assert alive(family) == []
    assert time.monotonic() - began >= 0.3  # it was asked first


def test_what_a_command_leaves_behind_ends_when_the_command_does(tmp_path):
    with start(tmp_path, ["bash", "-c", "setsid sleep 100 & sleep 0.3; exit 7"]) as process:
        family = wait_for(lambda: found if len(found := descendants(process.pid)) >= 3 else None)
        assert process.wait(timeout=10) == 7
        assert alive(family) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_owner_takes_them_along(tmp_path, number):
    owner_code = f"""
import os, pathlib, sys, time
from murmuration.sims.runtimes.process_reaper import kept
with kept(["bash", "-c", {FAMILY!r}], scratch=pathlib.Path("scratch"), cwd=pathlib.Path.cwd(),
          env=os.environ, output=open("output", "wb")):
    time.sleep(100)
"""
    (tmp_path / "scratch").mkdir()
    root = str(Path(process_reaper.__file__).parents[2])
    owner = subprocess.Popen(
        [sys.executable, "-c", owner_code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": root}
    )
    try:
        wait_for(lambda: len(descendants(owner.pid)) >= 5)  # the keeper, bash and three sleeps
        family = descendants(owner.pid)
    finally:
        owner.send_signal(number)
    owner.wait(timeout=10)
    wait_for(lambda: not alive(family))
    wait_for(lambda: not (tmp_path / "scratch").exists())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_the_command_is_another_user_and_its_keeper_is_not(tmp_path):
    with (tmp_path / "output").open("wb") as output:
        command = keeping(["sh", "-c", "id -u; id -G; exec sleep 100"], user="nobody")
        process = subprocess.Popen(command, stdout=output, start_new_session=True)
    nobody = pwd.getpwnam("nobody")
    try:
        wait_for(lambda: (tmp_path / "output").read_text().count("\n") == 2)
        assert (tmp_path / "output").read_text() == f"{nobody.pw_uid}\n{nobody.pw_gid}\n"
        assert psutil.Process(process.pid).uids().real == 0
        family = descendants(process.pid)
        assert {p.uids().real for p in family} == {nobody.pw_uid}
    finally:
        process.terminate()
        process.wait()
    assert alive(family) == []


def test_a_command_that_cannot_be_started_says_so(tmp_path):
    done = subprocess.run(keeping(["/none"]), capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr.startswith("FileNotFoundError: /none cannot be started")
