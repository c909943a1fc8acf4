"""A look at judgements before a budget is spent: for their owner alone, outside any epsilon.

Everything here is exact and about the users' own data. Nothing is written.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import get_args

import numpy as np

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import columns_of, load_data, parse_columns
from murmuration.preference.data.rows import (
    FIELDS,
    MOST_RESPONSES,
    REQUIRED,
    BadRow,
    InputError,
    Kind,
    layout_of,
)
from murmuration.preference.data.schema import Schema
from murmuration.reporting.baselines import NEAR

_FEW = 0.05  # of all rows
_TEXTS = 5_000  # that are looked at for their script and language
#: Frequent words that are no words, or rare ones, of the others.
_WORDS = {
    "English": "the and is you that it for with are this have not",
    "German": "der die und ist das nicht ich ein zu mit den auf",
    "French": "le les et est des une pour que dans pas vous du",
    "Spanish": "el los y es las una por que para con del se",
    "Portuguese": "o os e é uma para não com que do da em",
    "Italian": "il di che è la un per non con sono della gli",
    "Dutch": "de het en een van niet dat op te zijn voor met",
}
_OF_LANGUAGE = {language: frozenset(words.split()) for language, words in _WORDS.items()}


@dataclass(frozen=True)
class Look:
    """What a file holds.

    Attributes:
        judgements: its usable rows.
        schema: what they were read as: as declared, or the kind that most rows are of.
        kinds: how many rows are of each kind, where none was declared.
        columns: names of the columns in the first rows.
        taken: which of them was taken for which field: field → column.
        reasons: why rows would be refused (numbers and quotes left out), how often among the first
            of them, and the first example of each with its place.
    """

    judgements: Judgements
    schema: Schema
    kinds: Mapping[str, int]
    columns: Sequence[str]
    taken: Mapping[str, str]
    reasons: Mapping[str, tuple[int, str]]

    @property
    def few_left_out(self) -> bool:
        """Whether so few rows cannot be used that a run may leave them out: of more, what they hold
        has not been understood."""
        left_out = self.judgements.left_out
        return left_out <= _FEW * (len(self.judgements) + left_out)


@dataclass(frozen=True)
class Guess:
    """How often a rule that knows nothing of the prompt is right about judgements without a tie.

    Attributes:
        pooled: over judgements.
        by_user: mean over users of each user's mean.
        rows: how many judgements.
    """

    pooled: float
    by_user: float
    rows: int


def look_at(source: str, columns: str, declared: Mapping[str, object]) -> Look:
    """Read a source as `murmuration run --data` does, but set bad rows aside.

    ``declared`` is what options said of the rows, by the names of ``Schema``'s fields. Where that
    is not the kind, the kind that most rows are of is taken, and as many responses as they have;
    thumbs are taken as pairs where half of them or more are in one.

    Raises:
        InputError: it cannot be read, or has no row that could be used.
    """
    kinds: dict[str, int] = {}
    best: tuple[Judgements, Schema] | None = None
    why: InputError | None = None
    for kind in [declared["kind"]] if "kind" in declared else get_args(Kind):
        try:
            schema = _widest(str(kind), declared)
            loaded = load_data("reward", source, columns, "skip", schema)
            read = loaded.as_judgements("--task reward is not for users' texts")
        except InputError as error:
            why = why or error
            continue
        if not read.thumbs:
            kinds[str(kind)] = len(read)
        if best is None or _used(read) > _used(best[0]):
            best = read, schema
        if not read.left_out and 2 * read.thumbs_alone <= read.thumbs:
            break
    if best is None:
        raise why or InputError(f"{source}: no judgements")
    judgements, schema = best
    if schema.kind in ("top-1", "ranking") and "responses" not in declared:
        most = max(map(len, judgements.responses))
        schema = _schema(schema.kind, {**declared, "responses": max(2, most)})
    there = columns_of(source)
    taken = {field: field for field in FIELDS} | parse_columns(columns)
    with suppress(BadRow):  # several columns may be the user's: every row was refused by that
        names = {field: field for field in REQUIRED} | parse_columns(columns)
        taken |= layout_of(there, names).columns
    taken = {field: column for field, column in taken.items() if column in there}
    return Look(judgements, schema, kinds, there, taken, _grouped(judgements.set_aside))


def _used(judgements: Judgements) -> int:
    """Return how many rows are judgements, or thumbs in a pair."""
    return judgements.thumbs - judgements.thumbs_alone if judgements.thumbs else len(judgements)


def _schema(kind: str, declared: Mapping[str, object]) -> Schema:
    return Schema(**{**declared, "kind": kind})  # type: ignore[arg-type]


def _widest(kind: str, declared: Mapping[str, object]) -> Schema:
    """As declared; where the number of responses is not, the most that there may be."""
    if kind in ("top-1", "ranking") and "responses" not in declared:
        return _schema(kind, {**declared, "responses": MOST_RESPONSES})
    return _schema(kind, declared)


def _grouped(reasons: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Reasons without their numbers and quotes: how often, and the first with its place."""
    result: dict[str, tuple[int, str]] = {}
    for text in reasons:
        _, _, reason = text.partition(": ")
        reason = _without_values(reason)
        times, first = result.get(reason, (0, text))
        result[reason] = times + 1, first
    return dict(sorted(result.items(), key=lambda item: -item[1][0]))


