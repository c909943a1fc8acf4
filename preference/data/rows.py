"""One row of judgements: what it must hold, and why it is refused.

Four kinds of rows, told apart by their columns: pairs (`chosen`, `rejected`, perhaps `tie`; or two
responses and which of them won, `preference.data.winners`), the best of several (`responses`,
`best`), rankings (`responses`, `ranking`) and thumbs: single responses that were liked or not
(`completion`, `label`). A row with `responses` and `scores` is whichever of the others is declared.
Texts may be lists of chat messages, and the prompt of a pair what its two texts share
(`preference.data.messages`). A cell of text that should be a list, as in CSV, is read as JSON.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from murmuration.preference.choices import MOST_RESPONSES as MOST_RESPONSES
from murmuration.preference.choices import Kind as Kind
from murmuration.preference.data.cells import (
    BadRow,
    flag_cell,
    found_kind,
    list_cell,
    number_cell,
)
from murmuration.preference.data.columns import (
    RANKING_COLUMNS,
    check_columns,
    may_lack_prompt,
    rated_columns,
    with_user,
)
from murmuration.preference.data.errors import InputError as InputError
from murmuration.preference.data.messages import (
    exchange,
    prompt_cell,
    rated_exchange,
    response_cell,
)
from murmuration.preference.data.user_ids import user_cell
from murmuration.preference.data.winners import SIDED, preferred_first

REQUIRED = ("user_id", "prompt", "chosen", "rejected")
FIELDS = (
    *REQUIRED,
    "tie",
    "score_chosen",
    "score_rejected",
    "responses",
    "best",
    "ranking",
    "scores",
    "completion",
    "label",
    "flip_probability",
    *SIDED,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One judgement.

    Attributes:
        user_id: as text.
        prompt: what was asked.
        responses: in order of preference; among the best of several, the tied ones first and the
            others as given. Of thumbs the only one.
        y: one over the number of responses that are best: 1, or less for a tie. Of thumbs 1 where
            the response was liked, else 0.
        kind: what kind of row it is.
        flip_probability: of the label, or None if the row says nothing of it.
        groups: of a ranking with ties how many responses share each place, the best first; else
            empty.
    """

    user_id: str
    prompt: str
    responses: tuple[str, ...]
    y: float
    kind: Kind
    flip_probability: float | None
    groups: tuple[int, ...] = ()


def parse_row(
    row: Mapping[str, object] | BadRow, names: Mapping[str, str], declared: Kind = "pairs"
) -> Row:
    """A row's judgement.

    `names` maps the fields of `REQUIRED`, and others that were asked for, to the row's own keys.
    What was asked for must be there; other fields have their own names and may be absent, and so
    may the prompt of a pair whose texts share it (`preference.data.messages`). Without a `user_id`
    in `names` the row is nobody's: the id is empty. Of `scores` a judgement of the ``declared``
    kind is made. Numbers
    become ids by their value: 7 and 7.0 are the user `7`. The same text twice among the best is a
    tie however it is marked: nobody can prefer a text to itself, and real collections hold such
    rows.

    Raises:
        BadRow: anything that is missing, empty, not text, or contradicts itself.
    """
    if isinstance(row, BadRow):
        raise row
    try:
        return _judgement(row, names, declared)
    except BadRow:
        raise
    except Exception as error:  # a cell may hold anything
        raise BadRow(f"a cell that cannot be read ({type(error).__name__})") from None


def _judgement(row: Mapping[str, object], names: Mapping[str, str], declared: Kind) -> Row:
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    row, names = preferred_first(row, names)
    listed = "responses" in names or ("responses" in row and names["chosen"] not in row)
    rated = rated_columns(row, names)
    names = _columns_of(row, names, listed) if rated is None else _of_rating(row, names, rated)
    columns = {field: names.get(field, field) for field in FIELDS}
    cells = {field: row.get(column) for field, column in columns.items()}
    groups: tuple[int, ...] = ()
    if rated is not None:
        prompt, response = rated_exchange(cells, columns, "prompt" in names)
        liked = flag_cell(cells["label"], columns["label"])
        kind, responses, y = "thumbs", (response,), float(liked)
    elif listed:
        prompt = prompt_cell(cells["prompt"], columns["prompt"])
        kind, responses, y, groups = _listed(cells, columns, declared)
    else:
        prompt, *pair = exchange(cells, columns, "prompt" in names)
        kind, responses, y, _ = _pair(pair[0], pair[1], cells, columns)
    user_id = user_cell(cells["user_id"], columns["user_id"]) if "user_id" in names else ""
    flip = _flip(cells["flip_probability"], columns["flip_probability"], kind, len(responses))
    return Row(user_id, prompt, responses, y, kind, flip, groups)


