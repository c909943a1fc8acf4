"""Runs a command so that nothing of it outlives us, however we end.

The command runs under a small process of its own, the keeper, which ends everything the command
started (SIGTERM, then SIGKILL) and removes its scratch directory: when it is told to, when the
command ends by itself, or when the process that asked for it is gone, by Ctrl-C, SIGTERM or
SIGKILL alike. The keeper leads its own session, so a terminal's Ctrl-C reaches us and not it.
On Linux it is a "child subreaper": daemons that detach themselves stay its descendants, and none
is lost. Elsewhere a daemon whose parent has gone before the end is out of its sight.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

POLL_SECONDS = 0.1
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def kept(
    command: Sequence[str],
    *,
    scratch: Path,
    cwd: Path,
    env: Mapping[str, str],
    output: IO[bytes],
    grace: float = 2.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` with its output in `output`; yield the keeper, which exits when it does.

    On leaving, whatever the reason, everything the command started has ended (killed where it
    had not `grace` seconds after being asked) and `scratch` has been removed. If this process is
    killed, both still happen, shortly afterwards.
    """
    keeper = subprocess.Popen(
        keeping(command, scratch=scratch, grace=grace),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=env,
        start_new_session=True,
    )
    try:
        yield keeper
    finally:
        keeper.terminate()
        keeper.wait()
        # A keeper that is told to stop before it listens has started nothing, and removes nothing.
        shutil.rmtree(scratch, ignore_errors=True)


def keeping(
    command: Sequence[str], *, scratch: Path | None = None, grace: float = 2.0, user: str = ""
) -> list[str]:
    """The command that runs `command` under a keeper; this process must be the one to start it.

    With `user` the command, not its keeper, runs as that operating-system user (needs root): what
    it starts cannot end the keeper.
    """
    # -P: the folder of this file must not come first on sys.path.
    options = [str(os.getpid()), str(scratch or ""), str(grace), user]
    return [sys.executable, "-P", __file__, *options, *command]


def descendants(pid: int) -> list[psutil.Process]:
    """Return every living process below `pid`, zombies not counted."""
    result = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    result.append(process)
    return result


def listens(pid: int, port: int) -> bool:
    """True if a process, or one below it, listens on a TCP port of this machine.

    Asking the port itself could reach someone else's.
    """
    for each in [pid, *(process.pid for process in descendants(pid))]:
        with contextlib.suppress(psutil.Error):
            for connection in psutil.Process(each).net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return True
    return False


def _keep(owner: int, scratch: str, grace: float, user: str, command: list[str]) -> int:
    """Run the command until it ends, we are told to stop, or `owner` is gone; then clean up."""
    stop = False

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        nonlocal stop
        stop = True

    for number in _ENDING:
        signal.signal(number, on_signal)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code: int | None = None
    try:
        child = _start(command, user)
        while not stop and code is None and os.getppid() == owner:
            code = _reap()[0].get(child)
            time.sleep(POLL_SECONDS if code is None else 0)
    finally:
        _end_descendants(grace)
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
    return 0 if code is None else code


def _start(command: list[str], user: str) -> int:
    """Start the command, as another user if one is named; its process's id."""
    if child := os.fork():
        return child
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        if user:
            entry = pwd.getpwnam(user)
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
        os.execvp(command[0], command)
    except (OSError, KeyError) as error:
        print(f"{type(error).__name__}: {command[0]} cannot be started: {error}", file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(127)


def _end_descendants(grace: float) -> None:
    """End every process below this one: SIGTERM, and SIGKILL for what is left after the grace."""
    known: set[psutil.Process] = set()
    deadline = time.monotonic() + grace
    # A scan can miss a process that is being adopted just then, so an empty one proves nothing;
    # having no child does: who is left below us hangs, by adoptions, on a child of ours.
    while _reap()[1] or any(process.is_running() for process in known):
        result = descendants(os.getpid())
        for process in known.union(result):
            with contextlib.suppress(psutil.NoSuchProcess):
                if time.monotonic() > deadline:
                    process.kill()
                elif process not in known:
                    process.terminate()
        known.update(result)
        time.sleep(POLL_SECONDS / 2)


def _reap() -> tuple[dict[int, int], bool]:
    """Collect ended children, adopted ones too: their exit codes, and whether any is left."""
    codes = {}
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    except ChildProcessError:
        return codes, False
    return codes, True


if __name__ == "__main__":
    sys.exit(_keep(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5:]))