def _without_values(reason: str) -> str:
    outside = reason.split("'")[::2]
    return "…".join("".join("N" if c.isdigit() else c for c in part) for part in outside)


def decided(judgements: Judgements) -> np.ndarray:
    """(R,) bool: which judgements are no ties."""
    tied_R = judgements.y_R == 0.5 if judgements.kind == "pairs" else judgements.y_R < 1.0
    many_R = np.array([len(shown) > 1 for shown in judgements.responses], dtype=bool)
    return ~tied_R & many_R


def guessing(judgements: Judgements) -> Guess:
    """Of one response chosen by chance."""
    right_R = np.array([1.0 / max(1, len(shown)) for shown in judgements.responses])
    return _guess(judgements, right_R, decided(judgements))


def longer_wins(judgements: Judgements) -> Guess:
    """Of the response with most words; of several with as many one by chance."""
    right_R = np.zeros(len(judgements))
    for row, shown in enumerate(judgements.responses):
        lengths = _words(shown)
        if lengths and lengths[0] == max(lengths):
            right_R[row] = 1.0 / lengths.count(lengths[0])
    return _guess(judgements, right_R, decided(judgements))


def nearly_equal(judgements: Judgements) -> float:
    """The share of judgements without a tie whose two longest responses differ by at most ``NEAR``
    of the longer one, in words."""
    kept_R = decided(judgements)
    near = 0
    for row in np.flatnonzero(kept_R).tolist():
        second, first = sorted(_words(judgements.responses[row]))[-2:]
        near += first - second <= NEAR * first
    return near / max(1, int(kept_R.sum()))


def _words(shown: Sequence[str]) -> list[int]:
    return [len(str(text).split()) for text in shown]


def _guess(judgements: Judgements, right_R: np.ndarray, kept_R: np.ndarray) -> Guess:
    user_R = np.repeat(np.arange(len(judgements.user_ids)), judgements.counts_U)
    users = len(judgements.user_ids)
    right_U = np.bincount(user_R[kept_R], right_R[kept_R], minlength=users)
    rows_U = np.bincount(user_R[kept_R], minlength=users)
    there_U = rows_U > 0
    rows = int(rows_U.sum())
    if not rows:
        return Guess(float("nan"), float("nan"), 0)
    by_user = float((right_U[there_U] / rows_U[there_U]).mean())
    return Guess(float(right_R[kept_R].mean()), by_user, rows)


def shares(counts_U: np.ndarray) -> dict[str, float]:
    """Return which share of all judgements the largest users have: the largest, 1 % and 10 % of
    them."""
    ordered_U = np.sort(counts_U)[::-1]
    total = max(1, int(ordered_U.sum()))
    users = len(ordered_U)
    parts = {"the largest user": 1, "1 % of users": users // 100, "10 % of users": users // 10}
    return {name: float(ordered_U[:most].sum()) / total for name, most in parts.items() if most}


def histogram(counts_U: np.ndarray) -> list[tuple[str, int]]:
    """Return how many users have how many judgements, in bins that double: their names, and
    counts."""
    tops = [0, 1]
    while tops[-1] < int(counts_U.max(initial=0)):
        tops.append(2 * tops[-1])
    result = []
    for below, top in pairwise([-1, *tops]):
        name = f"{top:,}" if top == below + 1 else f"{below + 1:,}–{top:,}"
        result.append((name, int(((counts_U > below) & (counts_U <= top)).sum())))
    return result if result[0][1] else result[1:]


def written_in(judgements: Judgements) -> tuple[Counter[str], Counter[str]]:
    """In which script texts are, by most of their letters; and texts in Latin letters in which
    language, by frequent words alone, `unclear` where these do not say."""
    scripts: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    prompts, responses = judgements.prompts, judgements.responses
    every = max(1, 2 * len(prompts) // _TEXTS)
    texts = (
        text
        for prompt, shown in zip(prompts[::every], responses[::every], strict=True)
        for text in (prompt, *islice(shown, 1))
    )
    for text in texts:
        script = _script(str(text)[:400])
        scripts[script] += 1
        if script == "Latin":
            languages[_language(str(text)[:400])] += 1
    return scripts, languages


def _script(text: str) -> str:
    letters = [letter for letter in text if letter.isalpha()]
    names = Counter(unicodedata.name(letter, "UNKNOWN").split()[0] for letter in letters)
    return names.most_common(1)[0][0].capitalize() if names else "no letters"


def _language(text: str) -> str:
    words = [word.strip(".,;:!?\"'()").lower() for word in text.split()]
    hits = {
        language: sum(word in known for word in words) for language, known in _OF_LANGUAGE.items()
    }
    first, second = sorted(hits.values())[-1:-3:-1]
    if first == second:
        return "unclear"
    return max(hits, key=lambda language: hits[language])
