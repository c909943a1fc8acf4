"""Preference judgements, in columns and grouped by user.

Decisions:
- The user is the privacy unit, so rows are grouped by user when they are read and never ungrouped.
  Two spellings of an id that look the same are one user (surrounding blanks, accents written in
  two ways) or refused (`preference.data.user_ids`): taking one person for two would double what
  they can contribute.
- Responses of a row are in order of preference, the preferred one first. Those that tie keep their
  given order, and y is one over their number: 1/2 for a pair.
- The kind of all rows, and the most responses of one, are declared (`preference.data.schema`),
  never taken from them: one row would decide the arithmetic of all others.
- How likely a label is false travels with it (`flip_R`): a loss takes its flip rate from the data.
- Records that their own system took out do not count, whether bad rows are refused or not; their
  number is reported. Its user stays.
- A bad row is refused with its place, or left out; it is never repaired. If it is left out, its
  user stays, with their other rows: one user's bad rows do not affect another's.

Shape suffixes: R rows (judgements), U users.
"""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, get_args

import numpy as np

from murmuration.preference.choices import Kind
from murmuration.preference.data.errors import BadRow, InputError, RowsError
from murmuration.preference.data.formats.marks import TakenOut
from murmuration.preference.data.ratings import Paired, pair_up
from murmuration.preference.data.rows import NEITHER, Row, RowReader, counted
from murmuration.preference.data.schema import PAIRS, Schema

#: What is done with a bad row. `isolate` is for nodes: as `skip`, but nothing that users have or
#: lack is an error, and no file is read in which one user's bytes could reach another's rows.
OnBadRows = Literal["refuse", "skip", "isolate"]

#: So many reasons are kept; further rows are only counted.
_MOST_TOLD = 100
_NO_PAIRS = (
    "no user rated one prompt's responses up and down, so there is no pair to learn from: "
    "--kind thumbs --model thumbs learns from single ratings"
)


