"""Users' own texts, in columns and grouped by user: what a language model is trained on as it is.

The counterpart of `preference.data.judgements` without judgements: a row is a user and a text of
theirs. The same rules hold: the user is the privacy unit, ids that look the same are never two
users, a bad row is refused with its place or left out while its user stays, and is never repaired.

Shape suffixes: R rows (texts), U users.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NoReturn, Self

import numpy as np

from murmuration.preference.data.cells import text_cell
from murmuration.preference.data.columns import (
    column_names,
    missing_columns,
    user_note,
    with_nested,
    with_user,
)
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.files.packed_texts import PackedTexts
from murmuration.preference.data.judgements import LeftOut, OnBadRows, check_grouped, rows_of
from murmuration.preference.data.rows import (
    cells_of,
    check_count,
    check_length,
    counted,
    readable_user,
)
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.user_ids import user_cell

FIELDS = ("user_id", "text")


@dataclass(frozen=True, eq=False)
class UserTexts:
    """Texts of U users in R rows; the rows of user i are `start_U[i]:start_U[i + 1]`.

    Attributes:
        user_ids: U distinct ids, in order of first appearance in the input.
        start_U: int64, U + 1 row offsets; a user may be without rows.
        texts: R texts, none of them empty.
        set_aside: `file:line: reason` of the first rows that were left out when loading.
        left_out: the number of rows left out.
        notes: as those of judgements.
    """

    user_ids: tuple[str, ...]
    start_U: np.ndarray
    texts: PackedTexts
    _: KW_ONLY
    set_aside: tuple[str, ...] = ()
    left_out: int = 0
    notes: tuple[str, ...] = ()

    randomized = False  # there are no labels
    thumbs = 0  # nothing was rated
    one_user_per_row = False  # a user is whoever wrote the texts
    declared = None  # texts are of no kind

    def __post_init__(self) -> None:
        check_grouped(self.user_ids, self.start_U, len(self.texts), "texts")

    def __repr__(self) -> str:
        """The number of texts and users, without any text or id."""
        return f"UserTexts({len(self)} of {len(self.user_ids)} users)"

    def __len__(self) -> int:
        """Number of texts R."""
        return len(self.texts)

    @property
    def counts_U(self) -> np.ndarray:
        """The number of texts of each user, int64."""
        return np.diff(self.start_U)

    @property
    def prompts(self) -> list[str]:
        """Empty: texts have no prompts."""
        return []

    @property
    def decided(self) -> int:
        """The number of texts that can be learned from: all."""
        return len(self.texts)

    def as_texts(self, refusal: str) -> Self:
        """Itself."""
        del refusal
        return self

    def as_judgements(self, refusal: str) -> NoReturn:
        """Raise InputError: texts have no judgements."""
        raise InputError(refusal)

    def select(self, user_indices: Sequence[int] | np.ndarray) -> "UserTexts":
        """The texts of these users, in this order; `set_aside` stays with the original.

        Raises IndexError for an index outside 0…U-1 and InputError for one given twice.
        """
        chosen_S, start_S, rows = rows_of(user_indices, self.start_U)
        return UserTexts(
            user_ids=tuple(self.user_ids[user] for user in chosen_S),
            start_U=start_S,
            texts=self.texts.chosen(rows),
        )

    @classmethod
    def from_placed_rows(
        cls,
        rows: Iterable[tuple[str, int, Mapping[str, object] | BadRow]],
        *,
        columns: Mapping[str, str] | None = None,
        on_bad_rows: OnBadRows = "refuse",
        source: str = "rows",
        schema: Schema = PAIRS,
    ) -> "UserTexts":
        """Texts from mappings with `user_id` and `text` that come with the place they stand in.

        As `preference.data.judgements.Judgements.from_placed_rows`: rows of a user need not be
        adjacent and keep their order, and `columns` maps the two fields to the mappings' own keys.
        Of `schema` the limits count.

        Raises:
            InputError: a bad row (unless bad rows are left out), or no row left.
        """
        names = column_names(columns or {}, FIELDS, FIELDS)
        if schema.one_user_per_row:
            raise InputError("--one-user-per-row is about judgements: texts name their user_id")
        left_out, notes = LeftOut(on_bad_rows), Counter[str]()
        place_of: dict[str, int] = {}  # of each user
        counts, user_of_row = array("q"), array("q")

        def place(user: str) -> int:
            if user not in place_of:
                place_of[user] = len(place_of)
                counts.append(0)
            return place_of[user]

        def read() -> Iterator[str]:
            for file, line, row in rows:
                try:
                    user, text, note = _parse(with_nested(cells_of(row), names), names)
                    check_length(text, schema)
                    check_count(counts[place_of[user]] if user in place_of else 0, schema)
                except Exception as error:  # a cell may hold anything
                    reason = error if isinstance(error, BadRow) else BadRow("a cell cannot be read")
                    left_out.add(f"{file}:{line}", reason)
                    if (named := readable_user(row, names)) is not None:
                        place(named)
                else:
                    counts[place(user)] += 1
                    user_of_row.append(place_of[user])
                    notes.update(note)
                    yield text

        texts = PackedTexts.pack(read())
        left_out.check(len(texts), f"{source}: no texts: there are no rows")
        return cls(
            user_ids=tuple(place_of),
            start_U=np.cumsum([0, *counts], dtype=np.int64),
            texts=texts.chosen(np.argsort(np.array(user_of_row, np.int64), kind="stable")),
            set_aside=tuple(left_out.reasons),
            left_out=left_out.rows,
            notes=counted(notes),
        )


def _parse(row: Mapping[str, object], names: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """The user and text of a row, and notes about it. BadRow if either is missing, empty or not
    text.
    """
    stated, names = names, with_user(row, names)
    if missing := {field: column for field, column in names.items() if column not in row}:
        raise missing_columns(row, missing)
    user, text = (row[names[field]] for field in FIELDS)
    return (
        user_cell(user, names["user_id"]),
        text_cell(text, names["text"]),
        user_note(stated, names),
    )
