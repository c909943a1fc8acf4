"""Rows of a source in two files, each user's in one of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from murmuration.preference.data.column_meanings import REQUIRED
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import parse_columns, placed_rows
from murmuration.preference.data.rows import readable_user


@dataclass(frozen=True)
class Split:
    """A written split: its two files, how many users each has, and how many rows name no user."""

    train: Path
    test: Path
    train_users: int
    test_users: int
    left_out: int


def split_users(source: str, share: float, out: Path, columns: str = "", format: str = "") -> Split:
    """Write the rows of a share of the users to `test.jsonl`, those of the others to `train.jsonl`.

    On which side a user is follows from their id alone: the same again, whatever else the source
    holds. A row that names no user is in neither file.
    Rows of a ``format`` are written in our form.

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
    left_out = 0
    for _, _, row in placed_rows(source, stated, format):
        user = readable_user(row, names)
        if user is None or not isinstance(row, Mapping):
            left_out += 1
            continue
        side = _place(user) < share
        users[side].add(user)
        lines[side].append(json.dumps(dict(row), default=str) + "\n")
    if not (users[0] and users[1]):
        raise InputError(
            f"{source}: {len(users[0])} users on one side and {len(users[1])} on the other, and "
            f"{left_out} rows that name nobody: too few to split, or name the column of users with "
            "--user-column"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, of_side in zip((train, test), lines, strict=True):
            with path.open("x", encoding="utf-8") as file:
                file.writelines(of_side)
    except OSError as error:
        raise InputError(f"{error.filename or out}: {error.strerror or error}") from error
    return Split(train, test, len(users[0]), len(users[1]), left_out)


def _place(user: str) -> float:
    """A number from 0 to 1 that depends on a user's id alone."""
    digest = hashlib.blake2b(user.encode(), digest_size=8, person=b"murmuration side").digest()
    return int.from_bytes(digest, "little") / 2.0**64