@dataclass(frozen=True, eq=False)
class Judgements:
    """Judgements of U users in R rows; the rows of user i are `start_U[i]:start_U[i + 1]`.

    Attributes:
        user_ids: U distinct ids, in order of first appearance in the input.
        start_U: int64, U + 1 row offsets; a user may be without rows.
        prompts: R prompts.
        responses: R tuples of two or more responses in order of preference; `(chosen, rejected)`
            for pairs. Of thumbs the only one.
        y_R: float32; 1 where the first response is preferred, 0.5 for a tie of a pair. Among the
            best of several one over the number of those that tie, which come first. Of thumbs 1
            where the response was liked, else 0.
        set_aside: `file:line: reason` of the first rows that were left out when loading.
        left_out: the number of rows left out.
        kind: `pairs`, `top-1` (the best of several), `ranking` or `thumbs`, as declared.
        most_responses: K, as declared: no judgement has more.
        flip_R: float64, the probability of each label not to be the true one, behind randomized
            response; None: they are as they were given.
        notes: on how the rows were read, if their columns have other names.
        one_user_per_row: whether users are rows, as declared, and not people.
        groups_R: of rankings, the number of responses that share each place, the best first; empty
            for one without ties. None: there are no ties.
        thumbs: the number of single ratings of which pairs were made (`preference.data.ratings`).
        thumbs_alone: the number of these in no pair.
        files: names of the files that rows stand in, in their order, where a source has several.
        file_R: int32, in which of these each row stands; None where there is one alone.
        line_R: int64, in which line of its file each row stands; None of pairs made of thumbs, and
            of rows that no source has.
    """

    user_ids: tuple[str, ...]
    start_U: np.ndarray
    prompts: list[str]
    responses: list[tuple[str, ...]]
    y_R: np.ndarray
    _: KW_ONLY
    set_aside: tuple[str, ...] = ()
    left_out: int = 0
    kind: Kind = "pairs"
    most_responses: int = 2
    flip_R: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    one_user_per_row: bool = False
    groups_R: Sequence[tuple[int, ...]] | None = None
    thumbs: int = 0
    thumbs_alone: int = 0
    files: tuple[str, ...] = ()
    file_R: np.ndarray | None = None
    line_R: np.ndarray | None = None

    def __post_init__(self) -> None:
        rows = len(self.prompts)
        check_grouped(self.user_ids, self.start_U, rows, "judgements")
        if len(self.responses) != rows or self.y_R.shape != (rows,):
            raise InputError("prompts, responses and labels of judgements differ in number")
        if not ((self.y_R >= 0) & (self.y_R <= 1)).all():
            raise InputError("labels of judgements must lie in [0, 1]")
        shown_R = np.array([len(listed) for listed in self.responses], dtype=np.int64)
        if self.kind == "pairs" and self.most_responses != 2:
            raise InputError("a judgement of a pair has two responses")
        thumbs = self.kind == "thumbs"
        if thumbs and ((shown_R != 1).any() or not np.isin(self.y_R, (0.0, 1.0)).all()):
            raise InputError("thumbs are about one response each, and up or down")
        if ((shown_R < 2) | (shown_R > self.most_responses)).any() and not thumbs:
            raise InputError(
                f"a judgement has at least two responses, and at most {self.most_responses} are "
                "declared"
            )
        if self.groups_R is not None:
            tied = zip(self.groups_R, self.responses, strict=True)
            if self.kind != "ranking" or any(sum(g) not in (0, len(shown)) for g, shown in tied):
                raise InputError("ties do not fit the rankings that they are of")
        if self.flip_R is not None:
            if self.flip_R.shape != (rows,) or not (self.flip_R >= 0).all():
                raise InputError("flip probabilities do not fit the judgements")
            if (self.flip_R >= 1.0 - 1.0 / shown_R).any():
                raise InputError("labels behind randomized response must be better than chance")

    def __repr__(self) -> str:
        """The number of judgements and users, without any text or id."""
        return f"Judgements({len(self)} {self.kind} of {len(self.user_ids)} users)"

    def __len__(self) -> int:
        """Number of judgements R."""
        return len(self.prompts)

    @property
    def counts_U(self) -> np.ndarray:
        """The number of judgements of each user, int64."""
        return np.diff(self.start_U)

    @property
    def decided(self) -> int:
        """The number of judgements that are not ties. If zero, there is nothing to learn from.

        Of thumbs, only those of users who gave both kinds count.
        """
        if self.kind == "thumbs":
            sums_U = np.diff(np.concatenate(([0.0], np.cumsum(self.y_R)))[self.start_U])
            return int(self.counts_U[(sums_U > 0) & (sums_U < self.counts_U)].sum())
        tied_R = self.y_R == 0.5 if self.kind == "pairs" else self.y_R < 1.0
        return int(np.count_nonzero(~tied_R))

    @property
    def randomized(self) -> bool:
        """True if labels went through randomized response."""
        return self.flip_R is not None

    @property
    def declared(self) -> tuple[Kind, int]:
        """Their kind, and the most responses of one."""
        return self.kind, self.most_responses

    def as_judgements(self, refusal: str) -> Self:
        """Itself."""
        del refusal
        return self

    def as_texts(self, refusal: str) -> NoReturn:
        """Raise InputError: they are no user's own texts."""
        raise InputError(refusal)

    def place(self, row: int) -> str:
        """The place of a row as `file:line`; without lines as its number, from 1."""
        if self.line_R is None:
            return f"judgement {row + 1}"
        file = self.files[0 if self.file_R is None else self.file_R[row]]
        return f"{file}:{self.line_R[row]}"

    def select(self, user_indices: Sequence[int] | np.ndarray) -> "Judgements":
        """The judgements of these users, in this order.

        `set_aside` belongs to the loading as a whole and stays with the original. Raises IndexError
        for an index outside 0…U-1 and InputError for one given twice.
        """
        chosen_S, start_S, rows = rows_of(user_indices, self.start_U)
        ids = tuple(self.user_ids[i] for i in chosen_S)
        apart: dict[str, Any] = {"set_aside": (), "left_out": 0, "notes": ()}
        return self._with_rows(rows, start_U=start_S, user_ids=ids, **apart)

    def keep(self, kept_R: np.ndarray) -> "Judgements":
        """Some of the rows, (R,) bool, of all users: who has none left stays."""
        rows = np.flatnonzero(kept_R)
        before_R = np.concatenate(([0], np.cumsum(kept_R, dtype=np.int64)))
        return self._with_rows(rows, start_U=before_R[self.start_U])

    def _with_rows(self, rows: np.ndarray, **changes: Any) -> "Judgements":
        return replace(
            self,
            prompts=[self.prompts[row] for row in rows],
            responses=[self.responses[row] for row in rows],
            y_R=self.y_R[rows],
            flip_R=None if self.flip_R is None else self.flip_R[rows],
            groups_R=None if self.groups_R is None else [self.groups_R[row] for row in rows],
            file_R=None if self.file_R is None else self.file_R[rows],
            line_R=None if self.line_R is None else self.line_R[rows],
            **changes,
        )

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, object]],
        *,
        columns: Mapping[str, str] | None = None,
        on_bad_rows: OnBadRows = "refuse",
        name: str = "row",
        schema: Schema = PAIRS,
    ) -> "Judgements":
        """Judgements from mappings with `user_id`, `prompt`, and what was preferred.

        That is `chosen`, `rejected` and perhaps `tie`; or `responses` with `best` (a place counted
        from 0, or a list of those that tie) or with `ranking` (the rank of each, 1 for the best,
        the same for those that tie); or `completion` and `label`, of which pairs are made.
        Labels that passed through randomized response say so by their `flip_probability`. Which of
        these they are is what `schema` declares.

        Rows of a user need not be adjacent; inside a user they keep their order. `columns` maps
        these field names to the mappings' own keys; other keys are ignored. Errors call the n-th
        row `name:n`.

        Raises:
            InputError: a row that is bad or not as declared (unless bad rows are left out), or no
                row left.
        """
        placed = ((name, number, row) for number, row in enumerate(rows, start=1))
        return cls.from_placed_rows(
            placed, columns=columns, on_bad_rows=on_bad_rows, source=name, schema=schema
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
    ) -> "Judgements":
        """Like `from_rows`, for rows that come with the file and line they stand in.

        A reader that could not parse a row hands over a `BadRow` in its place. `source` names the
        whole where it turns out to be empty.
        """
        left_out, notes = LeftOut(on_bad_rows), Counter[str]()
        reader = RowReader(columns, schema, at_node=on_bad_rows == "isolate")
        result: dict[str, list[Row]] = {}
        # Of each user's rows, in which of the files they stand, and in which line.
        files_of: dict[str, array[int]] = defaultdict(lambda: array("i"))
        lines_of: dict[str, array[int]] = defaultdict(lambda: array("q"))
        files = dict[str, int]()
        for file, line, row in rows:
            place = files.setdefault(file, len(files))
            read = reader.read(row)
            if isinstance(read, BadRow):
                if isinstance(read, TakenOut):
                    notes[str(read)] += 1
                else:
                    left_out.add(f"{file}:{line}", read)
                if read.user_id is not None:
                    result.setdefault(read.user_id, [])
                continue
            user, judged = read
            mine = result.setdefault(user, [])
            if judged.kind == "thumbs" and judged.y == 0.5:
                notes[NEITHER] += 1
            else:
                mine.append(judged)
                files_of[user].append(place)
                lines_of[user].append(line)
                notes.update(judged.notes)
        rows_read = sum(map(len, result.values()))
        nothing = "; ".join(counted(notes)) or "there are no rows"
        left_out.check(rows_read, f"{source}: no judgements: {nothing}")
        paired = Paired()
        if schema.kind == "pairs":
            result, paired = pair_up(result, schema.max_judgements)
        ordered = [judged for mine in result.values() for judged in mine]
        if rows_read and not ordered:
            raise RowsError(f"{source}: {_NO_PAIRS}")
        places = [judged.groups for judged in ordered]
        flip_R, file_R, line_R = None, None, None
        if not paired.thumbs:
            line_R = np.array([line for user in result for line in lines_of[user]], dtype=np.int64)
        if len(files) > 1 and not paired.thumbs:
            file_R = np.array([file for user in result for file in files_of[user]], dtype=np.int32)
        if schema.labels == "randomized":
            flip_R = np.array([judged.flip_probability for judged in ordered], dtype=np.float64)
        return cls(
            user_ids=tuple(result),
            start_U=np.cumsum([0, *map(len, result.values())], dtype=np.int64),
            prompts=[judged.prompt for judged in ordered],
            responses=[judged.responses for judged in ordered],
            y_R=np.array([judged.y for judged in ordered], dtype=np.float32),
            set_aside=tuple(left_out.reasons),
            left_out=left_out.rows,
            kind=schema.kind,
            most_responses=schema.responses,
            flip_R=flip_R,
            notes=(*counted(notes), *paired.told()),
            one_user_per_row=schema.one_user_per_row,
            groups_R=places if any(places) else None,
            thumbs=paired.thumbs,
            thumbs_alone=paired.alone,
            files=tuple(Path(file).name for file in files),
            file_R=file_R,
            line_R=line_R,
        )


