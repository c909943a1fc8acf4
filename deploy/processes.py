"""The programs of a deployment as child processes of this one.

Each program runs in a session of its own with its output in a log file; ending it ends everything
that it started, daemons too. If this process is killed, SIGKILL included, they end within seconds.
"""

import contextlib
import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from murmuration.client.isolated import owners_environment, python
from murmuration.deploy import commands
from murmuration.deploy.certificates import executor_secret, make_folders, write_new
from murmuration.deploy.commands import EXECUTOR_SECRET
from murmuration.deploy.confined import in_namespace, node_environment
from murmuration.deploy.handed_over import AUTHORITY, KEY
from murmuration.preference.data.errors import InputError, disk_errors_as
from murmuration.sims.runtimes.process_reaper import descendants, keeping

GRACE = 3.0  # seconds from asking a program to end to killing it
_PATIENCE = 10.0  # that its keeper may take beyond that


class Program:
    """One running program, and a keeper (``sims.runtimes.process_reaper``) that ends all of it when
    we are gone.

    ``environment`` are all its variables; None: those of this process. ``user`` is the
    operating-system user that it runs as (needs root); None: this process's. ``confined`` runs it
    in a PID namespace of its own where the system has them (``deploy.confined``). ``scratch``
    is a folder that is removed when it has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
        confined: bool = False,
        scratch: Path | None = None,
    ) -> None:
        self.log = log
        inside = in_namespace(command, user or "") if confined else None
        reaped = (
            keeping(command, scratch=scratch, grace=GRACE, user=user or "")
            if inside is None
            else keeping(inside, scratch=scratch, grace=GRACE)
        )
        with _private_log(log) as output:
            self.process = subprocess.Popen(
                reaped,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment() if environment is None else dict(environment),
                cwd=cwd,
                start_new_session=True,
                umask=0o077,
            )

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self.process.poll() is None

    def started(self) -> list[psutil.Process]:
        """The processes that the program has started and that still run."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if main := self._main():
                return descendants(main.pid)
        return []

    def kill(self) -> None:
        """SIGKILL to the program, as if it crashed; its keeper ends what it had started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            if main := self._main():
                main.kill()
        self.process.wait()

    def ask_to_end(self) -> None:
        """Tell it, and everything it started, to end; ``end`` waits for it."""
        if self.alive:
            self.process.terminate()

    def end(self) -> None:
        """End it and everything it started: asked first, killed a few seconds later."""
        self.ask_to_end()
        try:
            self.process.wait(GRACE + _PATIENCE)
        except subprocess.TimeoutExpired:  # its keeper was stopped, by the program perhaps
            for process in descendants(self.process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.kill()
            self.process.wait()

    def text(self) -> str:
        """The output so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _main(self) -> psutil.Process | None:
        """The program itself: the first that its keeper started. None if it has ended."""
        while self.alive:
            children = psutil.Process(self.process.pid).children()
            if children:
                return min(children, key=lambda child: child.create_time())
            time.sleep(0.02)
        return None


def _private_log(path: Path) -> BinaryIO:
    """Open a log to add to it, which nobody else may read: programs may quote what they read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)  # one that was there may be open to others
    return os.fdopen(descriptor, "ab")


def end_all(programs: Sequence[Program]) -> None:
    """End them side by side."""
    for program in programs:
        program.ask_to_end()
    for program in programs:
        program.end()


def new_secret(place: Path) -> None:
    """A fresh secret for a SuperNode and its executor, who live as long as it does."""
    (place / EXECUTOR_SECRET).unlink(missing_ok=True)
    write_new(place / EXECUTOR_SECRET, executor_secret())


def node_folder(handed_over: Mapping[str, bytes]) -> Path:
    """Make a new folder for a SuperNode, with what it needs of a client's files.

    New each time: as root nothing is written where the server's code was at home before, which
    could have left a link in its place.
    """
    work = Path(tempfile.mkdtemp(prefix="murmuration-node-"))
    for name in (KEY, AUTHORITY):
        write_new(work / name, handed_over[name])
    return work


def node_programs(
    place: Path, address: str, socket: Path, port: int, user: str | None
) -> dict[str, dict[str, Any]]:
    """A SuperNode (first) and its executor in the folder ``place``, as ``Program`` takes them.

    They share a fresh secret, which is written there.
    """
    new_secret(place)
    how = {"environment": node_environment(place), "cwd": place, "user": user}
    node = commands.supernode(place, address, str(socket), port)
    executor = commands.node_executor(place, port)  # whose children are the server's code
    return {
        "node": {"command": node, **how},
        "executor": {"command": executor, "confined": True, **how},
    }


def state_beside(folder: Path) -> Path:
    """The default folder for an owner's state: beside the folder that was handed over."""
    return folder.with_name(f"{folder.name}-state")


def own_folder(folder: Path) -> Path:
    """Make a folder for this account alone, or find it so.

    Raises:
        InputError: others may use it, or it is somebody else's.
    """
    with disk_errors_as(f"{folder} cannot be made"):
        make_folders(folder, 0o700)
    check_own(folder)
    return folder


def check_own(folder: Path) -> None:
    """Raise InputError unless a folder belongs to this account alone; a link that this account made
    is followed."""
    with disk_errors_as(f"{folder} cannot be used"):
        link, seen = folder.lstat(), folder.stat()
    mine = {link.st_uid, seen.st_uid} == {os.geteuid()}
    if not (mine and stat.S_ISDIR(seen.st_mode)) or seen.st_mode & 0o077:
        raise InputError(f"{folder} must be a folder of your own, for you alone: chmod 700 it")


def agent_program(policy: Path, data: Path, state: Path, socket: Path) -> dict[str, Any]:
    """An agent as ``Program`` takes it: in the owner's own folder, whatever it is handed."""
    options = {"--data": data, "--policy": policy, "--state": state, "--socket": socket}
    pairs = [part for name, path in options.items() for part in (name, str(path))]
    return {
        "command": python("-m", "murmuration.cli.main", "agent", *pairs),
        "environment": owners_environment(),
        "cwd": own_folder(state),
    }


def wait_for(
    condition: Callable[[], object], seconds: float, what: str, program: Program | None = None
) -> None:
    """Wait for a condition; InputError if it does not come, or the program ends before."""
    deadline = time.monotonic() + seconds
    while not condition():
        if program is not None and not program.alive:
            last = program.text().strip().splitlines()[-1:] or ["it said nothing"]
            raise InputError(f"{what} ended: {last[0]} (log: {program.log})")
        if time.monotonic() > deadline:
            raise InputError(f"{what}: not after {seconds:g} seconds")
        time.sleep(0.1)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end this process the way Ctrl-C does, so that ``with`` blocks end.

    What is ignored, as ``nohup`` has SIGHUP, stays so.
    """

    def stop(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    former = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def environment_of(server: Path) -> dict[str, str]:
    """The variables of a program on the server's side."""
    return _environment() | commands.server_environment(server)


def _environment() -> dict[str, str]:
    """This process's variables; programs find each other and our packages by them."""
    return os.environ | {
        "PATH": os.pathsep.join([str(commands.programs()), os.environ.get("PATH", "")]),
        "PYTHONUNBUFFERED": "1",
    }
