"""Preference judgements, in columns and grouped by user.

Decisions:
- The user is the privacy unit, so rows are grouped by user when they are read and never ungrouped.
  Two spellings of an id that differ only in surrounding blanks are one user: taking one person for
  two would double what they can contribute.
- Responses of a row are in order of preference, the preferred one first. Those that tie keep their
  given order, and y is one over their number: 1/2 for a pair.
- All rows are of one kind: pairs, the best of several, or rankings. A source that mixes them is
  refused, since they need not be worth the same.
- How labels came about travels with them (`LabelChannel`), so that a loss takes its flip rate from
  the data.
- A bad row is refused with its place, or set aside and kept in a list; it is never repaired.

Shape suffixes: R rows (judgements), U users.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from preference.rows import FIELDS, REQUIRED, BadRow, Kind, Row, parse_row

OnBadRows = Literal["refuse", "skip"]


class InputError(ValueError):
    """Input that a user can correct: one line that names the file, row or option and says what to
    do."""


@dataclass(frozen=True)
class LabelChannel:
    """How labels were made from what people preferred.

    `flip_probability` is the chance that a label is not the true one, the largest where it differs
    between judgements: 0 for `clean`, below 1 for `randomized-response` (for pairs below 1/2),
    anything in [0, 1] for `corrupted`.
    """

    kind: Literal["clean", "randomized-response", "corrupted"]
    flip_probability: float = 0.0

    def __post_init__(self) -> None:
        p = self.flip_probability
        allowed = {
            "clean": p == 0,
            "randomized-response": 0 <= p < 1,
            "corrupted": 0 <= p <= 1,
        }
        if self.kind not in allowed:
            raise InputError(f"label channel {self.kind!r} is not one of {', '.join(allowed)}")
        if not allowed[self.kind]:
            raise InputError(f"a {self.kind} label channel cannot have flip probability {p}")


CLEAN = LabelChannel("clean")


@dataclass(frozen=True, eq=False)
class Judgements:
    """Judgements of U users in R rows; the rows of user i are `start_U[i]:start_U[i + 1]`.

    Attributes:
        user_ids: U distinct ids, in order of first appearance in the input.
        start_U: int64, U + 1 row offsets; each user has at least one row.
        prompts: R prompts.
        responses: R tuples of two or more responses in order of preference; `(chosen, rejected)`
            for pairs.
        y_R: float32; 1 where the first response is preferred, 0.5 for a tie of a pair. Among the
            best of several one over the number of those that tie, which come first.
        channel: how the labels were made.
        set_aside: `file:line: reason` of rows that were left out when loading.
        kind: `pairs`, `top-1` (the best of several) or `ranking`.
        flip_R: float64, the probability of each label not to be the true one, where that differs
            between judgements; None where `channel` says it all.
    """

    user_ids: tuple[str, ...]
    start_U: np.ndarray
    prompts: list[str]
    responses: list[tuple[str, ...]]
    y_R: np.ndarray
    channel: LabelChannel = CLEAN
    set_aside: tuple[str, ...] = ()
    kind: Kind = "pairs"
    flip_R: np.ndarray | None = None

    def __post_init__(self) -> None:
        users, rows = len(self.user_ids), len(self.prompts)
        if len(set(self.user_ids)) != users:
            raise InputError("user ids of judgements must be distinct")
        if len(self.responses) != rows or self.y_R.shape != (rows,):
            raise InputError("prompts, responses and labels of judgements differ in number")
        start_U = self.start_U
        if start_U.shape != (users + 1,) or start_U[0] != 0 or start_U[-1] != rows:
            raise InputError(
                f"row offsets of judgements must be {users + 1} numbers from 0 to {rows}"
            )
        if (np.diff(start_U) < 1).any():
            raise InputError("every user of judgements must have at least one row")
        if not ((self.y_R >= 0) & (self.y_R <= 1)).all():
            raise InputError("labels of judgements must lie in [0, 1]")
        shown_R = np.array([len(listed) for listed in self.responses], dtype=np.int64)
        if (shown_R < 2).any() or (self.kind == "pairs" and (shown_R > 2).any()):
            raise InputError("a judgement has two responses, or more where it is not of a pair")
        if self.flip_R is not None and (
            self.channel.kind == "clean"
            or self.flip_R.shape != (rows,)
            or not ((self.flip_R >= 0) & (self.flip_R <= self.channel.flip_probability)).all()
        ):
            raise InputError("flip probabilities do not fit the judgements' channel")
        if self.channel.kind == "randomized-response":
            flip_R = self.channel.flip_probability if self.flip_R is None else self.flip_R
            if (flip_R >= 1.0 - 1.0 / shown_R).any():
                raise InputError("labels behind randomized response must be better than chance")

    def __len__(self) -> int:
        """Number of judgements R."""
        return len(self.prompts)

    @property
    def counts_U(self) -> np.ndarray:
        """int64: how many judgements each user has."""
        return np.diff(self.start_U)

    @property
    def decided(self) -> int:
        """How many judgements are not ties. Zero means that there is nothing to learn from."""
        tied_R = self.y_R == 0.5 if self.kind == "pairs" else self.y_R < 1.0
        return int(np.count_nonzero(~tied_R))

    @property
    def most_responses(self) -> int:
        """K: the most responses of a judgement, at least two."""
        return max((len(listed) for listed in self.responses), default=2)

    def select(self, user_indices: Sequence[int] | np.ndarray) -> "Judgements":
        """The judgements of these users, in this order, with the same channel.

        `set_aside` belongs to the loading as a whole and stays with the original. Raises IndexError
        for an index outside 0…U-1 and InputError for one given twice.
        """
        chosen_S = np.asarray(user_indices, dtype=np.int64).reshape(-1)
        users = len(self.user_ids)
        if ((chosen_S < 0) | (chosen_S >= users)).any():
            raise IndexError(f"user indices must lie in 0…{users - 1}")
        counts_S = self.counts_U[chosen_S]
        start_S = np.concatenate(([0], np.cumsum(counts_S)))
        rows = np.arange(start_S[-1]) + np.repeat(self.start_U[chosen_S] - start_S[:-1], counts_S)
        return Judgements(
            user_ids=tuple(self.user_ids[i] for i in chosen_S),
            start_U=start_S,
            prompts=[self.prompts[row] for row in rows],
            responses=[self.responses[row] for row in rows],
            y_R=self.y_R[rows],
            channel=self.channel,
            kind=self.kind,
            flip_R=None if self.flip_R is None else self.flip_R[rows],
        )

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, object]],
        *,
        columns: Mapping[str, str] | None = None,
        on_bad_rows: OnBadRows = "refuse",
        name: str = "row",
    ) -> "Judgements":
        """Judgements from mappings with `user_id`, `prompt`, and what was preferred.

        That is `chosen`, `rejected` and perhaps `tie`; or `responses` with `best` (a place counted
        from 0, or a list of those that tie) or with `ranking` (the rank of each, 1 for the best).
        Labels that passed through randomized response say so by their `flip_probability`.

        Rows of a user need not be adjacent; inside a user they keep their order. `columns` maps
        these field names to the mappings' own keys; other keys are ignored. Errors call the n-th
        row `name:n`.

        Raises:
            InputError: a bad row (with `on_bad_rows="skip"` it is set aside instead), rows of more
                than one kind, or no row left.
        """
        placed = ((name, number, row) for number, row in enumerate(rows, start=1))
        return cls.from_placed_rows(placed, columns=columns, on_bad_rows=on_bad_rows, source=name)

    @classmethod
    def from_placed_rows(
        cls,
        rows: Iterable[tuple[str, int, Mapping[str, object] | BadRow]],
        *,
        columns: Mapping[str, str] | None = None,
        on_bad_rows: OnBadRows = "refuse",
        source: str = "rows",
    ) -> "Judgements":
        """Like `from_rows`, for rows that come with the file and line they stand in.

        A reader that could not parse a row hands over a `BadRow` in its place. `source` names the
        whole where it turns out to be empty.
        """
        if on_bad_rows not in ("refuse", "skip"):
            raise InputError(f"on_bad_rows must be refuse or skip, not {on_bad_rows!r}")
        names = _column_names(columns)
        user_index: dict[str, int] = {}
        texts: dict[str, str] = {}  # one object per distinct text: prompts recur
        user_of_row: list[int] = []
        found: list[Row] = []
        set_aside: list[str] = []
        first_place = ""
        for file, line, row in rows:
            try:
                judged = parse_row(row, names)
            except BadRow as reason:
                message = f"{file}:{line}: {reason}"
                if on_bad_rows == "refuse":
                    raise InputError(message) from None
                set_aside.append(message)
                continue
            first_place = first_place or f"{file}:{line}"
            if found:
                _check_same_kind(f"{file}:{line}", judged, first_place, found[0])
            user_of_row.append(user_index.setdefault(judged.user_id, len(user_index)))
            found.append(_with_shared_texts(judged, texts))
        if not found:
            if set_aside:
                raise InputError(f"all {len(set_aside)} rows are bad, the first: {set_aside[0]}")
            raise InputError(f"{source}: no judgements: there are no rows")
        order = np.argsort(np.asarray(user_of_row), kind="stable")
        counts_U = np.bincount(user_of_row, minlength=len(user_index))
        ordered = [found[row] for row in order]
        flip_R = None
        if found[0].flip_probability is not None:
            flip_R = np.array([judged.flip_probability for judged in ordered], dtype=np.float64)
        return cls(
            user_ids=tuple(user_index),
            start_U=np.concatenate(([0], np.cumsum(counts_U))).astype(np.int64),
            prompts=[judged.prompt for judged in ordered],
            responses=[judged.responses for judged in ordered],
            y_R=np.array([judged.y for judged in ordered], dtype=np.float32),
            channel=CLEAN
            if flip_R is None
            else LabelChannel("randomized-response", float(flip_R.max())),
            set_aside=tuple(set_aside),
            kind=found[0].kind,
            flip_R=flip_R,
        )


def _with_shared_texts(judged: Row, texts: dict[str, str]) -> Row:
    """With one object for each distinct text, of all rows so far."""
    return replace(
        judged,
        user_id="",
        prompt=texts.setdefault(judged.prompt, judged.prompt),
        responses=tuple(texts.setdefault(response, response) for response in judged.responses),
    )


def _check_same_kind(place: str, judged: Row, first_place: str, first: Row) -> None:
    """InputError unless a row is of the kind that the first one set, flip probability and all.

    Setting such rows aside would leave the choice of what to learn from to the first row.
    """
    if judged.kind != first.kind:
        raise InputError(
            f"{place}: a row of kind {judged.kind}, and that at {first_place} is of kind "
            f"{first.kind}; keep pairs, the best of several and rankings apart"
        )
    if (judged.flip_probability is None) != (first.flip_probability is None):
        raise InputError(
            f"{place}: only one of this row and that at {first_place} has a flip probability; "
            "write 0 where a label is the true one"
        )


def _column_names(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Field → column; `tie` is there only if it was asked for, and then the column must exist."""
    columns = dict(columns or {})
    for field, column in columns.items():
        if field not in FIELDS:
            raise InputError(
                f"--columns: {field!r} is not a field; the fields are {', '.join(FIELDS)}"
            )
        if not isinstance(column, str) or not column:
            raise InputError(f"--columns: no column is named for {field!r}")
    names = {field: field for field in REQUIRED} | columns
    if len(set(names.values())) < len(names):
        shown = ",".join(f"{field}={column}" for field, column in names.items())
        raise InputError(f"--columns: two fields are read from one column ({shown})")
    return names
