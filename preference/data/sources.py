"""Sources by name: files of known kinds, a function, a data set on a hub, a split of these.

An existing path always wins. A name that does not exist here and looks like a path is a missing
file, not something to ask a hub for: a mistyped path never leaves the machine.

Data sets are read as the `datasets` library keeps them: on disk, as shards in folders, on its hub.
What it saved is read without it (`save_to_disk` writes Arrow files beside a `state.json`), and only
the hub needs it. A source may name its split, and before that its configuration, behind a `#`:
`FOLDER#test`, `owner/name#train_prefs`, `owner/name#default/train_prefs`. What exists as a path
with all of that is a path.

Another package brings a kind of file by an entry point ``murmuration.readers``, which is named as
the files end, without the dot, and leads to a ``Reader``. Such files are not read as `.gz`. An
entry point of the same group may lead to a ``Format`` instead, and is then what `--format` names.
"""

import importlib
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from murmuration.preference.choices import FORMAT_NAMES
from murmuration.preference.data.cells import shortened
from murmuration.preference.data.errors import (
    BadRow,
    InputError,
    disk_errors_as,
    first_line,
    with_extra,
)
from murmuration.preference.data.formats.format import Format
from murmuration.privacy.extensions import Group
from murmuration.privacy.regular_files import read_regular

RawRow = Mapping[str, object] | BadRow
Placed = tuple[str, int, RawRow]  # with the file and line that it stands in

#: Kinds of files that are tables: with a head, or a schema, of columns.
TABLE_KINDS = (".csv", ".parquet", ".arrow")
FILE_KINDS = (".jsonl", *TABLE_KINDS, ".json")  # each also with .gz
#: What `datasets` writes beside the rows of a data set.
_ABOUT_ROWS = (
    "state.json",
    "dataset_dict.json",
    "dataset_info.json",
    "dataset_infos.json",
    "truth.json",  # of our own population
)
_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")

