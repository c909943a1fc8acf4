"""Reading judgements for a look at them before a budget is spent; nothing is written."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import get_args

from murmuration.planning.data_summary import DataSummary
from murmuration.preference.data.column_meanings import FIELDS, REQUIRED, layout_of, with_user
from murmuration.preference.data.formats.registry import format_named, recognised_format
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import columns_of, load_data, parse_columns
from murmuration.preference.data.rows import MOST_RESPONSES, BadRow, InputError, Kind
from murmuration.preference.data.schema import Schema
from murmuration.strategies.settings.run import Settings


def look_at(
    source: str, columns: str, declared: Mapping[str, object], epsilon: float = Settings.epsilon
) -> DataSummary:
    """Read a source as `murmuration run --data` does, but set bad rows aside.

    ``declared`` is what options said of the rows, by the names of ``Schema``'s fields. Where that
    is not the format, it is recognised by the columns. Where it is not the kind, the kind that most
    rows are of is taken, and as many responses as they have; thumbs are taken as pairs where half
    of them or more are in one.

    Raises:
        InputError: it cannot be read, or has no row that could be used.
    """
    header = columns_of(source)
    if "format" not in declared and not {*parse_columns(columns)} - {"user_id"}:
        declared = {"format": recognised_format(header), **declared}
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
    taken = _taken(header, columns, schema.format)
    reasons = _grouped(judgements.set_aside)
    return DataSummary(source, columns, judgements, schema, kinds, header, taken, reasons, epsilon)


def _taken(header: Sequence[str], columns: str, format: str) -> dict[str, str]:
    """Return which column was taken for which field; of a format all that it reads."""
    taken = {field: field for field in FIELDS} | parse_columns(columns)
    names = {field: field for field in REQUIRED} | parse_columns(columns)
    with suppress(BadRow):  # several columns may be the user's: every row was refused by that
        if format:
            read = format_named(format).columns
            taken = with_user(header, names) | {each: each for each in header if each in read}
        else:
            taken |= layout_of(header, names).columns
    return {field: column for field, column in taken.items() if column in header}


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
