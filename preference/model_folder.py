"""Writing a model's folder: there whole or not at all, also when the power fails."""

import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from murmuration.preference.data.errors import InputError

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


@dataclass(frozen=True)
class SaveOptions:
    """Files written beside a model, and whether a former one is replaced.

    Attributes:
        card: becomes README.md.
        overwrite: whether a saved model that is there is replaced.
        beside: from the folder that is written to further files by name.
    """

    card: str = ""
    overwrite: bool = False
    beside: Callable[[Path], Mapping[str, bytes]] | None = None

    def write(self, folder: Path) -> None:
        """Write card and more files into a folder that has the model."""
        (folder / "README.md").write_text(self.card.rstrip("\n") + "\n", encoding="utf-8")
        for name, content in (self.beside(folder) if self.beside else {}).items():
            (folder / name).write_bytes(content)


#: An empty card, and nothing else.
DEFAULT = SaveOptions()


def replace_folder(
    folder: str | os.PathLike,
    write: Callable[[Path], None],
    check_former: Callable[[Path], object],
    overwrite: bool,
) -> None:
    """Let ``write`` fill a new folder, and put it in the place of ``folder``.

    ``check_former`` raises InputError if the existing folder is not a model: nothing else is ever
    removed. The former model is removed when the new one is in its place, on disk, and not before.

    Raises:
        InputError: something is there already, and ``overwrite`` is false or it is not a model.
        OSError: it cannot be written. The former folder is unchanged.
    """
    place = Path(folder).absolute()
    if place.exists() or place.is_symlink():
        if not overwrite:
            raise InputError(f"{folder}: already exists; choose another place for the model")
        check_former(place)
    new = place.with_name(f".{place.name}.{secrets.token_hex(4)}.new")
    new.mkdir(parents=True)
    try:
        write(new)
        for path in [*new.rglob("*"), new]:
            _sync(path)
        former = _put(new, place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    _sync(place.parent)
    if former is not None:
        shutil.rmtree(former, ignore_errors=True)


def _put(new: Path, place: Path) -> Path | None:
    """Move a folder to its place; returns the new path of the former one, or None if there was
    none.

    Linux exchanges the two in one step. Elsewhere, and on file systems that cannot, the former
    folder is left beside its place, as ``.NAME.….old``, if the process ends between two steps.
    """
    if not place.exists():
        new.rename(place)
        return None
    if _exchange(new, place):
        return new
    old = new.with_suffix(".old")
    place.rename(old)
    try:
        new.rename(place)
    except BaseException:
        old.rename(place)
        raise
    return old


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; False where the system has none for it."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
