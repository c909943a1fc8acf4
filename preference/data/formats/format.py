"""What a format is: the columns of a system's export, and how they become rows of ours."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from murmuration.preference.data.cells import TIES, flag_cell, is_empty, label_text
from murmuration.preference.data.errors import BadRow

#: A row of an export, or one of ours, with fields as in ``preference.data.column_meanings.FIELDS``.
Cells = Mapping[str, object]
OfRow = Callable[[Cells], Iterable[Cells | BadRow]]
OfAll = Callable[[Sequence[Cells]], Iterable[tuple[int, Cells | BadRow]]]
_TIES = frozenset(label_text(tie) for tie in TIES)


@dataclass(frozen=True)
class Format:
    """Declare how a system's export is read. Exactly one of ``of_row`` and ``of_all`` is given.

    What they yield are rows in our form, or a ``BadRow`` that says what is wrong with one, and
    quotes nothing of it. Without a ``user_id`` it is taken from the row that they were made of,
    from the column in which it usually stands.

    Attributes:
        name: as `--format` names it.
        forms: the sets of columns that a row may have; it needs all of one set. Of ``of_all`` the
            sets of which each must be there in some row.
        of_row: yields what becomes of one row, of which it gets the cells of ``columns`` alone.
        of_all: yields what becomes of all rows together, each with the place, in the sequence, of
            the row that it belongs to.
        also: other columns that are read where they are there.
        isolates: whether what one person wrote cannot change how another's is read; nodes take no
            other format.
        unmistakable: whether the columns alone tell that it is this one.
        nobody: why no column says who judged, where that is so.
        scale: of labels that are numbers, where none is declared.
        styles: columns of which covariates are made, and which are read only where any are
            declared; the rows that it yields then hold these by `chosen` and `rejected`.
    """

    name: str
    forms: tuple[tuple[str, ...], ...]
    of_row: OfRow | None = None
    of_all: OfAll | None = None
    also: tuple[str, ...] = ()
    isolates: bool = False
    unmistakable: bool = True
    nobody: str = ""
    scale: str = ""
    styles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.of_row is None) == (self.of_all is None):
            raise TypeError(f"format {self.name!r}: give one of of_row and of_all")

    @property
    def columns(self) -> frozenset[str]:
        """Return all columns that are read, but those of users."""
        return frozenset(self.also).union(*self.forms)

    def missing(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return what is missing of the set of columns to which least is; nothing, if one is
        there."""
        lacking = [tuple(name for name in form if name not in columns) for form in self.forms]
        return min(lacking, key=len)


def pair(prompt: object, first: object, second: object, won: float) -> Cells:
    """Return a row of two responses: 1 means that the first won, 0 the second, 0.5 a tie.

    Without a prompt (None) the responses are whole conversations.
    """
    chosen, rejected = (second, first) if won == 0.0 else (first, second)
    row = {"chosen": chosen, "rejected": rejected, "tie": won == 0.5}
    return row if prompt is None else {"prompt": prompt, **row}


def side(value: object, column: str, first: Collection[str], second: Collection[str]) -> float:
    """Return which of two sides a cell names, by words in small letters: as ``won`` of ``pair``.

    Raises:
        BadRow: it names neither, nor a tie.
    """
    label = label_text(value)
    if label in first:
        return 1.0
    if label in second:
        return 0.0
    if label in _TIES:
        return 0.5
    raise BadRow(f"{column!r} names neither of the two responses, nor a tie")


def flag(row: Cells, column: str) -> bool:
    """Return whether a cell is true; an empty one, or none, is not.

    Raises:
        BadRow: it is neither true nor false.
    """
    try:
        return flag_cell(row.get(column), column, empty=False)
    except BadRow:
        raise BadRow(f"{column!r} is neither true nor false") from None


def first_of(row: Cells, columns: Iterable[str]) -> object:
    """Return the first cell of these columns that holds something, else None."""
    return next((row[each] for each in columns if not is_empty(row.get(each))), None)
