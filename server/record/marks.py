"""The marks on rows that models wrote: the private runs that these models came from.

A mark has names alone: whoever learns from such rows must name the ledgers of these runs, whose
promise then counts as that of a base does (``server.record.lineage``).
"""

from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import texts_in
from murmuration.preference.data.sources import parse_source
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.promise import Promise, ReleasedRun
from murmuration.server.record.lineage import lineage_of_model, lineage_of_saved, of_ledgers

#: In each row that was made with models of private runs: their names.
PRIVATE_RUNS = "private_runs"
_PLAIN = (".jsonl", ".csv")
_POPULATION = "murmuration.population:"  # which no model wrote
_NOT_KNOWN = "not-known"


def mark_of(promise: Promise) -> dict[str, str]:
    """The mark on rows made with models of these runs: their identities, and the ends of their
    ledgers; empty if there are none."""
    names = " ".join(f"{run.name}@{_short(run.head)}" for run in promise.counted)
    return {PRIVATE_RUNS: names} if names else {}


def _short(head: Head) -> str:
    """A ledger's head, as a mark has it."""
    return f"{head.index}:{head.hash[:16]}"


def _is_marked(mark: str, run: ReleasedRun) -> bool:
    """True if a mark is of this run, or of an earlier state of it; a copy that was resumed
    elsewhere is another run."""
    name, _, head = mark.partition("@")
    return name == run.name and head in map(_short, (*run.heads, run.head))


def mark_of_model(path: str) -> dict[str, str]:
    """The mark on rows that a model wrote; if its cost is unknown, the mark says so."""
    try:
        return mark_of(lineage_of_model("the model", path, ""))
    except InputError:
        return {PRIVATE_RUNS: _NOT_KNOWN}


def mark_of_served(what: str, name: str, option: str, given: str) -> dict[str, str]:
    """The mark on rows that a served model wrote; arguments as in ``lineage_of_saved``. If nothing
    is declared, the mark says that its cost is unknown."""
    if not given:
        is_folder = Path(name).expanduser().is_dir()
        return mark_of_model(name) if is_folder else {PRIVATE_RUNS: _NOT_KNOWN}
    return mark_of(lineage_of_saved(what, name, option, given, may_be_base=True, served=True))


def marks_in(source: str) -> set[str]:
    """The runs that rows name, in files, on a hub or from a function.

    Raises:
        InputError: they cannot be read, or a mark is no text.
    """
    if not source or source.startswith(_POPULATION):  # of a deployment, whose rows lie with nodes
        return set()
    place = Path(parse_source(source).name).expanduser()
    if place.is_file() and place.suffix in _PLAIN and not _mentions_runs(place):
        return set()
    return {name for mark in texts_in(source, PRIVATE_RUNS) for name in mark.split()}


def _mentions_runs(file: Path) -> bool:
    """True if a file of plain text can have marks: quicker than to read its rows once more."""
    with file.open("rb") as lines:
        return any(PRIVATE_RUNS.encode() in line for line in lines)


def mark_of_rows(source: str) -> dict[str, str]:
    """The mark on rows that were made of other rows, from the marks of these."""
    names = sorted(marks_in(source))
    return {PRIVATE_RUNS: " ".join(names)} if names else {}


def lineage_of_rows(what: str, source: str, option: str, given: str) -> Promise:
    """The promise of rows that are to be learned from; empty if no model of ours made them.

    Rows that our models wrote name the runs. Where a model's cost was not known, what is ``given``
    is all that there is.

    Raises:
        InputError: they name runs, and what these cost is not known.
    """
    promise, _ = of_ledgers(option, "" if given == "public" else given)
    marks = marks_in(source) - ({_NOT_KNOWN} if given else set())
    known = {mark for mark in marks for run in promise.runs if _is_marked(mark, run)}
    if missing := sorted(marks - known):
        name = missing[0].partition("@")[0]
        raise InputError(
            f"{what} {source}: its rows were made with models of private runs ({name}), and "
            f"what these cost is not known: name their ledgers, comma-separated, with {option}"
        )
    return promise.declared_public() if given == "public" else promise


def lineage_of_data(option: str, source: str, declared: str) -> Promise:
    """The promise of a run's rows or test rows, if models of private runs wrote them.

    Args:
        option: the one that names them, ``--data`` or ``--test``.
        source: where they are; empty in a deployment.
        declared: what ``--base-privacy`` says.

    Raises:
        InputError: what these runs cost is not known.
    """
    if not marks_in(source):
        return Promise()
    given = "" if declared == "public" else declared  # a word about the base
    return lineage_of_rows(option, source, "--base-privacy", given)
