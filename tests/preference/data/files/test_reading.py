"""Rows of files: of every kind alike, each with its place, and none at another's cost."""

import csv
import gzip
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.files import reading
from murmuration.preference.data.files.columnar import FileBudget
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema

ROWS = [
    {"user_id": "b", "prompt": "p, q", "chosen": 'a "good"\nanswer', "rejected": "é", "tie": False},
    {"user_id": "a", "prompt": "p", "chosen": "yes", "rejected": "no", "tie": True},
    {"user_id": "b", "prompt": "p", "chosen": "maybe", "rejected": "never", "tie": False},
]


def as_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows):
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_parquet(rows):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


KINDS = {"jsonl": as_jsonl, "csv": as_csv, "parquet": as_parquet}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def refusal(source, **options):
    with pytest.raises(InputError) as caught:
        load_judgements(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


BEST_OF_4 = Schema("top-1", 4)
SHOWN = {"user_id": "b", "prompt": "p", "responses": ["x", "y, z", "w"]}


@pytest.mark.parametrize("kind", KINDS)
def test_judgements_over_several_responses_in_every_kind_of_file(write, kind):
    def listed(row):
        inside = kind == "csv"
        return {k: json.dumps(v) if inside and k != "user_id" else v for k, v in row.items()}

    best = [{**SHOWN, "best": [1]}, {**SHOWN, "best": [0, 2], "user_id": "a"}]
    path = write(f"best.{kind}", KINDS[kind]([listed(row) for row in best]))
    judgements = load_judgements(path, schema=BEST_OF_4)
    assert (judgements.kind, judgements.most_responses) == ("top-1", 4)
    assert judgements.responses == [("y, z", "x", "w"), ("x", "w", "y, z")]
    assert judgements.y_R.tolist() == [1, 0.5]
    rows = [listed({**SHOWN, "ranking": [3, 1, 2]})]
    path = write(f"ranked.{kind}", KINDS[kind](rows))
    ranked = load_judgements(path, schema=Schema("ranking", 3))
    assert (ranked.kind, ranked.responses) == ("ranking", [("y, z", "w", "x")])


def test_columns_that_are_empty_in_other_rows_do_not_matter(write):
    """One table for all kinds, as a data frame would write it."""
    rows = [{**SHOWN, "best": 1, "ranking": None}, {**SHOWN, "best": 0, "ranking": None}]
    path = write("rows.parquet", as_parquet(rows))
    assert len(load_judgements(path, schema=BEST_OF_4)) == 2


def test_files_of_a_folder_are_of_the_kind_that_is_declared(write, tmp_path):
    write("1.jsonl", as_jsonl(ROWS))
    rows = [{**SHOWN, "best": 0}, {**SHOWN, "best": 0, "responses": [*"abcde"]}]
    second = write("2.jsonl", as_jsonl(rows))
    assert refusal(str(tmp_path)).startswith(
        f"{second}:1: a row of kind top-1 over 3 responses, and pairs are declared: pass --kind "
        "top-1 --responses 3"
    )
    judgements = load_judgements(str(tmp_path), on_bad_rows="skip")
    assert (len(judgements), judgements.left_out) == (3, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_kind_of_file_gives_the_same(write, kind, packed):
    content = KINDS[kind](ROWS)
    name = f"rows.{kind}"
    path = write(name + ".gz", gzip.compress(content)) if packed else write(name, content)
    judgements = load_judgements(path)
    assert judgements.user_ids == ("b", "a")
    assert judgements.prompts == ["p, q", "p", "p"]
    assert judgements.responses == [('a "good"\nanswer', "é"), ("maybe", "never"), ("yes", "no")]
    assert judgements.y_R.tolist() == [1, 1, 0.5]


def test_a_folder_is_its_files_in_order_of_names(write, tmp_path, monkeypatch):
    write("3.csv", as_csv(ROWS[2:]))
    write("2.csv", as_csv(ROWS[1:2]))
    write("1.jsonl.gz", gzip.compress(as_jsonl(ROWS[:1])))
    write("README.md", "not judgements")
    write(".hidden.jsonl", "broken")
    (tmp_path / "folder.jsonl").mkdir()
    judgements = load_judgements(str(tmp_path))
    assert judgements.user_ids == ("b", "a")
    assert judgements.start_U.tolist() == [0, 2, 3]
    backwards = sorted(tmp_path.glob("*"), reverse=True)
    expected = [pair[0] for pair in judgements.responses]
    monkeypatch.setattr(Path, "iterdir", lambda self: iter(backwards))
    assert [pair[0] for pair in load_judgements(str(tmp_path)).responses] == expected
    assert load_judgements(str(tmp_path)).user_ids == ("b", "a")


def test_a_folder_without_judgements(tmp_path):
    assert "the folder holds no .jsonl, .csv, .parquet" in refusal(str(tmp_path))


def test_at_a_node_a_file_that_cannot_be_read_is_left_out_alone(write, tmp_path):
    """Each user may have a file of their own; and a folder may be empty."""
    assert load_judgements(str(tmp_path), on_bad_rows="isolate").user_ids == ()
    write("1.jsonl.gz", b"\x1f\x8b and no more")
    write("2.csv", as_csv(ROWS))
    write("3.parquet", b"PAR1")
    path = write("4.jsonl", as_jsonl(ROWS[:1]))
    judgements = load_judgements(str(tmp_path), on_bad_rows="isolate")
    assert judgements.user_ids == load_judgements(path).user_ids
    assert judgements.left_out == 3
    reasons = "".join(judgements.set_aside)
    for reason in ("1.jsonl.gz:1: damaged or cut", "2.csv:1: in CSV", "3.parquet:1: not readable"):
        assert reason in reasons


def renamed_column(content, name=b"other"):
    """A Parquet file of which a column's name is no text; pyarrow says so in Python's own error."""
    assert name in content
    return content.replace(name, b"\xff" * len(name))


@pytest.mark.parametrize(
    "broken",
    [
        lambda path: path.write_bytes(renamed_column(as_parquet([ROWS[0] | {"other": 1}]))),
        lambda path: path.symlink_to("z" * 300),
        lambda path: path.symlink_to(path),
        lambda path: path.symlink_to("nowhere"),
    ],
    ids=["column that is no text", "name that is too long", "loop", "link that leads nowhere"],
)
def test_a_file_that_fails_in_an_unusual_way_is_its_users_loss_too(write, tmp_path, broken):
    write("b.jsonl", as_jsonl(ROWS[:1]))
    broken(tmp_path / "a.parquet")
    judgements = load_judgements(str(tmp_path), on_bad_rows="isolate")
    assert (judgements.user_ids, len(judgements), judgements.left_out) == (("b",), 1, 1)
    assert judgements.set_aside[0].startswith(f"{tmp_path / 'a.parquet'}:1: ")
    assert refusal(str(tmp_path)).startswith(f"{tmp_path / 'a.parquet'}: ")


def test_what_a_row_quotes_does_not_pile_up_in_reasons(write):
    rows = [{"user_id": "a", "c" * 100_000: 1}, *ROWS]
    judgements = load_judgements(write("rows.jsonl", as_jsonl(rows)), on_bad_rows="isolate")
    assert len(judgements.set_aside[0]) < 1000


@pytest.mark.parametrize(
    "name",
    ["~nobody-of-that-name/rows.jsonl", "x" * 5000 + ".jsonl"],
    ids=["home of nobody", "name that is too long"],
)
def test_a_place_that_cannot_be_looked_at(name):
    assert refusal(name).endswith("no such file or folder")


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.parquet.gz", "./gone", "~/gone/x", "a b"])
def test_a_missing_file_is_not_asked_from_the_hub(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refusal(name) == f"{name}: no such file or folder"


def test_broken_json_names_its_line(write):
    path = write("rows.jsonl", as_jsonl(ROWS[:1]) + b"\n" + b'{"user_id": "a", "pro')
    assert refusal(path).startswith(f"{path}:3: broken JSON: ")
    judgements = load_judgements(path, on_bad_rows="skip")
    assert len(judgements) == 1
    assert judgements.set_aside[0].startswith(f"{path}:3: broken JSON: ")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1, 2]", "expected an object"),
        (b'"text"', "expected an object"),
        (b"\xff{", "(not valid UTF-8 at byte 1)"),
        (json.dumps(ROWS[0]).encode("utf-16"), "save the file as UTF-8"),
        (
            json.dumps(ROWS[0]).encode()[:-1] + b', "chosen": "x"}',
            "a name stands in one record twice",
        ),
        (
            json.dumps(ROWS[0] | {"more": 1}).encode().replace(b": 1}", b': {"a": 1, "a": 2}}'),
            "twice",
        ),
        (
            b'{"user_id": "a", "prompt": "\xff", "chosen": "x", "rejected": "y"}',
            "not valid Unicode",
        ),
        (b"[" * 100_000, "broken JSON"),
        (b'{"user_id": ' + b"9" * 5000 + b"}", "broken JSON"),
        (json.dumps(ROWS[0] | {"chosen": "\ud800"}).encode(), "not valid Unicode"),
    ],
)
def test_bad_lines(write, line, reason):
    path = write("rows.jsonl", as_jsonl(ROWS) + line + b"\n")
    message = refusal(path)
    assert message.startswith(f"{path}:4: ")
    assert reason in message
    assert len(message) < 1000


