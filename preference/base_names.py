"""Names of bases: the one given with `--base`, and the one in a saved model, by which its base is
found again.

A model's folder is passed on, so it must not reveal this machine's paths. A base from a hub goes by
its name there. One in a folder goes by the way from the model to it, or, where that way leads
through the top of the file system, by its last name alone (`./base`). Both look like paths, so that
they cannot be mistaken for a hub's. Its digest stands beside the name: another model under the same
name is refused.

A hub's name in a file was chosen by the file's author: the hub is not asked for it
(`preference.online`), and only this machine's copy is used.

A base given when the model is loaded (`--base`) is used. Otherwise the base is looked for, in this
order, in the folders that `MURMURATION_BASES` names, where the name leads from the model, where the
run that the model lies in says, and where the name leads from the working directory. Absolute
paths, which other programs write down, are taken as they are.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.sources import is_hub_name, looks_like_path
from murmuration.preference.gguf import SMOLLM2, converted, is_gguf, is_packaged
from murmuration.preference.online import hub_name, is_of_hub, snapshot
from murmuration.privacy.regular_files import read_regular

#: Folders with bases, separated as in PATH, or the bases themselves.
ENVIRONMENT = "MURMURATION_BASES"
_PATH = re.compile(r"(?<![\w:/.])~?/(?:[^\s/:,;()'\"]+/)+([^\s/:,;()'\"]+)")
_TOP = 2  # parts of /home or /tmp: a way through there tells of this machine


def resolve_base(path: str) -> str:
    """An existing folder's absolute path, or a hub name unchanged.

    ``smollm2`` and GGUF files are converted into a folder of the cache first, if they were not yet.

    Raises:
        InputError: there is no such folder, or a GGUF file cannot be converted.
    """
    folder = Path(path).expanduser()
    if is_gguf(path) and not folder.is_dir():
        return str(converted(path))
    if folder.is_dir():
        return str(folder.absolute())
    if not path.strip() or looks_like_path(path) or folder.exists() or not is_hub_name(path):
        raise InputError(f"--base: no such folder: {path!r}")
    return path


def name_for(path: str, folder: Path) -> str:
    """The name by which a model saved in ``folder`` refers to its base at ``path``; hubs' names
    stay.
    """
    if (public := _public_name(path)) or not Path(path).is_absolute():
        return public or path
    base, here = os.path.realpath(path), os.path.realpath(folder)
    if len(Path(os.path.commonpath([base, here])).parts) <= _TOP:
        return last_name(path)
    way = os.path.relpath(base, here)
    return way if way.startswith("..") else f"./{way}"


def last_name(path: str) -> str:
    """A folder as its last name, such as `./base`; names of hubs and packaged models stay."""
    local = Path(path).is_absolute() or path.startswith((".", "~"))
    return _public_name(path) or (f"./{Path(path).name}" if local else path)


def _public_name(path: str) -> str:
    return hub_name(Path(path)) or (SMOLLM2 if is_packaged(Path(path)) else "")


def name_of(value: object) -> str:
    """A setting as text; of a path on this machine only its last part."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    pieces = [
        piece.rstrip("/").rsplit("/", 1)[-1]
        if piece.startswith(("/", "~/", "./", "../"))
        else piece
        for piece in text.split(",")
    ]
    return ",".join(pieces)


def without_folders(text: str) -> str:
    """A sentence, with absolute paths in it by their last name."""
    return _PATH.sub(r"\1", text)


def place_of(name: str, folder: Path, *, given: str = "", digest: str = "") -> str:
    """Find the base that a model in ``folder`` names: its absolute path, or ``given`` if that is a
    name on a hub.

    Args:
        name: of the base.
        folder: of the model.
        given: the base to use instead, a folder or a hub's name; empty: none is given.
        digest: SHA-256 of the base, for the message; empty: not known.

    Raises:
        InputError: it is in none of the places where it is looked for.
    """
    if given:
        return resolve_base(given)
    if name == SMOLLM2:
        return str(converted(name))
    if is_of_hub(name):
        return str(snapshot(name, folder))
    if not name.startswith(("./", "../")):
        return name
    for place in _places(name, folder):
        if place.is_dir():
            return os.path.realpath(place)
    known = f" (SHA-256 {digest[:16]}…)" if digest else ""
    raise InputError(
        f"{folder}: made on the base {Path(name).name!r}{known}, and no such folder is here: give "
        f"it with --base, or set {ENVIRONMENT} to the folder that holds it"
    )


def _places(name: str, folder: Path) -> Iterator[Path]:
    last = Path(name).name
    for root in filter(None, os.environ.get(ENVIRONMENT, "").split(os.pathsep)):
        known = Path(root).expanduser()
        yield known / last
        if known.name == last:
            yield known
    yield folder.resolve() / name
    if (recorded := _recorded(folder)) is not None:
        yield recorded
    yield Path(name)


def _recorded(folder: Path) -> Path | None:
    """The path of the base that a run recorded beside its model."""
    try:
        result = json.loads(read_regular(folder.resolve().parent / "base.json"))["path"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(result) if isinstance(result, str) and Path(result).is_absolute() else None
