"""The folder of any run, of training or of alignment: whose it is, and what lies where.

    config.json     what was asked for; there is a run in a folder once this is
    metrics.jsonl   a line for each round or evaluation
    model/          the result
    result.json     the figures, once it has ended
    report.html, plots/
    private/lock    one process at a time has a folder: nothing is written or removed without it

Every file is replaced whole or appended a line at a time, so a crash leaves nothing half-written.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from murmuration.preference.data.errors import InputError
from murmuration.privacy.disclosure import Disclosure, disclosed
from murmuration.privacy.durable_files import replace_file
from murmuration.server.record.result import FILE, Result
from murmuration.server.record.run_lock import RunInUse, RunLock

PATIENCE = 5.0  # seconds for the process that a resumed run replaces to end

#: What stands in private/ before the run's settings.
_FIRST = ("seed.json", "keys.json", "lock", "data.jsonl", "test.jsonl")


def check_free(path: Path) -> None:
    """Raise InputError if a folder cannot be that of a new run; change nothing."""
    if (path / "config.json").exists():
        raise InputError(
            f"--out {path} holds a run already; continue it with --resume, or choose another folder"
        )
    if _occupied(path):
        raise InputError(f"--out {path} is not empty; choose another folder")


def _occupied(folder: Path) -> bool:
    """True if the folder holds more than a run leaves that is killed in its first step."""
    private = folder / "private"

    def ours(path: Path) -> bool:
        mine = path.parent == private and path.name.strip(".").startswith(_FIRST)
        return mine or path == private or path.name.startswith(".config.json.")

    result = folder.rglob("*") if folder.is_dir() else [folder]
    return folder.exists() and not all(ours(path) for path in result)


def check_place(path: Path, resume: bool, check_same: Callable[[Path], None]) -> None:
    """Raise InputError unless a folder is free, or has the run to resume; changes nothing."""
    settings = path / "config.json"
    if not resume:
        check_free(path)
    elif settings.exists():
        check_same(settings)
    else:
        raise InputError(f"--resume: there is no run in {path}")


class RunFolder:
    """An open folder of a run, whose lock is held until ``close``.

    Args:
        out: the folder; it is made if it is not there.
        resume: whether a run that is there is continued.
        check_same: raises InputError where the run that is there is another; called with its
            ``config.json``, before the folder is locked and again after.

    Raises:
        InputError: the folder holds another run, is in use or cannot be used, or there is nothing
            to resume.
    """

    def __init__(
        self, out: str | os.PathLike[str], *, resume: bool, check_same: Callable[[Path], None]
    ) -> None:
        # Where links lead, so that nothing is moved or removed but the folder itself.
        self.path = Path(os.path.realpath(Path(out).expanduser()))
        self.private = self.path / "private"
        try:
            check_place(self.path, resume, check_same)  # before the lock, which makes the folder
            self._lock = RunLock(self.path, patience=PATIENCE if resume else 0.0)
        except RunInUse as error:
            raise InputError(str(error)) from error
        except OSError as error:
            raise self._unusable(error) from None
        with self._closed_on_error():
            check_place(self.path, resume, check_same)
            self.is_new = not (self.path / "config.json").exists()
            self.private.chmod(0o700)
            (self.path / "aborted.json").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self._lock.close()

    def write_json(self, name: str, values: Disclosure) -> None:
        """Replace a JSON file that is for everybody."""
        self._write(self.path / name, disclosed(values))

    def write_result(self, result: Result) -> None:
        """Write the result: the run has ended."""
        self.write_json(FILE, Disclosure.read(result.to_json()))

    def write_private(self, name: str, data: Mapping[str, Any]) -> None:
        """Replace a JSON file that is not for release."""
        self._write(self.private / name, data)

    def _write(self, path: Path, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        replace_file(path, text.encode())

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self._unusable(error) from None
            raise

    def _unusable(self, error: OSError) -> InputError:
        return InputError(f"--out {self.path} cannot be used: {error.strerror}")