def test_byte_order_marks(write):
    for name, content in (("rows.jsonl", as_jsonl(ROWS)), ("rows.csv", as_csv(ROWS))):
        assert len(load_judgements(write(name, b"\xef\xbb\xbf" + content))) == 3


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_of_spreadsheets(write, separator):
    content = as_csv(ROWS).decode()
    lines = list(csv.reader(io.StringIO(content)))
    out = io.StringIO()
    csv.writer(out, delimiter=separator).writerows(lines)
    expected = load_judgements(write("comma.csv", content)).responses
    for start in ("", "\ufeff", f"sep={separator}\r\n", f"\ufeffsep={separator}\n"):
        path = write("rows.csv", start + out.getvalue())
        assert load_judgements(path).responses == expected
    broken = "\n".join([separator.join(ROWS[0]), "x"])
    assert "rows.csv:3: 1 fields" in refusal(write("rows.csv", f"sep={separator}\n{broken}"))


HEAD = "user_id,prompt,chosen,rejected\n"
NOBODY = [*ROWS, ROWS[1] | {"user_id": ""}]  # row 1 of CSV covers two lines


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("rows.jsonl", "", ": no judgements: there are no rows"),
        ("rows.csv", "", ": no judgements: there are no rows"),
        ("rows.xlsx", "x", "not a kind of file"),
        ("rows.jsonl.gz", as_jsonl(ROWS), "gzip"),
        ("rows.parquet", as_jsonl(ROWS), "not readable as Parquet"),
        ("rows.parquet", b"", "not readable as Parquet"),
        ("rows.parquet", as_parquet(NOBODY), ":4: 'user_id' is empty"),
        ("rows.csv", as_csv(NOBODY), ":6: 'user_id' is empty"),
        ("rows.csv", f"{HEAD}u,p,x\n", ":2: 3 fields under a header of 4"),
        ("rows.csv", f"{HEAD}u,p,x,y,z\n", ":2: 5 fields under a header of 4"),
        ("rows.csv", "user_id,prompt,chosen,chosen\nu,p,x,y\n", "names a column twice"),
        ("rows.csv", f'{HEAD}u,p,x,"y', "not readable as CSV"),
        ("rows.csv", f"{HEAD}u,p,x,".encode() + b"\xff\n", "not valid Unicode"),
        ("rows.csv", f"{HEAD}u,schön,x,y\n".encode("cp1252"), "save the file as UTF-8"),
        ("rows.csv", as_csv(ROWS).decode().encode("utf-16"), "save it as CSV UTF-8"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(write, name, content, reason):
    path = write(name, content)
    message = refusal(path)
    assert message.startswith(path) and reason in message


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_off_gzip_file(write, kind):
    content = gzip.compress(KINDS[kind](ROWS * 50))
    path = write(f"rows.{kind}.gz", content[: len(content) // 2])
    assert refusal(path, on_bad_rows="skip").startswith(f"{path}: damaged or cut off gzip file")


SMALL = FileBudget(least_bytes=2**20, line_bytes=2**16, parts=1_000)
LINE = b'{"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}\n'
BOMBS = {
    "zeros": ("a.jsonl.gz", bytes(2**22), "would become more than 1,048,576 bytes"),
    "empty lines": ("a.jsonl.gz", b"\n" * 10_000, "would become"),
    "CSV of zeros": ("a.csv.gz", bytes(2**22), "would become"),
    "array of zeros": ("a.json.gz", b"[" + b" " * 2**22, "would become"),
    "array of nothings": ("a.json.gz", b"[" + b"{}," * 100_000, "would become"),
    "CSV of many columns": ("a.csv", b"a" + b",a" * 70_000, "a line of more than"),
    "CSV of one line": ("a.csv", b"x" * 100_000, "a line of more than"),
}


@pytest.mark.parametrize(("name", "content", "reason"), BOMBS.values(), ids=BOMBS)
def test_a_packed_file_becomes_no_more_than_it_may(write, monkeypatch, name, content, reason):
    monkeypatch.setattr(reading, "BUDGET", SMALL)
    path = write(name, gzip.compress(content) if name.endswith(".gz") else content)
    message = refusal(path)
    assert message.startswith(f"{path}: ") and reason in message and "\n" not in message


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt": ' + b"[" * 100_000, "a line of more than 65,536 bytes"),
        (b'{"prompt": ' + b"[" * 60_000, "a line of more than 1,000 values"),
        (b'{"prompt": ' + b"[" * 900, "broken JSON"),
        (b'{"prompt": [' + b"{}," * 20_000 + b"{}]}", "a line of more than 1,000 values"),
        (b'{"prompt": ' + b"9" * 5_000 + b"}", "broken JSON"),
    ],
    ids=["endless", "deep", "broken", "wide", "a number of 5,000 digits"],
)
def test_a_line_is_its_own_loss(write, monkeypatch, line, reason):
    monkeypatch.setattr(reading, "BUDGET", SMALL)
    judgements = load_judgements(write("a.jsonl", line + b"\n" + LINE), on_bad_rows="isolate")
    assert (judgements.user_ids, judgements.left_out) == (("u",), 1)
    assert reason in judgements.set_aside[0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "cell", ["x" * 200_000, '"' + "x, \n" * 60_000 + '"', ",".join("x" * 3_000), "\udcff"]
)
def test_a_row_of_csv_is_its_own_loss(write, monkeypatch, cell, packed):
    """Cells beyond the limit of Python's module, lines that are too long, bytes that are none."""
    monkeypatch.setattr(reading, "BUDGET", replace(SMALL, least_bytes=2**22))
    lines = ["user_id,prompt,chosen,rejected", "u,p,a,b", f"eve,p,{cell},b", "v,p,c,d", ""]
    content = "\n".join(lines).encode(errors="surrogateescape")
    path = write("a.csv.gz" if packed else "a.csv", gzip.compress(content) if packed else content)
    judgements = load_judgements(path, on_bad_rows="skip")
    assert judgements.left_out == 1
    others = judgements.select([judgements.user_ids.index(user) for user in "uv"])
    assert others.responses == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize("on_bad_rows", ["refuse", "skip"])
def test_a_file_that_cannot_be_split_by_user_is_refused_whole(write, on_bad_rows):
    """One bit, to whoever holds it: no row of it is read for another."""
    head, good = "user_id,prompt,chosen,rejected\n", "u,p,a,b\n"
    packed = gzip.compress(b"".join([LINE] * 999))[:-9]
    for name, content in (
        ("a.csv", f'{head}{good}eve,p,"x,b\n{good}'.encode()),
        ("a.json", b"[" + LINE.strip() + b",{]"),
        ("a.jsonl.gz", packed),
    ):
        assert refusal(write(name, content), on_bad_rows=on_bad_rows)


def test_an_open_quote_in_csv_takes_nobodys_rows(tmp_path):
    """It closed at another's quote, and whose rows were between was not read."""
    path = tmp_path / "rows.csv"
    rows = "".join(
        f'u{n},"\n\nHuman: Q\n\nAssistant: a","\n\nHuman: Q\n\nAssistant: b"\n' for n in range(3)
    )
    path.write_text(f'user_id,chosen,rejected\n{rows}x,y\nx,"\n{rows}')
    with pytest.raises(
        InputError, match=r"rows\.csv: not readable as CSV: .* a quote that is open"
    ):
        load_judgements(str(path), on_bad_rows="skip")
    path.write_text(f"user_id,chosen,rejected\n{rows}")
    assert load_judgements(str(path), on_bad_rows="skip").user_ids == ("u0", "u1", "u2")
    path.write_text("user_id,prompt,chosen,rejected\nu,Q,a,b\nx,y\nv,Q,b,a\n")
    assert load_judgements(str(path), on_bad_rows="skip").user_ids == ("u", "v")


def test_a_line_is_read_alike_wherever_it_stands(tmp_path):
    """A mark of byte order was taken away in the first line alone."""
    path = tmp_path / "rows.jsonl"
    line = '\ufeff{"user_id": "%s", "prompt": "Q", "chosen": "a", "rejected": "b"}\n'
    path.write_text(line % "u" + line % "v", encoding="utf-8")
    assert load_judgements(str(path)).user_ids == ("u", "v")


# A file that is one object, whatever wrote it.

PAIRS = [
    {"user_id": f"u{n}", "prompt": "Tea?", "chosen": f"Yes {n}.", "rejected": "No."}
    for n in range(3)
]
COLUMNS = {name: {n: row[name] for n, row in enumerate(PAIRS)} for name in PAIRS[0]}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("end", ["json", "json.gz"])
def test_columns_are_read(tmp_path, end, indent):
    text = json.dumps(COLUMNS, indent=indent).encode()
    path = tmp_path / f"rows.{end}"
    path.write_bytes(gzip.compress(text) if end.endswith("gz") else text)
    read = load_judgements(str(path))
    assert read.user_ids == ("u0", "u1", "u2")
    assert [pair[0] for pair in read.responses] == ["Yes 0.", "Yes 1.", "Yes 2."]


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        ({"data": PAIRS}, "with a list, and no row: .*records"),
        ({"train": PAIRS, "test": PAIRS[:1], "by": "us"}, "with a list, and no row: .*records"),
        ({"ann": PAIRS[0], "bob": PAIRS[1]}, "without numbers for rows: .*records"),
        (dict(enumerate(PAIRS)), "without numbers for rows: .*records"),
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
    (tmp_path / "rows.json").write_text(json.dumps(PAIRS[0] | more, indent=indent))
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
    lines = [*map(json.dumps, PAIRS)]
    for rows in (lines, lines[:1]):
        text = f"\n{between}\n".join(rows)
        (tmp_path / "rows.json").write_text(f"{first}\n{text}\n{last}\n")
        read = load_judgements(str(tmp_path / "rows.json"), on_bad_rows="skip")
        assert len(read) == len(rows) and read.prompts == ["Tea?"] * len(rows)


def test_objects_over_several_lines_are_named(tmp_path):
    for name in ("rows.json", "rows.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(json.dumps(row, indent=1) for row in PAIRS))
        with pytest.raises(InputError, match=f"{name}:1: broken JSON.*jq -c"):
            load_judgements(str(path))
