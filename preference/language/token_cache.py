"""Tokens that were made before, from a folder that the environment names.

Tokenizing a million texts takes minutes and gives the same tokens every time. Where the variable
``MURMURATION_CACHE`` names a folder, tokens lie there in files named by a hash of everything that
they depend on: the tokenizer, what is written around texts, and the texts. They tell of private
judgements like the texts themselves, so nothing is kept unless that folder is named, nobody but its
owner may open it, and whoever deletes the texts deletes it too.

A file that is damaged, or does not say what its name says, is made anew. Files are written in
hidden folders of their own; what was being written when a process was killed a later run deletes.
Whoever writes holds a lock there, which ends with the process: so nothing is deleted that somebody
is still writing.
"""

import fcntl
import hashlib
import os
import re
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from murmuration.preference.escaping import get_logger
from murmuration.privacy.disclosure import OperatorOnly

FOLDER = "MURMURATION_CACHE"
_LOCK = "lock"
#: Names of folders of files that are being written: tokens and what is kept beside them.
_KINDS = r"\.safetensors|\.[0-9a-f]{16}\.(references|embeddings)"
_UNFINISHED = re.compile(rf"\.[0-9a-f]{{64}}({_KINDS})\.[0-9a-f]{{8}}")
_FORMAT = "murmuration tokens 1"
_log = get_logger("murmuration")

#: ids, offsets of texts, where their second parts begin, how many prompts were cut.
Arrays = tuple[torch.Tensor, np.ndarray, np.ndarray, int]


def kept(
    terms: Iterable[str], texts: int, limit: int, words: int, make: Callable[[], Arrays]
) -> Arrays:
    """Return what ``make`` gives, or gave when it was asked for on the same ``terms``.

    They are so many ``texts`` of at most ``limit`` of ``words`` different tokens. Where nothing can
    be read or written, it is made, and the log told.
    """
    named = os.environ.get(FOLDER)
    if not named:
        return make()
    key = key_of(_FORMAT, terms)
    path = Path(named) / f"{key}.safetensors"
    delete_unfinished(path.parent)
    if path.exists():
        try:
            return _read(path, key, texts, limit, words)
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            why = f"{path} cannot be used ({error}): texts are tokenized again"
            _log.warning("%s", OperatorOnly(why))
    result = make()
    try:
        _write(path, key, result)
    except (OSError, SafetensorError) as error:
        _log.warning("%s=%s: tokens cannot be kept there (%s)", FOLDER, named, error)
    return result


def user_folder() -> Path | None:
    """The named folder, or else the user's own for what can be computed again; None: nothing is to
    be kept, as the variable is empty, or the user has no such folder."""
    if (named := os.environ.get(FOLDER)) is not None:
        return Path(named) if named else None
    own = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        folder = Path(own).expanduser()
    except RuntimeError:
        return None
    return folder / "murmuration" if folder.is_absolute() else None


def key_of(form: str, terms: Iterable[str]) -> str:
    """SHA-256 in hex of what a file depends on, and of its format."""
    digest = hashlib.sha256(form.encode())
    for term in terms:
        written = term.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<Q", len(written)))
        digest.update(written)
    return digest.hexdigest()


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write to, which only its owner may open and which is ``path`` afterwards: whole or
    not at all, whoever else writes there."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder, lock = _begun(path)
    try:
        temporary = folder / path.name
        yield temporary
        temporary.chmod(0o600)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            _delete(folder)
        os.close(lock)


def _begun(path: Path) -> tuple[Path, int]:
    """A new folder beside ``path``, and the descriptor of its lock, which is held."""
    while True:
        folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        folder.mkdir(mode=0o700)
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:
            continue  # taken for one that was left
        with suppress(OSError):  # where files cannot be locked nothing is deleted either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def delete_unfinished(folder: Path) -> None:
    """Delete what processes that are no more left half written in the folder of kept files."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if _UNFINISHED.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _delete_unlocked(folder / entry.name)


def _delete_unlocked(folder: Path) -> None:
    """OSError where another process writes there, or it is gone."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        folder.rmdir()  # or is not empty, and no writer's
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _delete(folder)
    finally:
        os.close(lock)


def _delete(folder: Path) -> None:
    """The lock last, without which nobody would look into the folder again."""
    for file in folder.iterdir():
        if file.name != _LOCK:
            file.unlink()
    (folder / _LOCK).unlink()
    folder.rmdir()


def _read(path: Path, key: str, texts: int, limit: int, words: int) -> Arrays:
    """The file's arrays; its tokens stay in the file until they are looked at."""
    with safe_open(path, "pt") as file:
        said = file.metadata() or {}
        if said.get("key") != key:
            raise ValueError("it is another's")
        ids, start, second = (file.get_tensor(name) for name in ("ids", "start", "second"))
        cut = int(said["cut"])
    start_T, second_T = start.numpy(), second.numpy()
    whole = (ids.dtype, start.dtype, second.dtype) == (torch.int32, torch.int64, torch.int64)
    whole = whole and ids.ndim == 1 and start_T.shape == (texts + 1,)
    whole = whole and second_T.shape == (texts,) and 0 <= cut <= texts
    if not whole or start_T[0] != 0 or start_T[-1] != len(ids):
        raise ValueError("it is damaged")
    length_T = np.diff(start_T)
    whole = ((length_T > 0) & (length_T <= limit)).all()
    whole = whole and ((second_T >= 0) & (second_T <= length_T)).all()
    if not whole or (texts and not 0 <= int(ids.min()) <= int(ids.max()) < words):
        raise ValueError("it is damaged")
    return ids, start_T, second_T, cut


def _write(path: Path, key: str, found: Arrays) -> None:
    ids, start_T, second_T, cut = found
    arrays = {"start": torch.from_numpy(start_T), "second": torch.from_numpy(second_T)}
    with written_whole(path) as file:
        save_file({"ids": ids, **arrays}, file, {"key": key, "cut": str(cut)})