def _columns_of(
    row: Mapping[str, object], names: Mapping[str, str], listed: bool
) -> Mapping[str, str]:
    """The columns of a row's fields, in ``listed`` form or as a pair; BadRow if one is missing.

    A pair may be without a prompt, unless one was named or seems to have another name.
    """
    result = {**with_user(row, names)}
    if listed:
        result = {f: c for f, c in result.items() if f not in ("chosen", "rejected")}
        result.setdefault("responses", "responses")
        ranks = [column for column in RANKING_COLUMNS if column in row]
        if "ranking" not in result and len(ranks) == 1:
            result["ranking"] = ranks[0]
    elif may_lack_prompt(row, result):
        del result["prompt"]
    check_columns(row, result)
    return result


def _of_rating(
    row: Mapping[str, object], names: Mapping[str, str], rated: Mapping[str, str]
) -> Mapping[str, str]:
    """The columns of a rating's fields; BadRow if one is missing.

    Without a prompt the conversation must hold it (`preference.data.messages.rated_exchange`).
    """
    result = {**with_user(row, names), **rated}
    result = {field: column for field, column in result.items() if field not in _OF_PAIRS}
    if result["prompt"] == "prompt" and "prompt" not in row:
        del result["prompt"]
    check_columns(row, result)
    return result


def readable_user(row: object, names: Mapping[str, str]) -> str | None:
    """Return whom a row is of, whatever else is wrong with it; None if it names nobody."""
    if not isinstance(row, Mapping):
        return None
    try:
        column = with_user(row, names)["user_id"]
        return user_cell(row.get(column), column)
    except Exception:  # a cell may hold anything
        return None


_OF_PAIRS = ("chosen", "rejected", "score_chosen", "score_rejected")
#: Kind, responses, y and groups.
_Judged = tuple[Kind, tuple[str, ...], float, tuple[int, ...]]


def _pair(
    chosen: str, rejected: str, cells: Mapping[str, object], columns: Mapping[str, str]
) -> _Judged:
    tie = _tie(cells["tie"], columns["tie"]) or chosen == rejected
    scores = [_score(cells[field], columns[field]) for field in ("score_chosen", "score_rejected")]
    if scores[0] is not None and scores[1] is not None:
        if scores[0] < scores[1] and not tie:
            raise BadRow(
                f"{columns['score_chosen']!r} is below {columns['score_rejected']!r}: the response "
                "that was preferred would be the worse one"
            )
        tie = tie or scores[0] == scores[1]
    return "pairs", (chosen, rejected), 0.5 if tie else 1.0, ()


def _listed(cells: Mapping[str, object], columns: Mapping[str, str], declared: Kind) -> _Judged:
    """A row with `responses`, and one of `best`, `ranking` and `scores`."""
    result = list_cell(cells["responses"])
    if result is None or not 2 <= len(result) <= MOST_RESPONSES:
        raise BadRow(
            f"{columns['responses']!r} must be a list of 2 to {MOST_RESPONSES} texts, "
            f"found {found_kind(cells['responses'])}"
        )
    responses = [response_cell(response, columns["responses"]) for response in result]
    best, ranking = (
        None if isinstance(cell, str) and not cell.strip() else cell
        for cell in (cells["best"], cells["ranking"])
    )
    if best is None and ranking is None and cells["scores"] is not None:
        return _scored(responses, cells, columns, declared)
    if (best is None) == (ranking is None):
        said = "both" if best is not None else "neither"
        raise BadRow(
            f"a row with {columns['responses']!r} needs {columns['best']!r}, "
            f"{columns['ranking']!r} or {columns['scores']!r}; found {said}. Name yours with "
            "--columns best=NAME"
        )
    if _tie(cells["tie"], columns["tie"]):
        raise BadRow(f"{columns['tie']!r} is for pairs: list all that tie in {columns['best']!r}")
    if ranking is not None:
        return _ranked(responses, _ranks(ranking, columns["ranking"], len(responses)))
    return _best_first(responses, _best(best, columns["best"], len(responses)))


