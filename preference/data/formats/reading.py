"""Rows of a format become rows of ours, with the places of those that they were made of.

Decisions:
- A source whose first row is not of the form is refused as a whole, in a line that names what is
  missing; later ones are bad rows. At a node, where nobody's row may decide about others, the first
  is a bad row, too.
- Where more than a twentieth of what a format makes are bad rows, it has not been understood, and
  nothing is read, whether bad rows are skipped or not.
- No reason quotes a cell.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from murmuration.preference.data.column_meanings import missing_columns, with_user
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.format import Cells, Format, OfAll, OfRow
from murmuration.preference.data.rows import readable_user
from murmuration.preference.data.sources import Placed, Row

#: A row with its place, and the one that it was made of; None for what is no row.
Made = tuple[str, int, Cells | None, Row]
_MOST_UNREAD = 0.05  # of what a format makes
#: Rows that are remembered, for others that say the same: votes on few items are alike.
_MOST_REMEMBERED = 2**14


@dataclass(frozen=True)
class Formatted:
    """Reads the rows of a source by a format.

    Attributes:
        form: the format.
        source: names the whole.
        user_column: in which it stands who judged, where that is stated; empty: where it usually
            does.
        alone: whether each row counts as a user of its own.
        isolate: whether they are a node's rows.
        scale: of labels, where the format alone declares it: what is not on it is a bad row.

    Raises:
        InputError: no column of the format says who judged, and none is stated.
    """

    form: Format
    source: str
    user_column: str = ""
    alone: bool = False
    isolate: bool = False
    scale: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.form.nobody and not (self.user_column or self.alone):
            raise InputError(
                f"{self.source}: --format {self.form.name} does not say who judged, to whom "
                f"privacy could be promised: {self.form.nobody}. --one-user-per-row counts each "
                "row as a user of its own, and then protects single rows only, not people"
            )

    def rows(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        """Yield the rows that are made of these; what is no row stays as it is.

        Raises:
            InputError: they are not of the form, or more than a few cannot be read.
        """
        made = unread = 0
        first = ""
        for place, number, original, row in self._made(placed):
            if original is not None:
                row = self._with_user(original, self._on_scale(row))
                made += 1
                if isinstance(row, BadRow):
                    unread += 1
                    first = first or f"{place}: line {number}: {row}"
            yield place, number, row
        if unread > _MOST_UNREAD * made and not self.isolate:
            raise InputError(
                f"{self.source}: {unread} of {made} judgements cannot be read by --format "
                f"{self.form.name}, the first is {first}"
            )

    def _made(self, placed: Iterable[Placed]) -> Iterator[Made]:
        if self.form.of_row is not None:
            yield from self._of_row(self.form.of_row, placed)
        if self.form.of_all is not None:
            yield from self._of_all(self.form.of_all, placed)

    def _of_row(self, of_row: OfRow, placed: Iterable[Placed]) -> Iterator[Made]:
        seen = False
        layouts: dict[tuple[str, ...], tuple[str, ...]] = {}
        remembered: dict[tuple[object, ...], list[Cells | BadRow]] = {}
        for place, number, row in placed:
            if type(row) is not dict and not isinstance(row, Mapping):  # the first takes no time
                yield place, number, None, row
                continue
            present = tuple(row)
            names = layouts.get(present)
            if names is None:
                if missing := self.form.missing(row):
                    if not (seen or self.isolate):
                        raise InputError(f"{place}: {self._lacking(missing)}")
                    yield place, number, row, BadRow(self._lacking(missing))
                    continue
                names = tuple(name for name in present if name in self.form.columns)
                if len(layouts) < _MOST_REMEMBERED:
                    layouts[present] = names
            seen = True
            cells = [row[name] for name in names]
            # A format sees no other columns, so these cells say all that it makes of them; those
            # that are no text may be equal and not the same, as 1 and True are.
            key = (present, *cells) if {*map(type, cells)} == {str} else None
            made = remembered.get(key) if key else None
            if made is None:
                made = self._read(of_row, dict(zip(names, cells, strict=True)))
                lasting = not any(isinstance(each, BadRow) for each in made)
                if key and lasting and len(remembered) < _MOST_REMEMBERED:
                    remembered[key] = made
            for each in made:
                yield place, number, row, each

    def _read(self, of_row: OfRow, row: Cells) -> list[Cells | BadRow]:
        """Return what becomes of a row, up to what cannot be read."""
        made: list[Cells | BadRow] = []
        try:
            for each in of_row(row):
                made.append(each)
        except BadRow as reason:
            made.append(reason)
        except Exception as error:  # a cell may hold anything
            made.append(self._unreadable(error))
        return made

    def _of_all(self, of_all: OfAll, placed: Iterable[Placed]) -> Iterator[Made]:
        places, rows = [], []
        for place, number, row in placed:
            if isinstance(row, Mapping):
                places.append((place, number))
                rows.append(row)
            else:
                yield place, number, None, row
        for form in self.form.forms:
            lacking = [tuple(name for name in form if name not in row) for row in rows]
            if missing := min(lacking, key=len, default=form):
                raise InputError(f"{self.source}: {self._lacking(missing)}")
        try:
            for at, row in of_all(rows):
                yield *places[at], rows[at], row
        except InputError as error:
            raise InputError(f"{self.source}: {error}") from None
        except Exception as error:  # a cell may hold anything
            raise InputError(f"{self.source}: {self._unreadable(error)}") from None

    def _lacking(self, missing: Iterable[str]) -> str:
        return f"not of the form --format {self.form.name}: no column " + ", ".join(
            map(repr, missing)
        )

    def _unreadable(self, error: Exception) -> BadRow:
        kind = type(error).__name__
        return BadRow(f"a cell that --format {self.form.name} cannot read ({kind})")

    def _on_scale(self, row: Row) -> Row:
        if self.scale is None or isinstance(row, BadRow):
            return row
        low, high = self.scale
        label = row.get("label")
        if isinstance(label, float) and not low <= label <= high:
            return BadRow(f"a label that is not on the scale {low:g}..{high:g}: pass --scale")
        return row

    def _with_user(self, original: Cells, row: Row) -> Row:
        """Return a row with whose it is, also a bad one."""
        stated = {"user_id": self.user_column or "user_id"}
        if isinstance(row, BadRow):
            unknown = self.alone or (self.form.nobody and not self.user_column)
            row.user_id = row.user_id or (None if unknown else readable_user(original, stated))
            return row
        if self.alone or ("user_id" in row and not self.user_column):
            return row
        try:
            column = with_user(original, stated)["user_id"]
        except BadRow as reason:
            return reason
        if column not in original:
            return missing_columns(original, stated)
        return {**row, "user_id": original[column]}
