"""The declaration that suits a source of judgements, found by looking at all of its rows.

A run reads each row by what is declared and by that row alone. So nothing that promises an epsilon
may import this file (a test walks their imports): what it finds is advice, exact and for the
operator alone, to be checked and typed.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from murmuration.preference.data.cells import is_empty, is_number, label_text, list_cell, shortened
from murmuration.preference.data.columns import (
    PROMPT_COLUMNS,
    REQUIRED,
    USER_COLUMNS,
    WINNERS,
    Layout,
    layout_of,
    parse_columns,
    with_nested,
    write_columns,
)
from murmuration.preference.data.conversations import exchange, is_plain_text, shared_words
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.reading import Formatted
from murmuration.preference.data.formats.registry import recognised_format
from murmuration.preference.data.labels import TIES, named_side
from murmuration.preference.data.loading import placed_rows, readable_format
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.sources import Placed
from murmuration.preference.data.user_ids import user_cell

Cells = Mapping[str, object]

#: What people call the columns of fields, in small letters, where they do not call them as we do.
_OTHER_NAMES = {
    "user_id": (*(column.lower() for column in USER_COLUMNS), "email", "e_mail", "user_name",
                "username", "author", "who", "uid", "reviewer", "respondent", "respondent_id",
                "person", "person_id", "session_id", "session"),
    "prompt": (*PROMPT_COLUMNS, "topic", "task"),
    "chosen": ("better", "preferred", "accepted", "chosen_response", "preferred_response"),
    "rejected": ("worse", "dispreferred", "declined", "rejected_response", "other_response"),
    "completion": ("response", "answer", "output", "reply", "statement", "text", "comment"),
    "label": ("rating", "vote", "score", "stars", "thumb", "thumbs", "feedback", "liked", "grade"),
    "winner": (*WINNERS, "better", "label", "vote", "result"),
}  # fmt: skip
_ENDS = (("_a", "_b"), ("_0", "_1"), ("_1", "_2"), ("_left", "_right"), ("_first", "_second"))
_SHOWN = ("response", "answer", "output", "completion", "text", "option", "argument", "statement")

#: Of all rows: a label that fewer have is odd, and a lack that more have is no accident.
_FEW, _MANY = 0.02, 0.05
_HEADER = 100  # rows whose columns are looked at
_MOST_STEPS = 20  # of a scale, unless it is a slider
_LARGEST = 1e9  # of a scale
_SLIDERS = ((0.0, 1.0), (-1.0, 1.0), (0.0, 10.0), (1.0, 10.0), (0.0, 100.0), (1.0, 100.0))
_NEITHER = TIES | {"neutral", "unsure", "pass", "skip"}


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A declaration of a source's rows: as stated, and as found where nothing was.

    Attributes:
        header: names of the columns in the first rows.
        columns: those with other names, as `--columns` is written.
        declared: fields of ``Schema``, by name; without a kind where none is stated.
        kinds: the number of rows that can be read as each kind, the most first.
        most_responses: of a row with a list of them.
        reasons: for what is declared, and what to check, a line each.
        odd_labels: kind → label → number of rows, of labels that few rows have beside others.
        raw: the rows, as they are.
        rows: the rows, in our form.
        layouts: of the columns of each row; None if not clear.
    """

    header: Sequence[str]
    columns: str
    declared: Mapping[str, object]
    kinds: Mapping[str, int]
    most_responses: int
    reasons: tuple[str, ...]
    odd_labels: Mapping[str, Mapping[str, int]]
    raw: Sequence[Cells]
    rows: Sequence[Cells]
    layouts: Sequence[Layout | None]

    def schema(self, kind: str) -> Schema:
        """The schema for this kind."""
        several = kind in ("top-1", "ranking")
        usual = {"responses": max(2, self.most_responses)} if several else {}
        return Schema(**{**usual, **self.declared, "kind": kind})  # type: ignore[arg-type]


