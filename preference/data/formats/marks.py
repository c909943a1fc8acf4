"""Marks by which a system says that a record, or a part of one, does not count.

Which records are left out is a function of the format and of the record alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from murmuration.preference.data.cells import label_text
from murmuration.preference.data.columns import inner_cell, top_of
from murmuration.preference.data.errors import BadRow

#: How exports write true and false.
_WORDS = {True: ("true", "1", "t", "yes"), False: ("false", "0", "f", "no")}


class TakenOut(BadRow):
    """Why a record does not count that could be read: its own system took it out, or ``what`` it is
    about."""

    def __init__(self, because: str, what: str = "") -> None:
        super().__init__(f"left out{what}, as {because}")
        self.because = because


@dataclass(frozen=True)
class Mark:
    """A cell by which a system takes out a record, or a part of one.

    Attributes:
        column: in which it stands; behind dots, inside of the cells of others. `*` stands for each
            entry of a list or of an object, and then the entry is what the cell takes out:
            `annotations.*.was_cancelled`. Without it the whole row is.
        values: those that take out: true or false, numbers, or words in any spelling of
            ``cells.label_text``. An empty cell takes out nothing.
        because: why such a record does not count, as "a moderator rejected it".
    """

    column: str
    values: tuple[bool | int | str, ...]
    because: str

    @cached_property
    def top(self) -> str:
        """The row's own column that holds the mark."""
        return top_of(self.column)

    def reason(self) -> TakenOut:
        """The reason why a record is left out."""
        return TakenOut(f"{self.because} ({self.column!r})")

    def without(self, row: Mapping[str, object]) -> tuple[Mapping[str, object] | None, int]:
        """The row without marked records, and their number; None and 1 if the whole row is left
        out.
        """
        outer, star, inside = self.column.rpartition("*")
        if not star:
            return (None, 1) if self._takes(row, inside) else (row, 0)
        result, count = self._kept(row, outer.strip(".").split("."), inside.removeprefix("."))
        return (result, count) if count and isinstance(result, Mapping) else (row, 0)

    def _kept(self, cell: object, path: Sequence[str], inside: str) -> tuple[object, int]:
        """The cell without the marked entries, which lie at ``path`` inside it, and their
        number.
        """
        if isinstance(cell, str):  # as CSV holds what is nested
            try:
                cell = json.loads(cell)
            except (ValueError, RecursionError):
                return cell, 0
        if path and path[0] != "*":
            if not (isinstance(cell, Mapping) and path[0] in cell):
                return cell, 0
            entry, count = self._kept(cell[path[0]], path[1:], inside)
            return {**cell, path[0]: entry}, count
        if not isinstance(cell, Mapping | list):
            return cell, 0
        entries = dict(cell) if isinstance(cell, Mapping) else dict(enumerate(cell))
        if path:
            made = {name: self._kept(entry, path[1:], inside) for name, entry in entries.items()}
            count = sum(count for _, count in made.values())
            entries = {name: entry for name, (entry, _) in made.items()}
        else:
            count = len(entries)
            entries = {n: entry for n, entry in entries.items() if not self._takes(entry, inside)}
            count -= len(entries)
        return entries if isinstance(cell, Mapping) else [*entries.values()], count

    def _takes(self, record: object, column: str) -> bool:
        if isinstance(record, Mapping) and column in record:
            return label_text(record[column]) in self._labels
        return label_text(inner_cell(record, column)) in self._labels

    @cached_property
    def _labels(self) -> frozenset[str]:
        """The values as ``label_text`` spells them."""
        words = (
            _WORDS[value] if isinstance(value, bool) else (label_text(value),)
            for value in self.values
        )
        return frozenset(word for each in words for word in each)


def without_marked(
    row: Mapping[str, object], marks: Sequence[Mark]
) -> tuple[Mapping[str, object] | None, list[TakenOut]]:
    """The row without what marks take out (None if nothing remains), and a reason for each record
    taken out.
    """
    reasons: list[TakenOut] = []
    for mark in marks:
        if mark.top not in row:
            continue
        left, count = mark.without(row)
        reasons += [mark.reason() for _ in range(count)]
        if left is None:
            return None, reasons
        row = left
    return row, reasons
