"""A look at one's own judgements, as programs ask for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.api.quiet import quiet_libraries
from murmuration.api.rows import stated_rows
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.in_memory import Source, located_rows
from murmuration.preference.data.public_names import as_source
from murmuration.strategies.settings.data import row_fields
from murmuration.strategies.settings.from_python import takes

if TYPE_CHECKING:
    from murmuration.planning.look import DataSummary


@takes(row_fields, optional=True)
def data(
    source: Source,
    *,
    epsilon: float | None = None,
    features: str = "",
    items: str | os.PathLike[str] | Sequence[str] = "",
    data_public: bool = False,
    **rows: Any,
) -> DataSummary:
    """Look at judgements before a budget is spent, and find the declaration that suits them.

    Only the owner of the data may see the result: it is exact, and no epsilon covers it. Nothing is
    stored, except for ``features``.

        >>> from murmuration import data
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
        >>> summary = data([{"user_id": f"user {n}", **pair} for n in range(200)])
        >>> len(summary.judgements), summary.schema.kind, dict(summary.reasons)
        (200, 'pairs', {})
        >>> "200 judgements by 200 users" in str(summary)
        True

    Args:
        source: Judgements, as data of ``train``.
        epsilon: The budget that you have in mind, for which settings are advised; by default that
            of ``train``.
        features: Those that you have in mind, as of ``train``: how long they take for these texts
            on this machine is measured on a few. Found texts, and those few, are kept as a run
            keeps them.
        items: A public list of responses that come back, as of ``train``.
        data_public: Whether the data are public, so that settings chosen by looking at them tell
            nothing: then the command does not say ``--chosen-from-data``.
        **rows: What is declared of them; by default what most of them are.

    Returns:
        What the rows hold, what settings suit them, and a command that trains on them. As text it
        is what ``murmuration data`` prints.

    Raises:
        InputError: the source cannot be read, or ``epsilon`` is not positive.
    """
    quiet_libraries()
    from murmuration.planning.look import look_at
    from murmuration.strategies.settings.run import Settings

    epsilon = Settings.epsilon if epsilon is None else epsilon
    if not epsilon > 0.0:
        raise InputError(f"--epsilon must be a positive number; got {epsilon}")
    columns, declared = stated_rows(rows)
    with located_rows(source) as place:
        summary = look_at(
            place,
            columns,
            declared,
            epsilon=epsilon,
            public=data_public,
            features=features,
            items=as_source(items) if items else "",
        )
    return summary if isinstance(source, str | os.PathLike) else replace(summary, source="FILE")


def written_split(
    source: str, share: float | None, out: Path | None, columns: str, format: str
) -> str:
    """Write a source's rows in two files, each user's in one of them; return what is to be said.

    Raises:
        InputError: share or folder is missing, or the source cannot be split.
    """
    from murmuration.preference.data.splitting import split_users
    from murmuration.server.record.marks import mark_of_rows

    if share is None or out is None:
        raise InputError("--split-users SHARE and --out DIR belong together")
    mark = mark_of_rows(source) if format else {}
    split = split_users(source, share, out, columns=columns, format=format, mark=mark)
    left_out = [f"{split.left_out:,} rows name nobody and are in neither"] if split.left_out else []
    not_written = "".join(f"\n{each}" for each in (*left_out, *split.taken_out))
    return (
        f"{split.train}: {split.train_users:,} users, for --data\n"
        f"{split.test}: {split.test_users:,} users, for --test, which declares them public: "
        "figures on them are exact, and no epsilon covers these people. To protect them too, leave "
        f"--test out: --heldout holds users out of the whole file{not_written}"
    )


def written_conversion(
    source: str, path: Path, columns: str, format: str, one_user_per_row: bool
) -> str:
    """Write a source's rows in our form; return what is to be said.

    Raises:
        InputError: as of ``convert``.
    """
    from murmuration.preference.data.splitting import convert
    from murmuration.privacy.figures import counted
    from murmuration.server.record.marks import mark_of_rows

    mark = mark_of_rows(source)
    made = convert(
        source, path, columns=columns, format=format, one_user_per_row=one_user_per_row, mark=mark
    )
    by = "each of a user of its own" if one_user_per_row else f"by {counted(made.users, 'user')}"
    left_out = [f"bad rows, left out: {len(made.bad):,}"] if made.bad else []
    return "\n".join(
        [
            f"{made.path}: {counted(made.rows, 'row')}, {by}, for --data",
            *made.taken_out,
            *left_out,
            *made.bad[:100],
        ]
    )
