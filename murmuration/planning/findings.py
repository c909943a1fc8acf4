"""Common problems of messy files, checked in all rows: exact, for the operator alone."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from murmuration.planning import advice
from murmuration.planning.declaration import Declaration
from murmuration.preference.data.cells import is_empty, label_text, shortened
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.user_ids import user_cell
from murmuration.privacy.figures import counted

_FEW_PEOPLE = 100
_LARGE = 0.2  # of all judgements: a user with more is named
_OFTEN = 0.01  # of all judgements: an answer to several prompts that more have
_LEAST = 5  # times
_PROMPTS = 3
_MARK = re.compile(
    r"(is|was|has)_.+|.*(delet|remov|reject|hidden|hide|flag|discard|spam|banned|moderat|exclu"
    r"|invalid|duplicate|dedup|copy_of|supersed|replaced|tombstone|withdrawn|retract|archived"
    r"|cancel|anony|blind|draft|skip|ignor).*|status|state|valid|active|approved|accepted|test"
)
_MOST_VALUES = 4  # of a mark that are shown
_MOST_MARK = 12  # values: with more it is a mark only where others have none


def findings(
    declaration: Declaration,
    judgements: Judgements,
    kind: str,
    used: Collection[str],
    scripts: Mapping[str, int],
) -> tuple[str, ...]:
    """A line, with counts, for each thing to check before a run.

    Args:
        declaration: of the rows.
        judgements: the usable rows, as they are read by it.
        kind: theirs.
        used: columns that are read.
        scripts: the number of texts by script.
    """
    lines = [
        *_ids(declaration),
        *_repeated(declaration.rows),
        *_frequent(judgements),
        *_odd_labels(declaration),
        *_other_kinds(declaration, kind),
        *_marks(declaration.raw, used),
        *_people(judgements),
        *advice.reading(scripts),
    ]
    return tuple(lines)


def _ids(declaration: Declaration) -> list[str]:
    written = set[str]()
    for row, layout in zip(declaration.rows, declaration.layouts, strict=True):
        cell = row.get(layout.columns.get("user_id", "user_id")) if layout is not None else None
        if isinstance(cell, str):
            with suppress(BadRow):
                written.add(user_cell(cell, "user_id"))
    alike: dict[str, list[str]] = {}
    for name in sorted(written):
        plain = unicodedata.normalize("NFKC", name).casefold()
        alike.setdefault(" ".join(plain.split()), []).append(name)
    several = [names for names in alike.values() if len(names) > 1]
    if not several:
        return []
    shown = " and ".join(repr(shortened(name, 40)) for name in several[0][:2])
    return [
        f"ids that differ only in case, spaces or Unicode form: {len(written):,} ids are "
        f"{len(alike):,} without that, as {shown}: if these are the same people, write their "
        "ids alike: a person who counts as two is protected half as much"
    ]


def _repeated(rows: Sequence[Mapping[str, object]]) -> list[str]:
    seen = Counter(hash(repr(sorted(row.items(), key=str))) for row in rows)
    again = sum(seen.values()) - len(seen)
    if not again:
        return []
    return [
        f"duplicates: {again:,} of {counted(len(rows), 'row')} say exactly what an earlier row "
        "says; a run counts them again: take them out, unless people judged twice"
    ]


def _frequent(judgements: Judgements) -> list[str]:
    times, prompts = Counter[str](), dict[str, set[str]]()
    for prompt, shown in zip(judgements.prompts, judgements.responses, strict=True):
        for text in {*shown}:
            times[text] += 1
            if len(first := prompts.setdefault(text, set())) < _PROMPTS:
                first.add(prompt)
    most = max(_LEAST, _OFTEN * len(judgements))
    often = [
        (text, count)
        for text, count in times.most_common(20)
        if count >= most and len(prompts[text]) >= _PROMPTS
    ]
    typical = sorted(times.values())[len(times) // 2] if times else 0
    often = [each for each in often if each[1] >= _LEAST * typical][:3]
    if not often:
        return []
    named = ", ".join(f"{shortened(text, 40)!r} in {count:,}" for text, count in often)
    return [
        f"one answer to many prompts: {named} of {len(judgements):,} judgements: if nobody wrote "
        "that, take these rows out"
    ]


def _odd_labels(declaration: Declaration) -> list[str]:
    return [
        f"odd labels of {kind}: {_values(Counter(odd))}, where nearly all rows have others: a run "
        "leaves out, or refuses, what is not on the scale"
        for kind, odd in declaration.odd_labels.items()
        if odd
    ]


def _other_kinds(declaration: Declaration, kind: str) -> list[str]:
    if "kind" in declaration.declared:
        return []
    kinds, lines = declaration.kinds, []
    if {"pairs", "thumbs"} <= {*kinds}:
        lines.append(
            f"pairs and thumbs: {kinds['pairs']:,} rows are pairs and {kinds['thumbs']:,} are "
            "single ratings: --kind pairs reads both, and makes pairs of one user's ratings of one "
            "prompt; --kind thumbs reads the ratings alone"
        )
    read = {"pairs", "thumbs"} if kind in ("pairs", "thumbs") else {kind}
    if others := [f"{rows:,} as {other}" for other, rows in kinds.items() if other not in read]:
        lines.append(f"rows of another kind: {', '.join(others)}; one run learns from one: --kind")
    return lines


def _marks(rows: Sequence[Mapping[str, object]], used: Collection[str]) -> list[str]:
    lines = []
    for column in dict.fromkeys(str(column) for row in rows for column in row):
        name = re.sub(r"[\s-]+", "_", column.strip().lower())
        if column in used or not _MARK.fullmatch(name):
            continue
        cells = [row.get(column) for row in rows]
        values = Counter("" if is_empty(cell) else label_text(cell) for cell in cells)
        if len(values) > _MOST_MARK:  # ids or times of what was taken out, beside nothing
            values = Counter("" if is_empty(cell) else "something" for cell in cells)
        if len(values) > 1:
            lines.append(
                f"the column {column!r} is not used, and may mark rows: {_values(values)}: take "
                "out those that should not count"
            )
    return lines


def _values(values: Counter[str]) -> str:
    named = ((repr(value) if value else "nothing", n) for value, n in values.most_common())
    shown = [f"{value} in {n:,}" for value, n in islice(named, _MOST_VALUES)]
    more = len(values) - _MOST_VALUES
    return ", ".join(shown) + (f" and {more:,} others" if more > 0 else "")


def _people(judgements: Judgements) -> list[str]:
    people, counts_U, lines = len(judgements.user_ids), judgements.counts_U, list[str]()
    largest = int(counts_U.argmax())
    share = counts_U[largest] / len(judgements)
    if share > _LARGE and people > 1:
        lines.append(
            f"one user, {judgements.user_ids[largest]!r}, made {100 * share:.1f} % of all "
            "judgements. uls counts them as one user like anybody else, els keeps no more of them "
            "than --group-size: most of these rows will hardly matter. Is it one person?"
        )
    if people > 1 and int(counts_U.max()) == 1:
        lines.append(
            "every judgement has a user of its own. If people judged more than once, the column "
            "of user_id is not who they are, and epsilon would protect rows, not people"
        )
    if people < _FEW_PEOPLE:
        lines.append(
            f"few people: {people} users. A delta of 1 / {people} = {1 / people:.2g} would allow "
            "to publish one of them: stay far below. Ten times as many have about a tenth of the "
            "noise: expect to learn little"
        )
    return lines
