"""Public lists of names: of items, of categories, of topics.

A list is fixed before any data are seen. Two names that differ in case alone, in characters that
look the same or in some that cannot be seen are refused: what was meant as one would be taken for
the other. So are characters that end or turn round what stands beside them.
"""

import hashlib
import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.privacy.regular_files import read_regular

#: Of Unicode, those that turn the direction of what follows.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e")
#: Of ``--start``, the one that needs no model: the longer response is preferred.
LENGTH = "length"
#: Before the digest of a file, behind its path.
_DIGEST = "#sha256="


def clean_name(written: str) -> str:
    """The name without blanks around it, in composed form (NFC)."""
    return unicodedata.normalize("NFC", written.strip())


def looks_like(name: str) -> str:
    """A key that is equal for names that look alike: case and width of letters, runs of blanks, and
    invisible characters do not count.
    """
    seen = "".join(each for each in name if unicodedata.category(each) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).casefold().split())


def checked_names(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names, cleaned.

    Raises:
        InputError: one is empty or no text, has characters that are no part of a name, or two look
            alike.
    """
    result: dict[str, str] = {}
    for written in names:
        if not isinstance(written, str) or not looks_like(name := clean_name(written)):
            raise InputError(f"{written!r} is no name: each {what} needs one")
        if not _TURNING.isdisjoint(name) or any(map(_controls, name)):
            raise InputError(f"the {what} {name!a} has a control character: leave it out")
        if other := result.get(looks_like(name)):
            differ = "stands there twice" if other == name else f"looks like {other!r}"
            raise InputError(f"the {what} {name!r} {differ}: give each a name of its own, once")
        result[looks_like(name)] = name
    return tuple(result.values())


def _controls(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and not character.isspace()


def read_names(option: str, what: str, source: str) -> tuple[str, ...]:
    """The names in a public list.

    Args:
        option: that names it, for messages.
        what: is named, for messages: an item, a category.
        source: a file with one a line, a `.json` file with an array, or an array as JSON has it;
            a file perhaps with its digest, as of `whole_path`.

    Raises:
        InputError: it cannot be read, or is not what it was.
    """
    listed = _is_listed(source)
    shown, _, digest = ("[…]", "", "") if listed else source.partition(_DIGEST)
    try:
        content = source.encode() if listed else read_regular(Path(shown).expanduser())
        if digest and hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("it is not what the run was begun with; bring it back, or begin anew")
        text = content.decode("utf-8-sig")
        as_json = listed or shown.endswith(".json")
        names = json.loads(text) if as_json else text.splitlines()
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{option} {shown} cannot be used: {error}") from None
    if not isinstance(names, list):
        raise InputError(f"{option} {shown}: a .json file of names holds an array of them")
    try:
        return checked_names(
            what, [name for name in names if not isinstance(name, str) or name.strip()]
        )
    except InputError as error:
        raise InputError(f"{option} {shown}: {error}") from None


def as_source(names: str | os.PathLike[str] | Sequence[str]) -> str:
    """A source for `read_names`, from a path or from the names themselves."""
    if isinstance(names, str | os.PathLike):
        return os.fspath(names)
    return json.dumps([*names], ensure_ascii=False)


def whole_path(option: str, what: str, source: str) -> str:
    """A source for `read_names` with an absolute path and the digest of what is there.

    Raises:
        InputError: it cannot be read.
    """
    read_names(option, what, source)
    if _is_listed(source):
        return source
    path = Path(source.partition(_DIGEST)[0]).expanduser().absolute()
    return f"{path}{_DIGEST}{hashlib.sha256(read_regular(path)).hexdigest()}"


def whole_start(start: str) -> str:
    """A start with the absolute path of its folder.

    Raises:
        InputError: it is neither ``length`` nor a folder.
    """
    if start == LENGTH:
        return start
    folder = Path(start).expanduser()
    if not folder.is_dir():
        raise InputError(f"--start {start}: there is no such folder; or --start {LENGTH}")
    return str(folder.absolute())


def _is_listed(source: str) -> bool:
    return source.lstrip().startswith("[")
