"""Writing a model's folder: there whole or not at all, also when the power fails."""

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from murmuration.preference.data.judgements import InputError


def replace_folder(
    folder: str | os.PathLike,
    write: Callable[[Path], None],
    check_former: Callable[[Path], object],
    overwrite: bool,
) -> None:
    """Let ``write`` fill a new folder, and put it in the place of ``folder``.

    ``check_former`` raises InputError if what is there is not a model: never removes anything else.

    Raises:
        InputError: something is there already, and ``overwrite`` is false or it is not a model.
    """
    place = Path(folder).absolute()
    if place.exists() or place.is_symlink():
        if not overwrite:
            raise InputError(f"{folder}: already exists; choose another place for the model")
        check_former(place)
    token = secrets.token_hex(4)
    new, old = (place.with_name(f".{place.name}.{token}.{kind}") for kind in ("new", "old"))
    new.mkdir(parents=True)
    try:
        write(new)
        for path in [*new.rglob("*"), new]:
            _sync(path)
        if place.exists():
            place.rename(old)
        new.rename(place)
        _sync(place.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
