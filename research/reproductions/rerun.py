"""Reproductions one after the other, into one folder, where an interrupted run goes on.

Each writes its files there. ``all.json`` says what became of each, and is written after each; those
that it has as done, with the same version and the same size, are not computed again. ``all.md`` is
the page of it: verdicts and pictures.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import murmuration
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.row_cache import FOLDER
from murmuration.privacy.durable_files import replace_file
from murmuration.research.bench.setting import machine
from murmuration.research.reproductions.entry import Entry

DONE, FAILED, LEFT_OUT = "done", "failed", "left out"
RECORD, PAGE = "all.json", "all.md"


@dataclass(frozen=True)
class Outcome:
    """The outcome of an entry: whether it was computed, and what it says.

    Attributes:
        name: of the entry.
        status: ``DONE``; ``FAILED``; or ``LEFT_OUT``: it wants people's judgements.
        remarks: verdicts, or why there are none.
        picture: whether there is one beside the record.
        seconds: on the clock.
        processor_seconds: of this process and of those that it waited for.
        date: of the day on which it was computed.
    """

    name: str
    status: str
    remarks: Sequence[str]
    picture: bool
    seconds: float
    processor_seconds: float
    date: str


def rerun(
    entries: Mapping[str, Entry], folder: Path, quick: bool, say: Callable[[Outcome], None]
) -> list[Outcome]:
    """Compute what is not done yet; return the outcomes of all, in the order of ``entries``.

    ``say`` is given each. A failure does not stop the rest, and is tried again the next time.

    Raises:
        InputError: the folder's record is of another version or size, or cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcomes = {
        one.name: one
        for one in _recorded(folder, quick)
        if one.status == DONE and (folder / f"{one.name}.json").exists()
    }
    with _references_kept(folder / "references"):
        for name, entry in entries.items():
            if name not in outcomes:
                outcomes[name] = _outcome(name, entry, folder, quick)
                _record(folder, quick, [outcomes[each] for each in entries if each in outcomes])
            say(outcomes[name])
    return [outcomes[name] for name in entries]


def _outcome(name: str, entry: Entry, folder: Path, quick: bool) -> Outcome:
    begun, processor = time.perf_counter(), sum(os.times()[:4])
    picture = False
    try:
        result = entry.computed(name, quick, folder)
        result.write(folder, name)
        status, remarks, picture = DONE, list(result.remarks), result.plot is not None
    except Exception as error:
        unasked = not quick and isinstance(error, InputError) and entry.of_people is not None
        status = LEFT_OUT if unasked else FAILED
        remarks = [str(error) if unasked else f"{type(error).__name__}: {error}"]
    return Outcome(
        name,
        status,
        remarks,
        picture,
        round(time.perf_counter() - begun, 1),
        round(sum(os.times()[:4]) - processor, 1),
        datetime.now(UTC).date().isoformat(),
    )


def _head(quick: bool) -> dict[str, Any]:
    return {"quick": quick, "version": murmuration.__version__}


def _recorded(folder: Path, quick: bool) -> list[Outcome]:
    record = folder / RECORD
    if not record.exists():
        return []
    try:
        data = json.loads(record.read_bytes())
        head = {key: data[key] for key in _head(quick)}
        outcomes = [Outcome(**one) for one in data["outcomes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{record} is no record of reproductions; choose another --out") from error
    if head != _head(quick):
        size = "--quick" if head["quick"] else "full size"
        raise InputError(
            f"{record} is of {size} and version {head['version']}; choose another --out"
        )
    return outcomes


def _record(folder: Path, quick: bool, outcomes: Sequence[Outcome]) -> None:
    data = {**_head(quick), "machine": machine(), "outcomes": [asdict(one) for one in outcomes]}
    text = json.dumps(data, indent=2, ensure_ascii=False)
    replace_file(folder / RECORD, f"{text}\n".encode())
    replace_file(folder / PAGE, page(outcomes, quick).encode())


@contextmanager
def _references_kept(folder: Path) -> Iterator[None]:
    """Reference models that several entries have in common are made once."""
    if FOLDER in os.environ:
        yield
        return
    os.environ[FOLDER] = str(folder)
    try:
        yield
    finally:
        del os.environ[FOLDER]


def page(outcomes: Sequence[Outcome], quick: bool) -> str:
    """The Markdown page of outcomes: a table of all, then verdicts and pictures."""
    minutes = sum(one.processor_seconds for one in outcomes) / 60
    lines = [
        "# Reproductions",
        "",
        f"`murmuration reproduce all{' --quick' * quick}`, version {murmuration.__version__}, "
        f"{machine()['cpu']}, {minutes:.0f} processor minutes.",
        "",
        "| name | what became of it | processor seconds | on |",
        "|---|---|---:|---|",
        *(
            f"| `{one.name}` | {one.status} | {one.processor_seconds:.0f} | {one.date} |"
            for one in outcomes
        ),
    ]
    for one in outcomes:
        lines += ["", f"## {one.name}", "", *(f"- {_line(text)}" for text in one.remarks)]
        if one.picture:
            lines += ["", f"![{one.name}]({one.name}.png)"]
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    """A text on one line that starts no HTML."""
    return " ".join(text.split()).replace("<", "&lt;")
