"""Rows of a JSON file that is one object, whatever wrote it."""

import gzip
import json

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements

ROWS = [
    {"user_id": f"u{n}", "prompt": "Tea?", "chosen": f"Yes {n}.", "rejected": "No."}
    for n in range(3)
]
COLUMNS = {name: {n: row[name] for n, row in enumerate(ROWS)} for name in ROWS[0]}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("end", ["json", "json.gz"])
def test_columns_are_read(tmp_path, end, indent):
    text = json.dumps(COLUMNS, indent=indent).encode()
    path = tmp_path / f"rows.{end}"
    path.write_bytes(gzip.compress(text) if end.endswith("gz") else text)
    read = load_judgements(str(path))
    assert read.user_ids == ("u0", "u1", "u2")
    assert [pair[0] for pair in read.responses] == ["Yes 0.", "Yes 1.", "Yes 2."]


def test_pandas_writes_such_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    for orient in (None, "columns", "records"):
        pandas.DataFrame(ROWS).to_json(tmp_path / "rows.json", orient=orient)
        assert load_judgements(str(tmp_path / "rows.json")).user_ids == ("u0", "u1", "u2")


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        ({"data": ROWS}, "with a list, and no row: .*records"),
        ({"train": ROWS, "test": ROWS[:1], "by": "us"}, "with a list, and no row: .*records"),
        ({"ann": ROWS[0], "bob": ROWS[1]}, "without numbers for rows: .*records"),
        (dict(enumerate(ROWS)), "without numbers for rows: .*records"),
    ],
)
def test_an_object_that_is_no_rows_says_how_to_write_them(tmp_path, whole, reason):
    (tmp_path / "rows.json").write_text(json.dumps(whole, indent=1))
    with pytest.raises(InputError, match=f"rows.json: .*{reason}"):
        load_judgements(str(tmp_path / "rows.json"))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "more",
    [{}, {"tags": ["a"], "at": {"x": 1}}, {"chosen": [{"role": "assistant", "content": "Yes 0."}]}],
)
def test_one_row_is_a_row(tmp_path, more, indent):
    (tmp_path / "rows.json").write_text(json.dumps(ROWS[0] | more, indent=indent))
    assert load_judgements(str(tmp_path / "rows.json")).responses == [("Yes 0.", "No.")]


def test_a_bad_row_in_an_object_is_its_own(tmp_path):
    for bad in ("", 7, None, [1, 2], {"user_id": "u9"}):
        whole = COLUMNS | {"chosen": COLUMNS["chosen"] | {1: bad}}
        (tmp_path / "rows.json").write_text(json.dumps(whole))
        read = load_judgements(str(tmp_path / "rows.json"), on_bad_rows="skip")
        assert (len(read), read.left_out) == (2, 1)


@pytest.mark.parametrize(
    ("first", "between", "last"),
    [
        ('{"data": [', "", "]}"),
        ('{"a": [', ",", "]}"),
        ('{"a":', ', "b":', "}"),
        ('{"data": [1,', ",", ",2]}"),
    ],
)
def test_nobody_joins_lines_of_others_to_one_object(tmp_path, first, between, last):
    lines = [*map(json.dumps, ROWS)]
    for rows in (lines, lines[:1]):
        text = f"\n{between}\n".join(rows)
        (tmp_path / "rows.json").write_text(f"{first}\n{text}\n{last}\n")
        read = load_judgements(str(tmp_path / "rows.json"), on_bad_rows="skip")
        assert len(read) == len(rows) and read.prompts == ["Tea?"] * len(rows)


def test_objects_over_several_lines_are_named(tmp_path):
    for name in ("rows.json", "rows.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(row, indent=1) for row in ROWS))
        with pytest.raises(InputError, match=f"{name}:1: broken JSON.*jq -c"):
            load_judgements(str(path))