def check_grouped(user_ids: Sequence[str], start_U: np.ndarray, rows: int, what: str) -> None:
    """Raise InputError unless ids are distinct and offsets (U + 1,) ascend from 0 to ``rows``."""
    users = len(user_ids)
    if len(set(user_ids)) != users:
        raise InputError(f"user ids of {what} must be distinct")
    if start_U.shape != (users + 1,) or start_U[0] != 0 or start_U[-1] != rows:
        raise InputError(f"row offsets of {what} must be {users + 1} numbers from 0 to {rows}")
    if (np.diff(start_U) < 0).any():
        raise InputError(f"row offsets of {what} must not descend")


def rows_of(
    user_indices: Sequence[int] | np.ndarray, start_U: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users as (S,) int64, offsets (S + 1,) of their rows, and which rows of all these are.

    IndexError for an index outside 0…U-1.
    """
    chosen_S = np.asarray(user_indices, dtype=np.int64).reshape(-1)
    users = len(start_U) - 1
    if ((chosen_S < 0) | (chosen_S >= users)).any():
        raise IndexError(f"user indices must lie in 0…{users - 1}")
    counts_S = start_U[chosen_S + 1] - start_U[chosen_S]
    start_S = np.concatenate(([0], np.cumsum(counts_S)))
    rows = np.arange(start_S[-1]) + np.repeat(start_U[chosen_S] - start_S[:-1], counts_S)
    return chosen_S, start_S, rows


class LeftOut:
    """Rows that cannot be used: refused, or left out and counted.

    ``rows`` is their number, ``reasons`` has those of the first ones with their places.
    """

    def __init__(self, on_bad_rows: OnBadRows) -> None:
        if on_bad_rows not in get_args(OnBadRows):
            raise InputError(f"on_bad_rows must be refuse or skip, not {on_bad_rows!r}")
        self._on_bad_rows = on_bad_rows
        self.reasons: list[str] = []
        self.rows = 0

    def add(self, place: str, reason: BadRow) -> None:
        """Add a row; InputError if bad rows are refused."""
        # A reason may quote half a character, which no log can hold.
        message = f"{place}: {reason}".encode("utf-8", "backslashreplace").decode("utf-8")
        if self._on_bad_rows == "refuse":
            raise RowsError(message) from None
        self.rows += 1
        if len(self.reasons) < _MOST_TOLD:
            self.reasons.append(message)

    def rows_of_texts(self, reasons_T: Sequence[str], text_JK: np.ndarray) -> np.ndarray:
        """Take the judgements on a text of which there is a reason; which are kept, (J,) bool.

        ``text_JK`` says which texts a judgement is on; −1 is the last, which is none.
        """
        bad_T = np.array([bool(reason) for reason in reasons_T])
        bad_J = np.asarray(bad_T[text_JK].any(axis=1))
        for row in np.flatnonzero(bad_J).tolist():
            reason = next(reasons_T[text] for text in text_JK[row] if bad_T[text])
            self.add(f"row {row + 1}", BadRow(reason))
        return ~bad_J

    def add_all(self, kept_R: np.ndarray, reason: str) -> None:
        """Add those of some rows that are not kept, (R,) bool, for one reason."""
        for row in np.flatnonzero(~kept_R).tolist():
            self.add(f"row {row + 1}", BadRow(reason))

    def check(self, good: int, nothing: str) -> None:
        """Raise InputError if no row is ``good``, except at a node."""
        if good or self._on_bad_rows == "isolate":
            return
        if self.rows:
            raise RowsError(f"all {self.rows} rows are bad, the first: {self.reasons[0]}")
        raise RowsError(nothing)