def find_declaration(source: str, columns: str, stated: Mapping[str, object]) -> Declaration:
    """Find the declaration that suits a source.

    Args:
        source: as of ``load_judgements``.
        columns: as `--columns` is written; others are looked for if it names at most the user's.
        stated: fields of ``Schema``, which are not looked for.

    Raises:
        InputError: the source cannot be read, or is not of the stated format.
    """
    raw = [*placed_rows(source, {})]
    first = islice(_rows(raw), _HEADER)
    header = list(dict.fromkeys(str(name) for row in first for name in row))
    names, declared, reasons = parse_columns(columns), dict(stated), list[str]()
    if "format" not in declared and not {*names} - {"user_id"}:
        declared["format"] = recognised_format(header)
    alone = bool(declared.get("one_user_per_row"))
    form = readable_format(source, str(declared["format"])) if declared.get("format") else None
    placed = raw
    if form is not None:
        placed = [*Formatted(form, source, names.get("user_id", ""), alone=alone).rows(raw)]
        names = {}
    else:
        probable = _names_of(header, names, alone)
        if probable != names:
            more = {each: column for each, column in probable.items() if each not in names}
            reasons.append(f"columns are told by their names: check {write_columns(more)}")
        columns, names = write_columns(probable), probable
    rows = [with_nested(row, names) for row in _rows(placed)]
    taken = {each: each for each in REQUIRED if not (alone and each == "user_id")} | names
    layouts = [_layout(row, taken) for row in rows]
    tally = _Tally()
    for row, layout in zip(rows, layouts, strict=True):
        if layout is not None and not {*layout.missing} - {"user_id", "prompt"}:
            tally.add(row, layout)
    if scored := tally.scored:
        kind = "pairs" if {*scored} == {2} else "top-1"
        tally.kinds[kind] += scored.total()
        if "kind" not in declared:
            reasons.append("responses have scores: --kind ranking learns from all of them")
    if form is not None and form.scale:
        declared.setdefault("scale", "")
    for name, value, why in tally.suggestions():
        if name not in declared and not (name == "scale" and "positive_from" in declared):
            declared[name] = value
            reasons.append(why)
    return Declaration(
        header=header,
        columns=columns,
        declared=declared,
        kinds=dict(tally.kinds.most_common()),
        most_responses=tally.most_responses,
        reasons=tuple(reasons),
        odd_labels={kind: _odd(labels) for kind, labels in tally.labels.items()},
        raw=_rows(raw),
        rows=rows,
        layouts=layouts,
    )


def _rows(placed: Sequence[Placed]) -> list[Cells]:
    return [row for _, _, row in placed if isinstance(row, Mapping)]


def _layout(row: Cells, names: Mapping[str, str]) -> Layout | None:
    try:
        return layout_of(row, names)
    except BadRow:
        return None


def _names_of(header: Sequence[str], stated: Mapping[str, str], alone: bool) -> dict[str, str]:
    """The columns by field: those stated, and likely ones for other fields."""
    columns = {_plain(each): each for each in header if each.strip() and not {*each} & {*",="}}

    def meant(field_: str) -> dict[str, str]:
        names = (field_, *_OTHER_NAMES[field_])
        there = [columns[name] for name in names if name in columns]
        return {field_: there[0]} if there and field_ not in header else {}

    names = dict(stated)
    usual = [column for column in header if column in USER_COLUMNS]
    if not alone and "user_id" not in {*names, *header} and len(usual) != 1:
        names |= meant("user_id")
    if {*stated} - {"user_id"}:
        return names
    required = {each: each for each in REQUIRED if not (alone and each == "user_id")}
    layout = _layout(dict.fromkeys(header), required | names)
    if layout is None or {*layout.missing} & {"chosen", "rejected"}:
        pair, rating = meant("chosen") | meant("rejected"), meant("completion") | meant("label")
        sides = _sides(columns) | meant("winner")
        owned = {*header, *pair}
        if {"chosen", "rejected"} <= owned:
            names |= pair
        elif len(sides) == 3 and len({*sides.values()}) == 3:
            names |= sides
        elif len(rating) == 2 or (rating and {"completion", "label"} <= {*header, *rating}):
            names |= rating
        layout = _layout(dict.fromkeys(header), required | names)
    if layout is not None and (layout.maybe_prompted or layout.prompt is None or layout.missing):
        used = {column for column in layout.columns.values() if column in header}
        names |= {each: name for each, name in meant("prompt").items() if name not in used}
    return names


