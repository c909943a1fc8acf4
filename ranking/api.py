"""The Python function for a leaderboard of items from people's votes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.api.rows import Source, with_columns
from murmuration.api.run import Run
from murmuration.api.training import train
from murmuration.preference.data.columns import USER_COLUMNS, parse_columns, write_columns
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import columns_of, public_texts, texts_in
from murmuration.preference.data.public_names import as_source, clean_name
from murmuration.preference.data.rows import NO_PROMPT
from murmuration.preference.data.sources import TABLE_KINDS, files_named
from murmuration.ranking.release import RankingRelease
from murmuration.sims.runtimes import Runtime
from murmuration.strategies.settings.from_python import of_strategy, takes, warn

if TYPE_CHECKING:
    from rich.console import Group

    from murmuration.ranking.board import Board

_STRATEGY = "ranking"
#: What a source of votes between models is read as, where nothing else is said.
_MODELS = (("model_a", "model_b"), ("model_a_name", "model_b_name"))


@dataclass(frozen=True)
class Ranking:
    """A board that was released.

    Attributes:
        run: the run that it came from, with its promise and its ledger.
        page: the board as one HTML file.
    """

    run: Run
    page: Path

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Ranking:
        """Load the leaderboard of a finished run, and write its page again.

        Args:
            folder: of the run, wherever it took place.

        Raises:
            InputError: there is none, or it ranked nothing.
        """
        run = Run.load(folder)
        return cls(run, write_page(run))

    @cached_property
    def release(self) -> RankingRelease:
        """The noisy sums from which everything is computed."""
        return released_votes(self.run)

    @cached_property
    def board(self) -> Board:
        """The leaderboard of all votes."""
        from murmuration.ranking.board import fit_board

        return fit_board(self.release.overall())

    @cached_property
    def boards(self) -> tuple[Board, ...]:
        """The leaderboard of each category; a single one if there are no categories."""
        from murmuration.ranking.board import fit_board

        release = self.release
        return tuple(fit_board(release.board(place)) for place in range(len(release.boards)))

    def to_json(self) -> dict[str, Any]:
        """The output of ``murmuration rank --json``: the run's result, the page, the
        leaderboard.
        """
        board = self.board
        best_K, worst_K = board.ranks
        rows = [
            {
                "item": board.items[place],
                "elo": float(board.elo_K[place]),
                "error": float(board.error_K[place]),
                "ranks": [int(best_K[place]), int(worst_K[place])],
            }
            for place in board.order
        ]
        return {**self.run.result, "page": str(self.page), "board": rows}

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        summary = self.to_json()
        table = Table(box=None, pad_edge=False)
        for heading in ("rank", "item", "Elo", "±"):
            table.add_column(heading, justify="left" if heading == "item" else "right")
        for row in summary["board"]:
            first, last = row["ranks"]
            ranks = str(first) if first == last else f"{first}–{last}"
            figures = (f"{row['elo']:.0f}", f"{row['error']:.0f}")
            table.add_row(ranks, Text(row["item"]), *figures)
        lines = [
            "",
            str(self.run.promise),
            *(f"! {text}" for text in summary["warnings"]),
            str(self.page),
        ]
        return Group(table, *map(Text, lines))

    def __str__(self) -> str:
        from murmuration.terminal.tables import as_text

        return as_text(self)


@takes(partial(of_strategy, _STRATEGY))
def rank(
    data: Source | None = None,
    items: str | os.PathLike[str] | Sequence[str] | None = None,
    *,
    items_public: bool = False,
    by: str | None = None,
    categories: str | os.PathLike[str] | Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    runtime: Runtime | str = Runtime.LOCAL,
    users_per_node: int | None = None,
    progress: bool | None = None,
    **settings: object,
) -> Ranking:
    """Rank items by people's votes with user-level differential privacy.

    All votes of a voter are one bounded vector; the sum of all is released once, with noise, and
    the leaderboard is computed from it.

        >>> from murmuration import rank
        >>> votes = [
        ...     {"user_id": f"user {n}", "chosen": "save", "rejected": "spend"} for n in range(400)
        ... ]
        >>> ranking = rank(votes, ["save", "spend"], epsilon=1, delta=1e-5, out="runs/board")
        >>> ranking.board.items[ranking.board.order[0]]
        'save'
        >>> ranking.run.promise.private
        True

    Args:
        data: Votes: judgements, as of ``train``, whose responses are names of items. Votes between
            models are recognised by the columns model_a and model_b of a table; where each row
            names its own (JSON), by ``format="arena-models"``. Without data and items the embedded
            arena.
        items: The public list of items: names, a file with one per line, or a ``.json`` file. For a
            Polis conversation (``format="polis"``) the default is its statements without those that
            moderators rejected.
        items_public: Declare that all models named in the columns model_a and model_b of a file are
            public: these are the items then. Without ``items``.
        by: The column with the category of a vote, with ``categories``: one leaderboard for each.
        categories: The public list of categories, written like ``items``.
        out: Folder for the run and the leaderboard; without it a new one below ``runs``.
        resume: Continue the run in ``out``, with its settings and data.
        runtime: As of ``train``.
        users_per_node: As of ``train``.
        progress: As of ``train``.
        **settings: As of ``train``. ``group_size`` is the most votes of a voter that count (10);
            ``pairing`` says who chose the pairs.

    Returns:
        The leaderboard, and its run.

    Raises:
        InputError: a setting or votes that cannot be used; an item or a category that is not on its
            list.
        RunAborted: a node failed.
    """
    given: dict[str, Any] = {"strategy": _STRATEGY, **with_columns(settings)}
    if given["strategy"] != _STRATEGY:
        raise InputError("a board is made by --strategy ranking: leave out --strategy")
    given.setdefault("heldout", 0.0)
    if categories is not None:
        given["categories"] = categories
    if items_public:
        if items is not None or resume:
            raise InputError("--items-public is for a new board without --items: leave it out")
        items = _named_models(data)
    if not resume:
        data, items = _new_board(data, items, by, given)
    for name, names in (("items", items), ("categories", categories)):
        if names is not None:
            given[name] = as_source(names)
    run = _trained(
        data,
        out=out,
        resume=resume,
        runtime=runtime,
        users_per_node=users_per_node,
        progress=progress,
        **given,
    )
    return Ranking(run, write_page(run))


def _named_models(data: Source | None) -> list[str]:
    """All models that votes between models name, sorted.

    Raises:
        InputError: the votes are in no file, or not between models.
    """
    if not isinstance(data, str | os.PathLike):
        raise InputError("--items-public reads the models of a file of votes: name it with --data")
    columns = [column for both in _MODELS for column in both]
    names = {clean_name(each) for column in columns for each in texts_in(os.fspath(data), column)}
    if not names:
        raise InputError(f"{data}: no columns model_a and model_b, of which --items-public speaks")
    return sorted(names)


def _new_board(
    data: Source | None,
    items: str | os.PathLike[str] | Sequence[str] | None,
    by: str | None,
    given: dict[str, Any],
) -> tuple[Source, str | os.PathLike[str] | Sequence[str]]:
    """The votes and items of a new leaderboard; adds to its settings how votes are read.

    Raises:
        InputError: one of them is missing, or cannot be read.
    """
    if given.get("format") == "polis" and isinstance(data, str | os.PathLike):
        if items is None:
            texts = public_texts(os.fspath(data), given.get("columns", ""), "polis")
            names = (clean_name(text) for text in texts if isinstance(text, str))
            items = list(dict.fromkeys(names))
        given.setdefault("pairing", "voters")
    if data is None and items is None:
        from murmuration.ranking.arena import Arena

        data, items = EMBEDDED, Arena().names
    missing = ["--data, the votes"] if data is None else []
    missing += [_NO_ITEMS] if items is None else []
    missing += [_NO_CATEGORIES] if by and given.get("categories") is None else []
    if data is None or items is None or missing:
        missing += [_NO_USERS] if _lacks_users(data, given) else []
        raise InputError(f"a board needs {'; and '.join(missing)}")
    if given.get("categories") is not None and not by:
        raise InputError("--categories needs --by, the column that says the category of a vote")
    if given.get("kind", "pairs") == "pairs":
        given.setdefault("no_prompt", True)
    else:
        given.setdefault("model", "plackett-luce")
    _read_as(data, by, given)
    return data, items


def _trained(data: Source | None, **given: Any) -> Run:
    """The run; its warnings are those of ``train`` about votes."""
    notes: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            return train(data, **given)
    finally:
        for note in notes:
            if note.category is not UserWarning:
                warnings.warn_explicit(note.message, note.category, note.filename, note.lineno)
            elif NO_PROMPT not in str(note.message):  # votes have none
                warn(str(note.message))


_NO_ITEMS = (
    "--items, the public list of what is voted on (or --items-public, where all models that "
    "model_a and model_b name are public)"
)
_NO_CATEGORIES = (
    "--categories, the public list of what --by says: a category that votes alone know would give "
    "its voters away"
)
_NO_USERS = "--user-column, the column that says who voted"
#: What is ranked where nothing is named.
EMBEDDED = "murmuration.ranking.arena:arena"


def released_votes(run: Run) -> RankingRelease:
    """The release of a run's votes.

    Raises:
        InputError: it is no run of ``rank``.
    """
    if not (votes := run.result["outcome"].get("votes")):
        raise InputError(f"{run.path}: no board: it is no run of murmuration rank, or was stopped")
    return RankingRelease.from_json(votes)


def write_page(run: Run) -> Path:
    """Write the board of a finished run beside its report; the page.

    Raises:
        InputError: it is no run of ``rank``, or the files cannot be written.
    """
    from murmuration.ranking.page import write_board

    return write_board(run.path, released_votes(run), run.result)


def _lacks_users(data: Source | None, given: Mapping[str, Any]) -> bool:
    """True if a table has no column for users; other sources are not examined."""
    named = parse_columns(given.get("columns") or "")
    if not isinstance(data, str | os.PathLike) or given.get("format") or "user_id" in named:
        return False
    there = {*_columns_of_all(os.fspath(data))}
    known = given.get("one_user_per_row") or there & {"user_id", *USER_COLUMNS}
    return bool(there) and not known


def _read_as(data: Source, by: str | None, given: dict[str, Any]) -> None:
    """Add to settings how votes are read: votes between models, and which column is the
    category."""
    named = parse_columns(given.get("columns") or "")
    fields = {*named} - {"user_id", "prompt"}
    located = isinstance(data, str | os.PathLike)
    if located and not given.get("format") and not fields:
        there = {*_columns_of_all(os.fspath(data))}
        if any(there.issuperset(both) for both in _MODELS):
            given["format"] = "arena-models"
    if by:
        named["prompt"] = by
        given["no_prompt"] = False
    if named:
        given["columns"] = write_columns(named)


def _columns_of_all(source: str) -> list[str]:
    """The columns in the header of a table; empty if rows or several files have columns of their
    own, by which one voter could decide how others' rows are read.

    Raises:
        InputError: it cannot be read.
    """
    files = files_named(source, isolate=False)
    if ":" in source if files is None else [file.kind in TABLE_KINDS for file in files] != [True]:
        return []  # a function's rows, JSON, or a folder of several
    return columns_of(source)
