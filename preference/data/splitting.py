"""Rows of a source in files of ours: in two, each user's in one of them, or converted in one."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import MappingProxyType

from murmuration.preference.data.columns import REQUIRED, parse_columns
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.marks import TakenOut
from murmuration.preference.data.formats.registry import recognised_format
from murmuration.preference.data.loading import columns_of, placed_rows
from murmuration.preference.data.rows import counted, readable_user
from murmuration.privacy.strict_json import strict_json


@dataclass(frozen=True)
class Conversion:
    """A written conversion: its file, its rows and users, the reasons and places of bad rows, and
    the number of rows taken out by their own system, with reasons.
    """

    path: Path
    rows: int
    users: int
    bad: tuple[str, ...]
    taken_out: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """A written split: its two files, the number of users of each, the number of rows without a
    user, and of those taken out by their own system, with reasons.
    """

    train: Path
    test: Path
    train_users: int
    test_users: int
    left_out: int
    _: KW_ONLY
    taken_out: tuple[str, ...]


def split_users(
    source: str,
    share: float,
    out: Path,
    *,
    columns: str = "",
    format: str = "",
    mark: Mapping[str, str] = MappingProxyType({}),
) -> Split:
    """Write the rows of a share of the users to `test.jsonl`, those of the others to `train.jsonl`.

    On which side a user is follows from their id alone: the same again, whatever else the source
    holds. A row that names no user is in neither file.
    Rows of a ``format`` are written in our form, and each with a ``mark``.

    Raises:
        InputError: the source cannot be read, one side would be empty, or a file is there already.
    """
    if not 0.0 < share < 1.0:
        raise InputError(f"--split-users must be a share between 0 and 1; got {share:g}")
    stated = parse_columns(columns)
    names = {field: field for field in REQUIRED} | ({} if format else stated)
    train, test = out / "train.jsonl", out / "test.jsonl"
    users: tuple[set[str], set[str]] = set(), set()
    lines: tuple[list[str], list[str]] = [], []
    left_out, taken_out = 0, Counter[str]()
    for _, _, row in placed_rows(source, stated, format):
        if isinstance(row, TakenOut):
            taken_out[str(row)] += 1
            continue
        user = readable_user(row, names)
        if user is None or not isinstance(row, Mapping):
            left_out += 1
            continue
        side = _place(user) < share
        users[side].add(user)
        lines[side].append(_line(row, mark))
    if not (users[0] and users[1]):
        raise InputError(
            f"{source}: {len(users[0])} users on one side and {len(users[1])} on the other, and "
            f"{left_out} rows that name nobody: too few to split, or name the column of users with "
            "--user-column"
        )
    for path, of_side in zip((train, test), lines, strict=True):
        _write(path, of_side)
    return Split(train, test, len(users[0]), len(users[1]), left_out, taken_out=counted(taken_out))


def convert(
    source: str,
    path: Path,
    *,
    columns: str = "",
    format: str = "",
    one_user_per_row: bool = False,
    mark: Mapping[str, str] = MappingProxyType({}),
) -> Conversion:
    """Write the rows that a format makes of a source, with their users, as JSON lines.

    Args:
        source: as of ``load_judgements``.
        path: the file, which must not be there.
        columns: as `--columns` is written.
        format: by default the one that the columns identify.
        one_user_per_row: whether the rows have no user.
        mark: cells that each row gets beside its own.

    Raises:
        InputError: the source cannot be read, or is of no format, or makes no row; or the file
            cannot be written.
    """
    format = format or recognised_format(columns_of(source))
    if not format:
        raise InputError(f"{source}: the columns do not tell of which --format it is: name it")
    lines: list[str] = []
    users: set[str] = set()
    bad: list[str] = []
    taken_out = Counter[str]()
    for place, number, row in placed_rows(source, parse_columns(columns), format, one_user_per_row):
        user = readable_user(row, {"user_id": "user_id"})
        if isinstance(row, Mapping) and (user or one_user_per_row):
            users.add(user or str(len(lines)))
            lines.append(_line(row, mark))
        elif isinstance(row, TakenOut):
            taken_out[str(row)] += 1
        else:
            reason = row if isinstance(row, BadRow) else "it is no object that says who judged"
            bad.append(f"{place}:{number}: {reason}")
    if not lines:
        nothing = "; ".join(counted(taken_out)) or "there are no rows"
        raise InputError(bad[0] if bad else f"{source}: no judgements: {nothing}")
    _write(path, lines)
    return Conversion(path, len(lines), len(users), tuple(bad), counted(taken_out))


def _line(row: Mapping[str, object], mark: Mapping[str, str]) -> str:
    return strict_json({**row, **mark}, default=str) + "\n"


def _write(path: Path, lines: list[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.writelines(lines)
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from error


def _place(user: str) -> float:
    """A number from 0 to 1 that depends on a user's id alone."""
    digest = hashlib.blake2b(user.encode(), digest_size=8, person=b"murmuration side").digest()
    return int.from_bytes(digest, "little") / 2.0**64
