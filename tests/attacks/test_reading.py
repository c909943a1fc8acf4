"""Nobody's rows change how another's are read: every declaration and format, every kind of source,
every hostile user, each at a drawn place among others.

Compared, to the last bit, is what a run makes of all others with and without the hostile user, and
of the hostile user with and without the others. Where users cannot be told apart in what holds
them, the whole may be refused: ``MAY_REFUSE`` lists by whom. `make test` takes a drawn part.
"""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import pytest
from readings import DECLARED, SOURCES, STRANGERS, OneChild, Reading, is_possible

from murmuration.preference.data import rows as rows_module
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.formats.reading import Formatted
from murmuration.preference.data.formats.registry import FORMATS
from murmuration.preference.data.loading import load_data
from murmuration.preference.data.rows import RowReader
from murmuration.preference.data.schema import Schema

COMBINATIONS = [
    (declared, source)
    for declared in DECLARED
    for source in SOURCES
    if is_possible(declared, source)
]
PART = 190  # of the cases, one is taken every day
#: Cases that there are at least: of a day, and of all.
DAILY, WHOLE = 1_000, 190_000

#: Lines that a JSON array is no longer one with; a file that is one text holds all or nothing.
NO_ARRAY = {
    "a line of half an object", "a line of broken UTF-8", "a line of zero bytes", "an open quote",
    "a line of brackets", "a line of objects", "two objects in a line", "a line of no words",
    "a mark of byte order in a line", "a comma behind a line", "a line of digits",
}  # fmt: skip
#: Lines with another number of cells: beside rows of several lines, one may hold an open quote.
NO_ROW_OF_CSV = NO_ARRAY | {"rows of rows", "rows that are no objects", "blanks around a line"}
#: Rows that make a file of lines look like an array, where one comes first.
LIKE_AN_ARRAY = {"rows of rows", "a line of brackets"}
#: By kinds of sources, the hostile users by whom the whole may be refused.
MAY_REFUSE = {
    "a JSON array": NO_ARRAY,
    "JSON of lines": LIKE_AN_ARRAY,
    "files of many kinds": LIKE_AN_ARRAY | {"a deep cell", "deep texts"},
    "CSV": NO_ROW_OF_CSV,
    "CSV, more columns": NO_ROW_OF_CSV,
    "Parquet, more columns": {"a deep cell", "deep texts"},  # deeper than Parquet goes
}


@pytest.fixture(scope="module")
def child():
    with pytest.MonkeyPatch.context() as patch, OneChild(patch) as one:
        yield one


