"""Rows of a format become rows of ours, with the places of those that they were made of.

Decisions:
- What becomes of a user's rows depends on them and on the declaration alone, and on public texts
  where a format has any: nothing is counted over all rows, and no row decides how another is read.
  So a row that is not of the form is a bad row, the first one, too.
- Who judged is read by one rule (`preference.data.user_ids.user_cell`) before anything is made of
  several rows: 7, 7.0 and the text `7.0` are one user.
- What the export's own system took out (`preference.data.formats.marks`) is no bad row: it is left
  out and counted, and so are judgements about a public text that was taken out.
- A record of several annotators that cannot be split, and a broken public text, refuse the whole
  source, whether bad rows are skipped or not: this reveals one bit to its owner, and changes no
      row.
- No reason quotes a cell, but numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from murmuration.preference.data.cells import is_empty
from murmuration.preference.data.columns import (
    USER_COLUMNS,
    missing_columns,
    top_of,
    with_nested,
    with_user,
)
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.format import (
    Cells,
    Format,
    OwnRows,
    PublicTexts,
    SharedRecords,
    WholeSource,
)
from murmuration.preference.data.formats.marks import TakenOut, without_marked
from murmuration.preference.data.sources import Placed, RawRow
from murmuration.preference.data.user_ids import user_cell

_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Formatted:
    """Reads the rows of a source by a format.

    Attributes:
        form: the format.
        source: names the whole.
        user_column: in which it stands who judged, where that is stated; empty: where it usually
            does.
        category_column: in which the category of a row stands, of which its prompt is made; empty:
            the format's own prompt stays.
        alone: whether each row counts as a user of its own.

    Raises:
        InputError: no column of the format says who judged, and none is stated.
    """

    form: Format
    source: str
    user_column: str = ""
    category_column: str = ""
    alone: bool = False

    def __post_init__(self) -> None:
        if self.form.nobody and not (self.user_column or self.alone):
            raise InputError(
                f"{self.source}: --format {self.form.name} does not say who judged, to whom "
                f"privacy could be promised: {self.form.nobody}. --one-user-per-row counts each "
                "row as a user of its own, and then protects single rows only, not people"
            )

    @property
    def wanted(self) -> frozenset[str]:
        """The columns that are read."""
        named = ("user_id", self.user_column, top_of(self.user_column), self.category_column)
        return self.form.columns.union(USER_COLUMNS, named)

    def rows(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        """Yield the rows that are made of these; errors pass through unchanged.

        Raises:
            InputError: a record cannot be split by annotator, or a public text is broken or
                missing; of a format for conversion, the rows cannot be read together.
        """
        match self.form.reads:
            case OwnRows() as reads:
                return self._own_rows(reads, placed)
            case SharedRecords() as reads:
                return self._records(reads, placed)
            case PublicTexts() as reads:
                return self._beside_texts(reads, placed)
            case WholeSource() as reads:
                return self._whole_source(reads, placed)

    def public_texts(self, placed: Iterable[Placed]) -> list[object]:
        """The public texts among the rows, in order, without those taken out; empty for a format
        without public texts.

        Raises:
            InputError: one is broken, or there are none.
        """
        reads = self.form.reads
        if not isinstance(reads, PublicTexts):
            return []
        texts = self._divided(reads, placed)[0].values()
        return [text for text in texts if not isinstance(text, TakenOut)]

    def _in_form(self, placed: Iterable[Placed]) -> Iterator[Placed]:
        """Yield the rows that have the format's columns and are not taken out; the reason in the
        place of any other.
        """
        for place, number, row in placed:
            if isinstance(row, BadRow) and row.cells is not None:
                row = self._with_user(row.cells, row)
            if not isinstance(row, Mapping):
                yield place, number, row
            elif missing := self.form.missing(row):
                yield place, number, self._with_user(row, self._lacking(missing))
            else:
                left, reasons = without_marked(row, self.form.marks)
                for reason in reasons:
                    yield place, number, self._with_user(row, reason)
                if left is not None:
                    yield place, number, left

    def _own_rows(self, reads: OwnRows, placed: Iterable[Placed]) -> Iterator[Placed]:
        for place, number, row in self._in_form(placed):
            if not isinstance(row, Mapping):
                yield place, number, row
                continue
            judgements = reads.judgements(self._cells(row))
            for each in self._readable(judgements, lambda reason: reason):
                yield place, number, self._with_user(row, self._with_category(row, each))

    def _records(self, reads: SharedRecords, placed: Iterable[Placed]) -> Iterator[Placed]:
        for place, number, row in placed:
            try:
                if not isinstance(row, Mapping):
                    raise row if isinstance(row, BadRow) else BadRow("it is no object")
                left, reasons = without_marked(row, self.form.marks)
                yield from ((place, number, reason) for reason in reasons)
                if left is None:
                    continue
                row, cells = left, self._cells(left)
                answers = [*reads.answers(cells)]
            except Exception as error:  # a cell may hold anything
                missing = isinstance(row, Mapping) and self.form.missing(row)
                reason = self._lacking(missing) if missing else self._reason(error)
                raise InputError(
                    f"{place}:{number}: {reason}. A record of --format "
                    f"{self.form.name} holds several annotators' answers, and this one cannot be "
                    "split by annotator: mend it, or take it out for all of them"
                ) from None
            shown: object = None
            try:
                if missing := self.form.missing(row):
                    raise self._lacking(missing)
                shown = reads.shown(cells)
            except Exception as error:
                shown = self._reason(error)
            for who, answer in answers:
                who = row.get(self.user_column) if self.user_column else who
                yield place, number, self._answer(reads, shown, who, answer)

    def _answer(self, reads: SharedRecords, shown: object, who: object, answer: object) -> RawRow:
        """The row of one annotator's answer to a record, or the reason why it cannot be read."""
        user = None
        try:
            if not self.alone:
                if is_empty(who):
                    raise BadRow("an answer does not say who gave it")
                user = user_cell(who, self.user_column or "user_id")
            if isinstance(shown, BadRow):
                raise BadRow(str(shown))
            row = reads.judgement(shown, answer)
            if not isinstance(row, BadRow):
                return row if user is None else {**row, "user_id": user}
            reason = row
        except Exception as error:  # a cell may hold anything
            reason = self._reason(error)
        reason.user_id = user
        return reason

    def _beside_texts(self, reads: PublicTexts, placed: Iterable[Placed]) -> Iterator[Placed]:
        texts, users, bad = self._divided(reads, placed)
        yield from bad
        for user, mine in users.items():
            made = reads.judgements(texts, [row for _, _, row in mine])
            for at, row in self._readable(made, lambda reason: (0, reason)):
                if isinstance(row, Mapping):
                    taken = [cell for cell in row.values() if isinstance(cell, TakenOut)]
                    row = TakenOut(taken[0].because, " with what it is about") if taken else row
                if isinstance(row, BadRow):
                    row.user_id = None if self.alone else user
                else:
                    row = {**row, "user_id": user}
                yield *mine[at][:2], row

    def _divided(
        self, reads: PublicTexts, placed: Iterable[Placed]
    ) -> tuple[dict[str, object], dict[str, list[tuple[str, int, Cells]]], list[Placed]]:
        """The public texts by id, or the reason why one is taken out; each user's rows; and all
        other rows.
        """
        texts: dict[str, object] = {}
        taken_out: dict[str, object] = {}
        users: dict[str, list[tuple[str, int, Cells]]] = {}
        bad: list[Placed] = []
        for at, (place, number, row) in enumerate(placed):
            if not isinstance(row, Mapping):
                bad.append((place, number, row))
                continue
            left, reasons = without_marked(row, self.form.marks)
            row = row if left is None else left
            is_public = {*reads.columns} <= {*row} and not self._names_somebody(row)
            for reason in reasons:
                bad.append((place, number, reason if is_public else self._with_user(row, reason)))
            if is_public:
                try:
                    name, text = reads.text(self._cells(row))
                    if left is None:
                        taken_out[name] = reasons[-1]
                    elif texts.setdefault(name, text) != text:
                        raise BadRow("two public texts have this id")
                except Exception as error:  # a cell may hold anything
                    raise InputError(f"{place}:{number}: {self._reason(error)}") from None
            elif left is not None:
                missing = self.form.missing(row)
                named = self._with_user(row, self._lacking(missing) if missing else {})
                if isinstance(named, BadRow):
                    bad.append((place, number, named))
                else:
                    mine = users.setdefault(str(named.get("user_id", at)), [])
                    mine.append((place, number, self._cells(row)))
        texts |= taken_out
        if not texts:
            raise InputError(f"{self.source}: {self._lacking(reads.columns)}")
        return texts, users, bad

    def _names_somebody(self, row: Cells) -> bool:
        columns = (self.user_column or "user_id", *USER_COLUMNS)
        return any(not is_empty(row[column]) for column in columns if column in row)

    def _whole_source(self, reads: WholeSource, placed: Iterable[Placed]) -> Iterator[Placed]:
        rows: list[tuple[str, int, Cells]] = []
        for place, number, row in self._in_form(placed):
            if isinstance(row, Mapping):
                rows.append((place, number, row))
            else:
                yield place, number, row
        try:
            made = [*reads.judgements([self._cells(row) for _, _, row in rows])]
        except Exception as error:  # a cell may hold anything
            raise InputError(f"{self.source}: {self._reason(error)}") from None
        for at, row in made:
            yield *rows[at][:2], self._with_user(rows[at][2], row)

    def _cells(self, row: Cells) -> Cells:
        return {name: row[name] for name in row if name in self.form.cells}

    def _readable(
        self, made: Iterable[_Made], unreadable: Callable[[BadRow], _Made]
    ) -> list[_Made]:
        """What is made of a user's rows, up to and including the first error."""
        result: list[_Made] = []
        try:
            for each in made:
                result.append(each)
        except Exception as error:  # a cell may hold anything
            result.append(unreadable(self._reason(error)))
        return result

    def _lacking(self, missing: Iterable[str]) -> BadRow:
        columns = ", ".join(map(repr, missing))
        return BadRow(f"not of the form --format {self.form.name}: no column {columns}")

    def _reason(self, error: Exception) -> BadRow:
        if isinstance(error, BadRow):
            return error
        kind = type(error).__name__
        return BadRow(f"a cell that --format {self.form.name} cannot read ({kind})")

    def _with_category(self, original: Cells, row: RawRow) -> RawRow:
        if not self.category_column or isinstance(row, BadRow):
            return row
        if self.category_column not in original:
            return self._lacking([self.category_column])
        return {**row, "prompt": original[self.category_column]}

    def _with_user(self, original: Cells, row: RawRow) -> RawRow:
        """The row with its user, read from the original row; also a bad row."""
        if self.alone or (
            not isinstance(row, BadRow) and "user_id" in row and not self.user_column
        ):
            return row
        stated = {"user_id": self.user_column or "user_id"}
        try:
            original = with_nested(original, stated)
            column = with_user(original, stated)["user_id"]
            if column not in original:
                raise missing_columns(original, stated)
            user = user_cell(original[column], column)
        except Exception as error:  # a cell may hold anything
            return row if isinstance(row, BadRow) else self._reason(error)
        if isinstance(row, BadRow):
            row.user_id = user
            return row
        return {**row, "user_id": user}
