"""What entries have in common: choosing rows, means, processes, a bar."""

import math
import statistics

import numpy as np
import pytest
from matplotlib.figure import Figure

from murmuration.preference.data.errors import InputError
from murmuration.research.reproductions.entry import (
    Entry,
    Reproduction,
    distinct,
    in_processes,
    mean_sd,
    of_rows,
    where,
)

ROWS = [{"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 1, "b": "x"}, {"c": True}]


def test_where_looks_at_all_and_allows_several():
    assert where(ROWS, a=1) == [ROWS[0], ROWS[2]]
    assert where(ROWS, a=1, b="x") == [ROWS[2]]
    assert where(ROWS, a=(1, 2), b="x") == ROWS[1:3]
    assert where(ROWS, b=(None, "x"), a=(1,)) == [ROWS[0], ROWS[2]]
    assert where(ROWS, nothing=1) == []


def test_distinct_is_in_order_and_without_none():
    assert distinct(ROWS, "a") == [1, 2]
    assert distinct(ROWS, "b") == ["x"]


def test_a_single_value_has_no_deviation():
    assert mean_sd("error", [2.0]) == {"error_mean": 2.0, "error_sd": None}
    values = [1.0, 2.0, 4.0]
    expected = statistics.fmean(values), statistics.stdev(values)
    assert tuple(mean_sd("gap", values).values()) == expected


def test_remarks_and_plot_are_made_of_the_rows():
    asked, figure = [], Figure()

    def rows(quick):
        asked.append(quick)
        return ROWS

    def told(rows):
        return [f"{len(rows)} rows"]

    found = of_rows(rows, told, lambda rows: figure)(True)
    assert (found.rows, found.remarks, found.plot) == (ROWS, ["4 rows"], figure)
    assert of_rows(rows, told)(False).plot is None
    assert asked == [True, False]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_results_come_in_the_order_of_the_tasks(workers):
    assert list(in_processes(math.factorial, [5, 3, 4], workers)) == [120, 6, 24]


COMPUTED: list[object] = []


def doubled(task):
    COMPUTED.append(task)
    if task == "broken":
        raise KeyboardInterrupt
    return {("twice", 1): np.array([task, task], dtype=np.float32), "at": (task, None, True)}


def entry(tasks):
    def compute(quick):
        rows = [{"sum": float(each["twice", 1].sum())} for each in in_processes(doubled, tasks, 1)]
        return Reproduction(rows)

    return Entry("doubles", compute)


@pytest.fixture(autouse=True)
def _nothing_computed():
    COMPUTED.clear()


def test_what_is_interrupted_goes_on_and_is_the_same(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        entry([1, 2, "broken"]).computed("doubles", False, tmp_path)
    assert COMPUTED == [1, 2, "broken"]
    result = entry([1, 3, 2]).computed("doubles", False, tmp_path)
    assert COMPUTED == [1, 2, "broken", 3]
    assert result.rows == entry([1, 3, 2]).computed("doubles", False, None).rows == [
        {"sum": 2.0}, {"sum": 6.0}, {"sum": 4.0}
    ]  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        entry([1, "broken"]).computed("halves", False, tmp_path)
    result.write(tmp_path, "doubles")
    COMPUTED.clear()
    halves = entry([1]).computed("halves", False, tmp_path)  # another's parts are left
    assert COMPUTED == []
    halves.write(tmp_path, "halves")
    for written in tmp_path.glob("halves.*"):
        written.unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["doubles.csv", "doubles.json"]


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry([1]).computed("doubles", False, None)
    assert not [*tmp_path.iterdir()]


def test_people_are_needed_unless_quick(tmp_path):
    people = Entry("about", lambda quick: Reproduction([]), lambda *_: Reproduction(ROWS), "a file")
    with pytest.raises(InputError, match="thing needs --data, a file, and --out"):
        people.computed("thing", False, None)
    assert people.computed("thing", False, tmp_path, tmp_path).rows == ROWS
    assert people.computed("thing", True, None).rows == []


def test_the_quick_form_has_no_verdict():
    rows = [{"a": 1, "verdict": "agrees"}, {"a": 2}]
    entry = Entry("about", lambda quick: Reproduction(rows, ["agrees"], {"seeds": 2}))
    quick = entry.computed("thing", True, None)
    assert quick.rows == [{"a": 1}, {"a": 2}] and "agrees" not in "".join(quick.remarks)
    assert quick.extra == {"seeds": 2}
    full = entry.computed("thing", False, None)
    assert (full.rows, full.remarks) == (rows, ["agrees"])
