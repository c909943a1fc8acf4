"""Reading judgements for a look at them before a budget is spent; nothing is written."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from murmuration.planning.data_summary import DataSummary
from murmuration.planning.declaration import Declaration, find_declaration
from murmuration.planning.findings import findings
from murmuration.preference.data.column_meanings import SIDED, with_user
from murmuration.preference.data.formats.registry import format_named
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import columns_of, load_data, parse_columns
from murmuration.preference.data.rows import BadRow, InputError
from murmuration.preference.data.schema import Schema
from murmuration.strategies.settings.run import Settings

#: Fields that rows are read from, besides these, by the form of their columns.
_ALWAYS_READ = ("user_id", "prompt", "flip_probability")
_READ = {
    "pair": ("chosen", "rejected", "tie", "score_chosen", "score_rejected"),
    "sides": (*SIDED, "tie"),
    "list": ("responses", "best", "ranking", "scores"),
    "rating": ("completion", "label"),
}


def look_at(
    source: str,
    columns: str,
    stated: Mapping[str, object],
    epsilon: float = Settings.epsilon,
    public: bool = False,
) -> DataSummary:
    """Find the declaration of a source's rows, and read them by it, but set bad rows aside.

    ``stated`` is what options said of the rows, by the names of ``Schema``'s fields; the rest is
    looked for in all rows. The kind is the one that most rows are of; thumbs are taken as pairs
    where half of them or more are in one.

    Raises:
        InputError: it cannot be read, or has no row that could be used.
    """
    declaration = find_declaration(source, columns, stated)
    judgements, schema = _read(source, declaration)
    header = columns_of(source)
    taken = _taken(header, columns, declaration, schema)
    columns_of_all = dict.fromkeys(str(column) for row in declaration.raw for column in row)
    unused = [column for column in columns_of_all if column not in taken.values()]
    return DataSummary(
        source=source,
        renamed=declaration.columns,
        judgements=judgements,
        schema=schema,
        kinds={} if "kind" in stated or judgements.thumbs else declaration.kinds,
        columns=header,
        taken=taken,
        reasons=_grouped(judgements.set_aside),
        declared=declaration.reasons,
        findings=findings(declaration, judgements, unused, epsilon),
        epsilon=epsilon,
        public=public,
    )


def _read(source: str, declaration: Declaration) -> tuple[Judgements, Schema]:
    """Return the judgements of the kind that is declared, or that suits most rows."""
    kinds = [str(declaration.declared.get("kind") or next(iter(declaration.kinds), "pairs"))]
    if "kind" not in declaration.declared and kinds == ["thumbs"]:
        kinds = ["pairs", "thumbs"]
    for kind in kinds:
        schema = declaration.schema(kind)
        try:
            loaded = load_data("reward", source, declaration.columns, "skip", schema)
        except InputError:
            if kind == kinds[-1]:
                raise
            continue
        read = loaded.as_judgements("--task reward is not for users' texts")
        if kind == kinds[-1] or 2 * read.thumbs_alone <= read.thumbs:
            return read, schema
    raise AssertionError("a kind was read or refused")


def _taken(
    header: Sequence[str], columns: str, declaration: Declaration, schema: Schema
) -> dict[str, str]:
    """Return which column is read for which field; of a format all that it reads."""
    result: dict[str, str] = {}
    if schema.format:
        user = parse_columns(columns).get("user_id", "user_id")
        with suppress(BadRow):  # several columns may be the user's: every row was refused by that
            result = with_user(header, {"user_id": user})
        read = format_named(schema.format).columns
        result |= {each: each for each in header if each in read and each not in result.values()}
    else:
        layouts = {id(layout): layout for layout in declaration.layouts if layout is not None}
        for layout in layouts.values():
            for each in (*_ALWAYS_READ, *_READ[layout.form]):
                result.setdefault(each, layout.columns.get(each, each))
    return {each: column for each, column in result.items() if column in header}


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