_FILE_ENDINGS = (
    ".jsonl",
    ".json",
    ".ndjson",
    ".csv",
    ".tsv",
    ".txt",
    ".parquet",
    ".arrow",
    ".gz",
    ".zip",
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SPLIT = "train"  # on the hub, where none is named
_CACHE = re.compile(r"cache-[0-9a-f]+.*\.arrow")  # that `datasets` keeps beside what it saved
_SHARD = re.compile(r"(?P<split>\w[\w.]*?)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?\.\w+(?:\.gz)?")


def looks_like_path(source: str) -> bool:
    """True if this can only be a path: `./x`, `~/x`, `/x`, `x/`, `a/b/c`, `x.csv`, and `a/b` if
    there is a folder `a`.
    """
    return (
        source.startswith((".", "~"))
        or Path(source).is_absolute()
        or source.endswith(("/", os.sep))
        or source.count("/") > 1
        or ("/" in source and Path(source).parent.is_dir())
        or "\\" in source
        or source.lower().endswith(_FILE_ENDINGS)
    )


def is_hub_name(source: str) -> bool:
    """True if this has the form `name` or `owner/name`."""
    return _HUB_NAME.fullmatch(source) is not None


def hub_is_reachable() -> bool:
    """True if the hub's name can be looked up; behind a proxy it is assumed to be reachable.

    Without a network the hub's clients retry for half a minute before they use their own caches; a
    caller who checks here first can send them there at once.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if getproxies().keys() - {"no"}:  # which tells what no proxy is asked for
        return True
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Named:
    """A source in its parts; empty where it does not name one."""

    name: str
    split: str = ""
    config: str = ""

    @property
    def text(self) -> str:
        """The name as it is written."""
        inner = f"{self.config}/{self.split}" if self.config else self.split
        return f"{self.name}#{inner}" if inner else self.name


def parse_source(source: str) -> Named:
    """The parts of a source; InputError for a `#` with nothing behind it."""
    name, mark, inner = source.rpartition("#")
    if not mark or os.path.lexists(os.path.expanduser(source)):  # noqa: PTH111
        return Named(source)
    config, _, split = inner.rpartition("/")
    if not name or not inner.strip("/"):
        raise InputError(f"{source}: write NAME#SPLIT or NAME#CONFIG/SPLIT")
    return Named(name, split, config)


def absolute(source: str) -> str:
    """The source with an absolute path, if it is a path that exists here."""
    named = parse_source(source)
    path = Path(os.path.expanduser(named.name))  # noqa: PTH111 (a ~ of nobody stays what it is)
    return Named(str(path.absolute()), named.split, named.config).text if path.exists() else source


@dataclass(frozen=True)
class Reader:
    """Declare how a kind of file is read.

    Attributes:
        name: how such files' names end, in small letters, without the dot.
        rows: yields the rows of an open file, each a mapping from columns to cells, or a `BadRow`
            that says what is wrong with one, and each with the line, or the number, of it.
        isolates: whether no bytes of a row can reach another's, however broken they are; nodes,
            whose files can be several people's, read no others.
    """

    name: str
    rows: Callable[[IO[bytes]], Iterable[tuple[int, Mapping[str, object] | BadRow]]]
    isolates: bool = False


def _check_reader(name: str, loaded: object) -> str:
    if not isinstance(loaded, Reader | Format):
        return "it is no Reader, and no Format"
    return "" if loaded.name == name else f"it is called {loaded.name!r}"


#: The kinds of files, and the formats, that other packages bring.
READERS = Group(
    "murmuration.readers", _check_reader, [*(kind[1:] for kind in FILE_KINDS), "gz", *FORMAT_NAMES]
)


def kind_of(name: str) -> str | None:
    """The kind of a file, by the end of its name; None if it is of no known kind."""
    unpacked = name.lower().removesuffix(".gz")
    if known := next((kind for kind in FILE_KINDS if unpacked.endswith(kind)), None):
        return known
    others = (f".{reader}" for reader in READERS.names())
    return next((kind for kind in others if name.lower().endswith(kind)), None)


def known_kinds() -> str:
    """The endings of files that can be read, for messages."""
    others = "".join(f", .{name}" for name in READERS.names())
    return ", ".join(FILE_KINDS) + " (each also .gz)" + others


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, its kind (None if of none that is known), and whether others are beside
    it in a folder that was named."""

    path: Path
    kind: str | None
    of_folder: bool


def files_named(source: str, isolate: bool) -> list[SourceFile] | None:
    """The files of a source, in order; None if no such path exists.

    At a node (``isolate``) a folder may be empty, and no split is inferred from its files.

    Raises:
        InputError: it names nothing, or a split that is not there.
    """
    if not source.strip():
        raise InputError("no source of judgements is named")
    named = parse_source(source)
    path = Path(os.path.expanduser(named.name))  # noqa: PTH111 (a ~ of nobody stays what it is)
    if os.path.isdir(path):  # noqa: PTH112 (says no where it cannot look, whatever the reason)
        files = _files(path)
        if not isolate or named.split or named.config:
            files = _files_meant(path, named, files)
        if not (files or isolate):
            raise InputError(f"{path}: the folder holds no {known_kinds()} file")
        return [SourceFile(file, kind_of(file.name), True) for file in files]
    if not os.path.lexists(path):
        return None
    if named != Named(named.name):
        raise InputError(f"{source}: a single file has no splits: name it without the #")
    return [SourceFile(path, kind_of(path.name), False)]


def other_rows(source: str, isolate: bool) -> Iterator[Placed]:
    """Yield the rows of a source that is not a path but a function or a data set on the hub.

    Raises:
        InputError: it is none of these, or fails; or a node (``isolate``) would have to ask the
            hub.
    """
    if _FUNCTION.fullmatch(source):
        return _function_rows(source)
    named = parse_source(source)
    if looks_like_path(named.name) or not is_hub_name(named.name):
        raise InputError(f"{source}: no such file or folder")
    if isolate:
        raise InputError(f"{source}: no such file or folder, and a node asks no hub for its data")
    return _hub_rows(named)


def _files(folder: Path) -> list[Path]:
    """The files of known kinds in a folder, in order, including those that cannot be read: reading
    them reports why.

    A file's name hides no other file. Files that libraries write about rows are left out.
    """
    with disk_errors_as(f"{folder}: cannot be read"):
        named = [file for file in folder.iterdir() if kind_of(file.name)]
    return sorted(
        file
        for file in named
        if not file.name.startswith(".") and file.name not in _ABOUT_ROWS and _is_file(file)
    )


def _is_file(path: Path) -> bool:
    """True if this is a file, or a broken link: reading it then reports what is missing."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _files_meant(folder: Path, named: Named, files: list[Path]) -> list[Path]:
    """The files of a folder that are read: all, or those of the data set that it is.

    Raises:
        InputError: a split is to be named, or there is no such one; or the folder is a data set,
            and other files lie beside it.
    """
    meant = _files_of_data_set(folder, named, files)
    if meant is None:
        return files
    others = [file.name for file in files if file not in meant and not _CACHE.fullmatch(file.name)]
    if others and not (named.split or named.config):
        raise InputError(
            f"{folder}: it is a data set of {len(meant)} files, by its state.json or by the names "
            f"of shards, and {shortened(', '.join(others), 100)} lie beside them: take them out, "
            "or name what is meant, as in NAME#SPLIT"
        )
    return meant


def _files_of_data_set(folder: Path, named: Named, files: list[Path]) -> list[Path] | None:
    """The files of a data set, in order; None if the folder is not a data set.

    That is a folder as of `save_to_disk`, of one split or of several, or one with shards
    `SPLIT-00000-of-00001.parquet` among its ``files``, or in its folder `data` or that of the
    configuration.

    Raises:
        InputError: there are several splits and none is named, or no such one.
    """
    if named.config and (folder / named.config).is_dir():
        return _of_split(folder / named.config, named)
    if (folder / "dataset_dict.json").is_file():
        splits = _read_json(folder / "dataset_dict.json").get("splits")
        names = [str(split) for split in splits] if isinstance(splits, list) else []
        return _saved(folder / _one(folder, names, named.split), "")
    if (folder / "state.json").is_file():
        return _saved(folder, named.split)
    if not files and (folder / "data").is_dir():
        return _of_split(folder / "data", named)
    if named.split or any(_SHARD.fullmatch(file.name) for file in files):
        return _of_split(folder, named)
    return None


def _of_split(folder: Path, named: Named) -> list[Path]:
    """The shards of a split, or of the only one."""
    shards: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        if result := _SHARD.fullmatch(file.name):
            shards.setdefault(result["split"], []).append(file)
    return shards[_one(folder, list(shards), named.split)]


def _one(folder: Path, splits: list[str], named: str) -> str:
    if named in splits or (not named and len(splits) == 1):
        return named or splits[0]
    there = ", ".join(splits) or "none"
    if named:
        raise InputError(f"{folder}: no split {named!r}; there are: {there}")
    raise InputError(f"{folder}: which split? there are: {there}; name one, as in NAME#SPLIT")


def _saved(folder: Path, split: str) -> list[Path]:
    """The Arrow files of a saved data set."""
    state = _read_json(folder / "state.json")
    if split and state.get("_split") not in (None, split):
        raise InputError(f"{folder}: holds the split {state['_split']!r}, not {split!r}")
    listed = state.get("_data_files")
    names = [entry.get("filename") for entry in listed] if isinstance(listed, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{folder}/state.json: names no files; save the data set again")
    return [folder / Path(str(name)).name for name in names]


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        result = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {first_line(error)}") from error
    if not isinstance(result, Mapping):
        raise InputError(f"{path}: not what save_to_disk writes")
    return result


def _hub_rows(named: Named) -> Iterator[tuple[str, int, Mapping[str, object]]]:
    """Rows of a data set on the hub, with their places.

    Raises:
        InputError: it is not given: unknown, not reachable, or without this split.
    """
    needs = "no such file or folder, and reading it from the dataset hub needs datasets"
    with with_extra("hub", f"{named.name}: {needs}"):
        import datasets
        from datasets import config
    split = named.split or _SPLIT
    offline = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = offline or not hub_is_reachable()
    try:
        more: dict[str, Any] = {"name": named.config} if named.config else {}
        rows = datasets.load_dataset(named.name, split=split, **more)
    except Exception as error:  # the hub client's errors have many unrelated types
        raise InputError(
            f"{named.name}: no such file or folder here, and the dataset hub does not give its "
            f"split {split!r} (unknown name or split, as in NAME#SPLIT, or no network): "
            f"{first_line(error)}"
        ) from error
    finally:
        config.HF_HUB_OFFLINE = offline
    for number, row in enumerate(rows, start=1):
        yield named.name, number, dict(row)


def function_named(source: str) -> Callable[..., Any]:
    """The function that ``package.module:function`` names, of a module in the current folder too;
    InputError where there is none."""
    named = _FUNCTION.fullmatch(source)
    if named is None:
        raise InputError(f"{source}: not of the form package.module:function")
    module_name, function_name = named.groups()
    # a console script does not look in the current folder by itself
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except ImportError as error:
        raise InputError(f"{source}: cannot be imported: {first_line(error)}") from error
    except AttributeError as error:
        raise InputError(f"{source}: {module_name} has no {function_name!r}") from error
    if not callable(function):
        raise InputError(f"{source}: not a function but a {type(function).__name__}")
    return function


def _function_rows(source: str) -> Iterator[Placed]:
    function = function_named(source)
    try:
        rows = function()
        if not isinstance(rows, Iterable) or isinstance(rows, (str, Mapping)):
            raise TypeError(f"expected an iterable of rows, found {type(rows).__name__}")
        for number, row in enumerate(rows, start=1):
            yield source, number, row
    except Exception as error:
        raise InputError(
            f"{source}: failed: {type(error).__name__}: {first_line(error)}"
        ) from error
