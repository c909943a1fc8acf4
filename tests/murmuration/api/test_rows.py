"""Rows in memory: the same run as of a file with them, the same refusals, and nothing left over."""

import json
import stat
from pathlib import Path

import numpy as np
import pandas
import pytest
from datasets import Dataset, DatasetDict

from murmuration import Run, compare, train
from murmuration.preference.data.errors import InputError

SMALL = {"epsilon": 0.5, "delta": 1e-3, "rounds": 2, "cohort": 10, "seed": 1}
pytestmark = pytest.mark.usefixtures("quick_runs")


class Polars:
    """As polars has it: no ``to_dict`` of rows, but these."""

    def __init__(self, rows):
        self.columns, self._rows = list(rows[0]), rows

    def iter_rows(self, *, named):
        assert named
        return iter(self._rows)


def rows_of(file):
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


FORMS = {
    "list": lambda rows: rows,
    "generator": lambda rows: (row for row in rows),
    "function": lambda rows: lambda: rows,
    "pandas": pandas.DataFrame,
    "polars": Polars,
    "datasets": Dataset.from_list,
}


@pytest.fixture
def of_file(crowd, crowd_test, tmp_path):
    return train(crowd, test=crowd_test, out=tmp_path / "of-file", **SMALL)


@pytest.mark.parametrize("form", FORMS)
def test_rows_in_memory_are_trained_on_like_those_of_a_file(
    form, of_file, crowd, crowd_test, tmp_path
):
    data, test = (FORMS[form](rows_of(file)) for file in (crowd, crowd_test))
    run = train(data, test=test, out=tmp_path / "r", **SMALL)
    assert run.model.theta_D.tobytes() == of_file.model.theta_D.tobytes()
    assert run.promise.statement == of_file.promise.statement
    assert run.promise.caveats == of_file.promise.caveats
    for name in ("data", "test"):
        mode = (run.path / "private" / f"{name}.jsonl").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    assert stat.S_IMODE((run.path / "private").stat().st_mode) == 0o700
    open_files = [p for p in run.path.rglob("*") if p.is_file() and "private" not in p.parts]
    for secret in ("u003", "Wait and compare prices."):
        assert not [p for p in open_files if secret.encode() in p.read_bytes()]


def vote(row, number):
    """A row as an arena exports it; every other one has the preferred response on side b."""
    sides = "ab" if number % 2 else "ba"
    won = "tie" if row.get("tie") else f"model_{sides[0]}"
    texts = zip(sides, (row["chosen"], row["rejected"]), strict=True)
    if row.get("tie"):
        texts = zip("ab", (row["chosen"], row["rejected"]), strict=True)
    prompt = {"role": "user", "content": row["prompt"]}
    talks = {f"conversation_{s}": [prompt, {"role": "assistant", "content": t}] for s, t in texts}
    return {"judge": row["user_id"], "model_a": "m", "model_b": "n", "winner": won} | talks


@pytest.mark.parametrize("form", ["list", "pandas", "datasets"])
def test_an_export_is_trained_on_like_the_same_rows_in_our_form(
    form, of_file, crowd, crowd_test, tmp_path
):
    data, test = (
        FORMS[form]([vote(row, number) for number, row in enumerate(rows_of(file))])
        for file in (crowd, crowd_test)
    )
    run = train(data, test=test, format="arena", out=tmp_path / "r", **SMALL)
    assert run.model.theta_D.tobytes() == of_file.model.theta_D.tobytes()
    assert run.promise.statement == of_file.promise.statement


def test_missing_cells_of_a_frame_are_missing(crowd, tmp_path):
    rows = rows_of(crowd)
    frame = pandas.DataFrame([{**rows[0], "tie": True}, *rows])
    assert frame["tie"].isna().any()
    train(frame, out=tmp_path / "r", **SMALL)
    written = rows_of(tmp_path / "r" / "private" / "data.jsonl")
    assert written[0]["tie"] is True
    assert {row["tie"] for row in written[1:]} == {None}


def test_arrays_and_numbers_of_numpy_are_plain(crowd, tmp_path):
    rows = [{**row, "user_id": np.int64(row["user_id"][1:])} for row in rows_of(crowd)]
    for row in rows:
        row["chosen"] = np.array([{"role": "assistant", "content": row["chosen"]}], dtype=object)
        row["rejected"] = [{"role": "assistant", "content": row["rejected"]}]
    assert train(rows, out=tmp_path / "r", **SMALL).result["rounds"] == 2


BAD = {
    "no mapping": 3,
    "no text": {"user_id": "u003", "prompt": "p", "chosen": object(), "rejected": "r"},
    "bytes": {"user_id": "u003", "prompt": "p", "chosen": b"c", "rejected": "r"},
    "a key that is no text": {(1, 2): "x"},
    "half a character": {"user_id": "u003", "prompt": "p", "chosen": "\ud800", "rejected": "r"},
    "nobody's": {"prompt": "p", "chosen": "c", "rejected": "r"},
}
BAD["itself"] = {"user_id": "u003", "prompt": "p", "chosen": "c", "rejected": "r", "more": {}}
BAD["itself"]["more"]["again"] = BAD["itself"]


@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_is_refused_by_its_number_or_left_out_by_itself(what, crowd, tmp_path):
    rows = rows_of(crowd)
    with pytest.raises(InputError, match=r"^data, row 6: "):
        train([*rows[:5], BAD[what], *rows[5:]], out=tmp_path / "r", **SMALL)
    assert not (tmp_path / "r").exists()
    some = train([*rows[:5], BAD[what], *rows[5:]], out=tmp_path / "s", on_bad_rows="skip", **SMALL)
    without = train(rows, out=tmp_path / "w", on_bad_rows="skip", **SMALL)
    assert some.model.theta_D.tobytes() == without.model.theta_D.tobytes()


@pytest.mark.parametrize(
    "wrong", [3, b"rows", {"user_id": "a"}, DatasetDict(), object(), lambda: 3, []]
)
def test_what_has_no_rows_is_refused_in_a_line(wrong, tmp_path):
    with pytest.raises(InputError) as refused:
        train(wrong, out=tmp_path / "r", **SMALL)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "r").exists()


def test_a_folder_that_holds_something_is_not_written_to(crowd, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        train(rows_of(crowd), out=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_run_goes_on_with_its_own_rows_only(crowd, tmp_path):
    rows, out = rows_of(crowd), tmp_path / "r"
    run = train(rows, out=out, **SMALL)
    for again in ({}, {"data": rows}):
        assert train(out=out, resume=True, **again) == run
    with pytest.raises(InputError, match="these rows are not those that were begun with"):
        train(rows[1:], out=out, resume=True)
    with pytest.raises(InputError, match="these rows are not those that were begun with"):
        train(out=out, test=rows, resume=True)
    with pytest.raises(InputError, match="data was"):
        train(crowd, out=out, resume=True)
    assert Run.load(out) == run
    with pytest.raises(InputError, match="resume needs out"):
        train(rows, resume=True)


def test_strategies_are_compared_on_rows_in_memory(crowd, tmp_path):
    rows = rows_of(crowd)
    given = {"out": tmp_path / "c", "seeds": 1, "delta": 1e-3, "rounds": 2, "cohort": 10}
    first = compare(["uls"], [0.5], data=rows, **given)
    assert compare(["uls"], [0.5], data=rows, **given) == first
    with pytest.raises(InputError, match="these rows are not those that were begun with"):
        compare(["uls"], [0.5], data=rows[1:], **given)