def _plain(column: str) -> str:
    """A column's name in the common form: lower case, with words joined by `_`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.strip())
    return re.sub(r"[\s_-]+", "_", words).lower()


def _sides(columns: Mapping[str, str]) -> dict[str, str]:
    """The columns of two responses whose names differ only in their ends."""
    for first, second in _ENDS:
        stems = [
            name.removesuffix(first)
            for name in columns
            if name.endswith(first) and name.removesuffix(first) + second in columns
        ]
        best = [stem for stem in stems if stem in _SHOWN] or stems
        if len(best) == 1:
            pair = columns[best[0] + first], columns[best[0] + second]
            return dict(zip(("response_a", "response_b"), pair, strict=True))
    return {}


@dataclass(kw_only=True)
class _Tally:
    """Counts of what rows hold, from which a declaration follows."""

    kinds: Counter[str] = field(default_factory=Counter)
    scored: Counter[int] = field(default_factory=Counter)
    most_responses: int = 0
    labels: dict[str, Counter[str]] = field(default_factory=dict)
    unread_sides: int = 0
    first_side: str = ""
    prompted: int = 0
    shared: int = 0
    bare_pairs: int = 0
    bare_ratings: int = 0
    flipped: int = 0
    users: Counter[str] = field(default_factory=Counter)

    def add(self, row: Cells, layout: Layout) -> None:
        """Count a row, whose columns mean what ``layout`` says."""
        columns = layout.columns
        with suppress(BadRow):
            self.users[user_cell(row.get(columns.get("user_id", "")), "user_id")] += 1
        self.flipped += not is_empty(row.get(columns["flip_probability"]))
        if layout.form == "list":
            self._add_list(row, columns)
            return
        kind = "thumbs" if layout.form == "rating" else "pairs"
        self.kinds[kind] += 1
        self._add_prompt(row, layout)
        if layout.form == "pair":
            return
        cell = row.get(columns["label" if kind == "thumbs" else "winner"])
        if label := label_text(cell):
            self.labels.setdefault(kind, Counter())[label] += 1
        if layout.form == "sides":
            pair = columns["response_a"], columns["response_b"]
            self.first_side = pair[0]
            try:
                named_side(cell, columns["winner"], pair)
            except BadRow:
                self.unread_sides += is_number(label)

    def _add_list(self, row: Cells, columns: Mapping[str, str]) -> None:
        shown = len(list_cell(row.get(columns["responses"])) or ())
        says = [f for f in ("best", "ranking", "scores") if not is_empty(row.get(columns[f]))]
        self.most_responses = max(self.most_responses, shown)
        if says[:1] == ["best"]:
            self.kinds["top-1"] += 1
        elif says[:1] == ["ranking"]:
            self.kinds["ranking"] += 1
        elif says:
            self.scored[shown] += 1

    def _add_prompt(self, row: Cells, layout: Layout) -> None:
        if layout.prompt is not None and not is_empty(row.get(layout.prompt)):
            self.prompted += 1
        elif layout.form == "rating":
            with suppress(BadRow):
                self.bare_ratings += is_plain_text(row.get(layout.columns["completion"]), "")
        else:
            pair = layout.columns["chosen"], layout.columns["rejected"]
            try:
                conversation, first, second = exchange(row, pair, None)
            except BadRow:
                return
            if conversation or first == second:
                return
            try:
                shared_words(first, second, pair)
                self.shared += 1
            except BadRow:
                self.bare_pairs += 1

    def suggestions(self) -> list[tuple[str, object, str]]:
        """Fields of ``Schema`` that rows need, each with its value and a reason."""
        result: list[tuple[str, object, str]] = []
        for kind, _ in self.kinds.most_common():
            if kind in self.labels:
                result += self._scale(kind, self.labels[kind])
                break
        bare = self.bare_ratings + self.bare_pairs
        if not self.prompted and bare > _MANY * (bare + self.shared):
            why = "no row has a prompt (where a column holds it: --columns prompt=NAME)"
            if self.bare_pairs:
                both = self.bare_pairs + self.shared
                why += (
                    f", and of {self.bare_pairs:,} of {both:,} pairs the texts share no beginning"
                )
            result.append(("no_prompt", True, f"{why}: --no-prompt"))
        most = max(self.users.values(), default=0)
        if most > Schema.max_judgements:
            limit = next(
                step * 10**power
                for power in range(3, 12)
                for step in (1, 2, 5)
                if step * 10**power >= most
            )
            why = f"one user has {most:,} rows: --max-judgements {limit} reads them all"
            result.append(("max_judgements", limit, why))
        if 2 * self.flipped > self.kinds.total() > 0:
            why = f"{self.flipped:,} rows have a flip_probability: --labels randomized"
            result.append(("labels", "randomized", why))
        return result

    def _scale(self, kind: str, labels: Counter[str]) -> list[tuple[str, object, str]]:
        """The scale of the labels; empty if they are words, or name a side."""
        odd = _odd(labels)
        numbers = [float(each) for each in labels if is_number(each) and each not in odd]
        numbers = sorted(number for number in numbers if abs(number) < _LARGEST)
        if not numbers or (kind == "pairs" and not self.unread_sides):
            return []
        low, high = _range(numbers, symmetric=kind == "pairs")
        shown = shortened(", ".join(f"{number:g}" for number in numbers), 60)
        if len(numbers) > _MOST_STEPS:
            shown = f"{len(numbers)} numbers from {numbers[0]:g} to {numbers[-1]:g}"
        scale = f"{low:.12g}..{high:.12g}"
        if "e" in scale:  # so near to 0 that it is written with an exponent
            return []
        if kind == "pairs" and low < high:
            why = (
                f"winners are {shown}: --scale {scale}, if what lies below its middle says that "
                f"{self.first_side!r} won; --scale {high:g}..{low:g} if it is the other way round"
            )
            return [("scale", scale, why)]
        if low == high and kind == "thumbs":
            why = f"all labels are {shown}: --positive-from {low:g}, if that is a thumb up"
            return [("positive_from", f"{low:.12g}", why)]
        if low == high:
            return []
        least = next(number for number in (*numbers, high) if 2 * number > low + high)
        more = "" if len(numbers) < 3 else f"; --positive-from {least:g}, or more, if only that is"
        why = (
            f"labels are {shown}: --scale {scale}, if that is the whole scale and what lies above "
            f"its middle is up; --scale {high:g}..{low:g} if {low:g} is the best{more}"
        )
        return [("scale", scale, why)]


def _range(numbers: Sequence[float], symmetric: bool) -> tuple[float, float]:
    """The lowest and the highest label of the scale that sorted numbers are probably on."""
    low, high = numbers[0], numbers[-1]
    if low < 0.0 < high and symmetric:
        return -max(-low, high), max(-low, high)
    if {*numbers} <= {0.0, 1.0}:
        return 0.0, 1.0
    if {*numbers} <= {-1.0, 0.0, 1.0}:
        return -1.0, 1.0
    if len(numbers) > _MOST_STEPS:
        fitting = [each for each in _SLIDERS if each[0] <= low and high <= each[1]]
        return next(iter(fitting), (low, high))
    return low, high


def _odd(labels: Counter[str]) -> dict[str, int]:
    """Rare labels beside a few frequent ones: words unlike the others, and numbers far from the
    others.
    """
    most = _FEW * labels.total()
    common = [label for label, rows in labels.items() if rows > most]
    numbers = [float(label) for label in common if is_number(label)]
    if not 2 <= len(common) <= len(labels) <= _MOST_STEPS:
        return {}
    result = {}
    for label, rows in labels.items():
        if label in common or label in _NEITHER:
            continue
        if is_number(label) and numbers:
            low, high = min(numbers), max(numbers)
            away = max(low - float(label), float(label) - high)
            if away <= (high - low) / 2.0 and not (len(numbers) == 2 and away >= 1.0):
                continue
        result[label] = rows
    return result
