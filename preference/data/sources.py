"""What a source names: a path, a data set on a hub, a split of either.

An existing path always wins. A name that does not exist here and looks like a path is a missing
file, not something to ask a hub for: a mistyped path never leaves the machine.

Data sets are read as the `datasets` library keeps them: on disk, as shards in folders, on its hub.
What it saved is read without it (`save_to_disk` writes Arrow files beside a `state.json`), and only
the hub needs it. A source may name its split, and before that its configuration, behind a `#`:
`FOLDER#test`, `owner/name#train_prefs`, `owner/name#default/train_prefs`. What exists as a path
with all of that is a path.
"""

import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.errors import first_line as first_line

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
_SHARD = re.compile(r"(?P<split>\w[\w.]*?)-\d{5}-of-\d{5}(?:-[0-9a-f]+)?\.\w+(?:\.gz)?")


def looks_like_path(source: str) -> bool:
    """Return whether this can only be meant as a path: `./x`, `~/x`, `/x`, `x/`, `a/b/c`,
    `x.csv`."""
    return (
        source.startswith((".", "~"))
        or Path(source).is_absolute()
        or source.endswith(("/", os.sep))
        or source.count("/") > 1
        or "\\" in source
        or source.lower().endswith(_FILE_ENDINGS)
    )


def is_hub_name(source: str) -> bool:
    """Return whether this is formed like `name` or `owner/name`."""
    return _HUB_NAME.fullmatch(source) is not None


def hub_is_reachable() -> bool:
    """Return whether the hub's name can be looked up; behind a proxy it is taken to be reachable.

    Without a network the hub's clients try again for half a minute before they look into their own
    caches; who asks here first can send them there at once.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if getproxies():
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
        """As it is written."""
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


def with_parts(source: str, split: str, config: str) -> str:
    """A source with what `--split` and `--data-config` say; InputError if it says so itself."""
    named = parse_source(source)
    for option, given, there in (
        ("--split", split, named.split),
        ("--data-config", config, named.config),
    ):
        if given and there and given != there:
            raise InputError(f"{option} {given}: {source} names {there!r} already")
    return Named(named.name, split or named.split, config or named.config).text


def absolute(source: str) -> str:
    """The same source from any folder, if it is a path that exists here."""
    named = parse_source(source)
    path = Path(os.path.expanduser(named.name))  # noqa: PTH111 (a ~ of nobody stays what it is)
    return Named(str(path.absolute()), named.split, named.config).text if path.exists() else source


def files_of(folder: Path, named: Named, files: list[Path]) -> list[Path] | None:
    """Return which files of a folder are meant, in their order; None if it is none of a data set.

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
    raise InputError(f"{folder}: which split? there are: {there}; name one with --split")


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
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {first_line(error)}") from error
    if not isinstance(result, Mapping):
        raise InputError(f"{path}: not what save_to_disk writes")
    return result


def hub_rows(named: Named) -> Iterator[tuple[str, int, Mapping[str, object]]]:
    """Rows of a data set on the hub, with their places.

    Raises:
        InputError: it is not given: unknown, not reachable, or without this split.
    """
    try:
        import datasets
        from datasets import config
    except ImportError:
        raise InputError(
            f"{named.name}: no such file or folder, and reading it from the dataset hub needs "
            "datasets: pip install 'murmuration-rlhf[hub]'"
        ) from None
    split = named.split or _SPLIT
    offline = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = offline or not hub_is_reachable()
    try:
        more: dict[str, Any] = {"name": named.config} if named.config else {}
        rows = datasets.load_dataset(named.name, split=split, **more)
    except Exception as error:  # the hub client's errors have many unrelated types
        raise InputError(
            f"{named.name}: no such file or folder here, and the dataset hub does not give its "
            f"split {split!r} (unknown name or split, which --split names, or no network): "
            f"{first_line(error)}"
        ) from error
    finally:
        config.HF_HUB_OFFLINE = offline
    for number, row in enumerate(rows, start=1):
        yield named.name, number, dict(row)