def _scored(
    responses: list[str],
    cells: Mapping[str, object],
    columns: Mapping[str, str],
    declared: Kind,
) -> _Judged:
    """By a score of each: a ranking where rankings are declared, a pair of two, else the best."""
    result = list_cell(cells["scores"]) or []
    scores = [_score(score, columns["scores"]) for score in result]
    numbers = [score for score in scores if score is not None]
    if len(numbers) != len(responses) or len(scores) != len(responses):
        raise BadRow(
            f"{columns['scores']!r} must give a number for each of the {len(responses)} responses; "
            f"found {found_kind(cells['scores'])}"
        )
    order = sorted(range(len(numbers)), key=lambda place: -numbers[place])
    tied = [place for place in order if numbers[place] == numbers[order[0]]]
    if declared == "ranking":
        return _ranked(responses, [-number for number in numbers])
    if declared == "pairs" and len(responses) == 2:
        first, second = (responses[place] for place in order)
        return "pairs", (first, second), 0.5 if len(tied) == 2 or first == second else 1.0, ()
    return _best_first(responses, tied)


def _score(value: object, column: str) -> float | None:
    """A finite number, also as text; None for an empty cell."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = number_cell(value)
    if not math.isfinite(number):
        raise BadRow(f"{column!r} must hold finite numbers, found {found_kind(value)}")
    return number


def _best_first(responses: list[str], tied: list[int]) -> _Judged:
    """The best of several, by the places of those that are."""
    tied_texts = {responses[place] for place in tied}
    first = [response for response in responses if response in tied_texts]
    others = [response for response in responses if response not in tied_texts]
    return "top-1", (*first, *others), 1.0 / len(first), ()


def _ranked(responses: list[str], ranks: list[float]) -> _Judged:
    """A ranking, the lowest rank first; what ties stays in its order, and is counted."""
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    sizes = Counter(ranks[place] for place in order)  # in order of first appearance
    groups = tuple(sizes.values()) if len(sizes) < len(ranks) else ()
    y = 1.0 / groups[0] if groups else 1.0
    return "ranking", tuple(responses[place] for place in order), y, groups


def _best(value: object, column: str, responses: int) -> list[int]:
    """The places that are best, from one number or a list of them."""
    listed = list_cell(value)
    places = [_whole(place) for place in ([value] if listed is None else listed)]
    known = [place for place in places if place is not None and 0 <= place < responses]
    if not places or len(set(known)) < len(places):
        raise BadRow(
            f"{column!r} must be the place of a response, counted from 0 to {responses - 1}, or a "
            f"list of those that tie; found {found_kind(value)}"
        )
    return known


def _ranks(value: object, column: str, responses: int) -> list[float]:
    """The rank of each response, 1 for the best; those that tie share one.

    Shared ranks are counted in any of the usual ways: 1, 2, 2, 4 or 1, 3, 3, 4 or 1, 2, 2, 3, or as
    means, 1, 2.5, 2.5, 4.
    """
    ranks = [number_cell(rank) for rank in list_cell(value) or ()]
    ordered = sorted(rank for rank in ranks if math.isfinite(rank))
    lowest = [ordered.index(rank) + 1 for rank in ordered]
    highest = [low + ordered.count(rank) - 1 for low, rank in zip(lowest, ordered, strict=True)]
    dense = [len({*ordered[: low - 1]}) + 1 for low in lowest]
    mean = [(low + high) / 2 for low, high in zip(lowest, highest, strict=True)]
    usual = ordered in (lowest, highest, dense, mean)
    if not usual or not len(ordered) == len(ranks) == responses:
        raise BadRow(
            f"{column!r} must give each of the {responses} responses a rank, 1 for the best, and "
            f"those that tie the same one; found {found_kind(value)}"
        )
    return ranks


def _flip(value: object, column: str, kind: Kind, responses: int) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if kind == "thumbs":
        raise BadRow(f"{column!r} is about a choice among responses, not about a single one")
    number, most = number_cell(value), 1.0 - 1.0 / responses
    if not 0.0 <= number < most:
        raise BadRow(
            f"{column!r} must be at least 0 and below {most:.3g}, which is pure chance among "
            f"{responses} responses; found {found_kind(value)}"
        )
    if kind == "ranking":
        raise BadRow(f"{column!r} is about one label, not about a ranking")
    return number


def _whole(value: object) -> int | None:
    """A whole number, also as text; None if it is none."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() else None


def _tie(value: object, column: str) -> bool:
    if value is None or (isinstance(value, str) and not value.strip()):
        return False
    return flag_cell(value, column)