def cases(reading, part):
    return [each for each in STRANGERS if reading.drawn_for(each) // 1_000 % part == 0]


def compare(reading, strangers):
    """Compare what is read with each of the strangers; the number of cases, by what came of
    them."""
    counted, wrong = Counter(), {}
    source = reading.name.partition(" | ")[2]
    for stranger in strangers:
        try:
            alone, mixed = reading.compared(stranger)
        except InputError as error:
            counted["refused"] += 1
            if not (reading.may_refuse(stranger) or stranger in MAY_REFUSE.get(source, ())):
                wrong[stranger] = f"refused: {error}"[:900]
            continue
        if alone is None:
            counted["refused without a stranger"] += 1
            continue
        counted["read"] += 1
        if what := reading.changed(alone, mixed, stranger):
            wrong[stranger] = what
        elif what := reading.own_changed(reading.own(stranger), alone, mixed, stranger):
            wrong[stranger] = f"their own: {what}"
    assert not wrong, "\n".join(f"{each}: {what}" for each, what in wrong.items())
    assert counted.total() == len(strangers)
    return counted


@pytest.mark.parametrize(("declared", "source"), COMBINATIONS)
def test_a_drawn_stranger_changes_nothing(tmp_path, child, declared, source):
    reading = Reading(declared, source, tmp_path, child)
    compare(reading, cases(reading, PART))


@pytest.mark.slow
@pytest.mark.parametrize(("declared", "source"), COMBINATIONS)
def test_no_stranger_changes_anything(tmp_path, child, declared, source):
    counted = compare(Reading(declared, source, tmp_path, child), STRANGERS)
    assert counted["read"] > counted.total() * 0.6


def test_there_are_as_many_cases_as_stated(tmp_path):
    assert len(COMBINATIONS) * len(STRANGERS) >= WHOLE
    readings = (Reading(*each, tmp_path, None) for each in COMBINATIONS)
    assert sum(len(cases(reading, PART)) for reading in readings) >= DAILY


def test_every_format_is_among_them():
    """A new one is, by being registered."""
    there = {declared.schema.get("format") for declared in DECLARED.values()}
    assert there == {None, *FORMATS} - {"oasst"}
    assert type(FORMATS["oasst"].reads).__name__ == "WholeSource"  # which no run reads


@pytest.mark.parametrize("on_bad_rows", ["refuse", "skip", "isolate"])
@pytest.mark.parametrize("task", ["preference", "text"])
def test_what_needs_all_rows_is_read_by_no_run(tmp_path, on_bad_rows, task):
    (tmp_path / "rows.jsonl").write_text("{}\n")
    for name, form in FORMATS.items():
        if type(form.reads).__name__ == "WholeSource":
            with pytest.raises(InputError, match=r"convert it first|reads none"):
                schema = Schema(format=name, one_user_per_row=True)
                load_data(task, str(tmp_path / "rows.jsonl"), "", on_bad_rows, schema)


def _first_row_decides(monkeypatch):
    """Take the first row for what says whether a file is of the form."""
    rows = Formatted.rows

    def seeded(self, placed):
        placed = [*placed]
        if placed and (not isinstance(placed[0][2], Mapping) or self.form.missing(placed[0][2])):
            raise InputError("not of the form")
        return rows(self, placed)

    monkeypatch.setattr(Formatted, "rows", seeded)


def _mark_of_one_is_of_all(monkeypatch):
    """Take one flip probability for what says that all labels have one."""
    read, marked = RowReader.read, set()

    def seeded(self, row):
        if isinstance(row, Mapping) and row.get("flip_probability"):
            marked.add(self)
        return BadRow("no flip probability") if self in marked else read(self, row)

    monkeypatch.setattr(RowReader, "read", seeded)


def _equal_cells_are_the_same(monkeypatch):
    """Take True for 1, where a row with 1 was read."""
    monkeypatch.setattr(rows_module, "lru_cache", lambda maxsize, typed: lru_cache(maxsize))


def _unlike_texts_are_all_of_no_prompt(monkeypatch):
    """Take what all texts begin with for the prompt."""
    shared, before = rows_module.shared_words, []

    def seeded(chosen, rejected, pair):
        before.extend((chosen, rejected))
        if len({text.partition(" ")[0] for text in before}) > 1:
            return "no prompt", chosen, rejected
        return shared(chosen, rejected, pair)

    monkeypatch.setattr(rows_module, "shared_words", seeded)


@pytest.mark.parametrize(
    ("seed", "declared", "source", "stranger", "drawn"),  # 0: comes first, 14: last
    [
        (_first_row_decides, "arena ()", "JSONL", "empty rows", 0),
        (_first_row_decides, "likert ()", "a function, a node", "rows that are no objects", 0),
        (_mark_of_one_is_of_all, "pairs", "in memory", "a flip probability of 0.49", 0),
        (_equal_cells_are_the_same, "thumbs, of two", "JSONL, a node", "truth for ones", 14),
        (_unlike_texts_are_all_of_no_prompt, "pairs, their words are the prompt", "Parquet",
         "texts that share nothing", 0),
    ],
)  # fmt: skip
def test_a_seeded_fault_is_seen(
    tmp_path, child, monkeypatch, seed, declared, source, stranger, drawn
):
    monkeypatch.setattr(Reading, "drawn_for", lambda *_: drawn)
    compare(Reading(declared, source, tmp_path, child), [stranger])
    seed(monkeypatch)
    with pytest.raises(AssertionError, match=f"^{stranger}: "):
        compare(Reading(declared, source, tmp_path, child), [stranger])
