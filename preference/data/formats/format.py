"""Formats: the columns of a system's export, and the functions that make rows of ours of them.

What a row means, and whether it counts, is a function of the declaration and of its own user's rows
alone. So a format says, by the type of its ``reads``, what it needs to read a user's rows:

- ``OwnRows``: that row. Nodes read no other formats.
- ``SharedRecords``: that user's answer in a record, and the record's own texts.
- ``PublicTexts``: that user's rows, and public texts, which stand in rows that name no user.
- ``WholeSource``: other users' rows. Such an export is converted first: nothing that promises an
  epsilon reads it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

from murmuration.preference.data.cells import flag_cell, is_empty, label_text
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.marks import Mark
from murmuration.preference.data.labels import TIES

#: A row of an export, or one of ours, with fields as in ``preference.data.columns.FIELDS``.
Cells = Mapping[str, object]
#: Rows of ours, each with the place, in a sequence of rows, of the one that it was made of.
MadeOfSeveral = Iterable[tuple[int, Cells | BadRow]]


@dataclass(frozen=True)
class OwnRows:
    """Rows of one user each.

    Attributes:
        judgements: yields what becomes of one row.
    """

    judgements: Callable[[Cells], Iterable[Cells | BadRow]]


@dataclass(frozen=True)
class SharedRecords:
    """Records with several annotators' answers about texts that all of them were shown.

    Attributes:
        answers: lists the annotators of a record, each with an answer, which nothing is read of. It
            raises where a record cannot be split by annotator, which refuses the whole source.
        shown: returns the texts of a record. Where it raises, the record is bad for all of its
            annotators.
        judgement: returns the row of one answer about these texts.
    """

    answers: Callable[[Cells], Iterable[tuple[object, Any]]]
    shown: Callable[[Cells], Any]
    judgement: Callable[[Any, Any], Cells]


@dataclass(frozen=True)
class PublicTexts:
    """Rows of one user each about public texts, each of which stands in a row that names no user.

    Attributes:
        columns: of the rows with public texts.
        text: returns the id of a public text, and the text. Where it raises, or where one id has
            two texts, the whole source is refused.
        judgements: yields what becomes of all rows of one user, beside the public texts by id.
    """

    columns: tuple[str, ...]
    text: Callable[[Cells], tuple[str, object]]
    judgements: Callable[[Mapping[str, object], Sequence[Cells]], MadeOfSeveral]


@dataclass(frozen=True)
class WholeSource:
    """Rows that cannot be read without other users' rows: for conversion alone.

    Attributes:
        judgements: yields what becomes of all rows of a source.
    """

    judgements: Callable[[Sequence[Cells]], MadeOfSeveral]


@dataclass(frozen=True)
class Format:
    """The declaration of a system's export format.

    Its functions yield or return rows in our form, and yield or raise a ``BadRow`` that says what
    is wrong with one, and quotes nothing of it. They get the cells of ``cells`` alone. The user is
    read from the original row, unless the new row has a ``user_id`` of its own.

    Attributes:
        name: as `--format` names it.
        forms: the sets of columns that a row may have; it needs all of one set.
        reads: the functions by which rows are read, and what these depend on.
        also: other columns that are read where they are there.
        marks: by which the system excludes a record. Such records are left out before anything else
            is read, and counted; the functions never get them. Judgements of a public text that is
            left out are left out, too.
        unmistakable: whether the columns alone identify the format.
        nobody: the reason why no column has the user, if so.
        scale: of labels that are numbers, where none is declared.
        categories: whether `--columns prompt=NAME` may name a column that says of each row in which
            category it is, in the place of a prompt.
        warning: returns a warning about all rows together for their owner, or nothing. It is used
            by a look at the data only: no run may depend on it.
    """

    name: str
    _: KW_ONLY
    forms: tuple[tuple[str, ...], ...]
    reads: OwnRows | SharedRecords | PublicTexts | WholeSource
    also: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    unmistakable: bool = True
    nobody: str = ""
    scale: str = ""
    categories: bool = False
    warning: Callable[[Iterable[Cells]], str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.reads, OwnRows | SharedRecords | PublicTexts | WholeSource):
            raise TypeError(f"format {self.name!r}: reads must say what a user's rows depend on")

    @property
    def isolates(self) -> bool:
        """True if each row is one user's and is read by itself, so that nodes may read the
        format.
        """
        return isinstance(self.reads, OwnRows)

    @property
    def all_forms(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns of users' rows, and that of public texts."""
        return (*self.forms, *([self.reads.columns] if isinstance(self.reads, PublicTexts) else ()))

    @cached_property
    def cells(self) -> frozenset[str]:
        """The columns that the format's functions are given."""
        return frozenset(self.also).union(*self.all_forms)

    @property
    def columns(self) -> frozenset[str]:
        """All columns that are read, except those of users."""
        return self.cells.union(mark.top for mark in self.marks)

    def missing(self, columns: Collection[str]) -> tuple[str, ...]:
        """The columns missing from the form that lacks fewest; empty if one is complete."""
        lacking = [tuple(name for name in form if name not in columns) for form in self.forms]
        return min(lacking, key=len)


def pair(prompt: object, first: object, second: object, won: float) -> Cells:
    """A row of two responses; ``won`` is 1 if the first won, 0 if the second, 0.5 for a tie.

    Without a prompt (None) the responses are whole conversations.
    """
    chosen, rejected = (second, first) if won == 0.0 else (first, second)
    row = {"chosen": chosen, "rejected": rejected, "tie": won == 0.5}
    return row if prompt is None else {"prompt": prompt, **row}


def side(value: object, column: str, first: Collection[str], second: Collection[str]) -> float:
    """The side that a cell names, in words in lower case: 1 for the first, 0 for the second, 0.5
    for a tie.

    Raises:
        BadRow: it names neither, nor a tie.
    """
    label = label_text(value)
    if label in first:
        return 1.0
    if label in second:
        return 0.0
    if label in TIES:
        return 0.5
    raise BadRow(f"{column!r} names neither of the two responses, nor a tie")


def flag(row: Cells, column: str) -> bool:
    """True if a cell is true; False if it is empty or missing.

    Raises:
        BadRow: it is neither true nor false.
    """
    try:
        return flag_cell(row.get(column), column)
    except BadRow:
        raise BadRow(f"{column!r} is neither true nor false") from None


def first_of(row: Cells, columns: Iterable[str]) -> object:
    """The first of these columns' cells that is not empty, else None."""
    return next((row[each] for each in columns if not is_empty(row.get(each))), None)
