"""Parquet and Arrow files: decoded by need, in a child, within limits; a bomb is one line."""

import builtins
import gzip
import io
import json
import subprocess
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.files import columnar, columnar_child, reading
from murmuration.preference.data.files.columnar import ColumnarReader, FileBudget, NotReadable
from murmuration.preference.data.loading import columns_of, load_data, load_judgements

ROWS = [
    {"user_id": user, "prompt": "p", "chosen": chosen, "rejected": "b"}
    for user, chosen in (("u", "a"), ("v", "c"), ("u", "é"))
]
MIB = 2**20


def parquet(columns, **options):
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **{"compression": "zstd", **options})
    return out.getvalue()


def column(value, rows):
    """So many rows of one value, as the few bytes that Parquet makes of them."""
    indices = pa.array([0], pa.int32()).take(pa.array([0] * rows, pa.int32()))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


def bomb(name, value="x" * MIB, rows=4096):
    """A file of a few kilobytes; one of its columns stands for gigabytes."""
    columns = {field: column(text, rows) for field, text in ROWS[0].items()}
    return parquet(columns | {name: column(value, rows)})


def arrow(rows, kind=pa.ipc.new_file, **options):
    out, table = io.BytesIO(), pa.Table.from_pylist(rows)
    with kind(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return out.getvalue()


def test_ids_are_read_as_those_in_memory(tmp_path):
    """Data bases give whole numbers as decimals; a date is nobody."""
    for ids, names in (
        (pa.array([Decimal(7), Decimal(8), Decimal(7)], pa.decimal128(38, 0)), ("7", "8")),
        (pa.array([Decimal("7.00"), Decimal("8.5"), None], pa.decimal128(10, 2)), ("7",)),
        (pa.array([2**63, 7, 7], pa.uint64()), (str(2**63), "7")),
        (pa.array([7.0, None, 2.0**53]), ("7",)),
        (pa.array([True, False, True]), ()),
        (pa.array([1, 2, 3], pa.date32()), ()),
        (pa.array([1, 2, 3], pa.timestamp("ns")), ()),
        (pa.array([b"u1", b"u2", b"u3"]), ()),
    ):
        table = pa.Table.from_pylist(ROWS).set_column(0, "user_id", ids)
        pq.write_table(table, tmp_path / "rows.parquet")
        read = load_judgements(str(tmp_path / "rows.parquet"), on_bad_rows="isolate")
        assert read.user_ids == names, ids.type


FORMS = {
    "a.parquet": parquet(pa.Table.from_pylist(ROWS).to_pydict()),
    "a.arrow": arrow(ROWS),
    "b.arrow": arrow(ROWS, pa.ipc.new_stream, compression="zstd"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_what_is_read(tmp_path, name, packed):
    file = tmp_path / (name + ".gz" * packed)
    file.write_bytes(gzip.compress(FORMS[name]) if packed else FORMS[name])
    found = load_judgements(str(file))
    assert (found.user_ids, found.start_U.tolist()) == (("u", "v"), [0, 2, 3])
    assert [pair[0] for pair in found.responses] == ["a", "é", "c"]
    assert columns_of(str(file)) == list(ROWS[0])


@pytest.mark.parametrize("name", ["notes", "x.chosen"])
def test_a_bomb_in_a_column_that_is_not_used_is_not_touched(tmp_path, name):
    """It took 4 GB of memory, and up to 92 s."""
    (tmp_path / "a.parquet").write_bytes(content := bomb(name))
    assert len(content) < 5_000
    found = load_judgements(str(tmp_path / "a.parquet"))
    assert (found.user_ids, len(found)) == (("u",), 4096)
    assert columns_of(str(tmp_path / "a.parquet"))[-1] == name


SMALL = FileBudget(least_bytes=2**23, line_bytes=2**22, memory=2**27)
BOMBS = {
    "one text, many rows": (lambda: bomb("chosen", "x" * 90_000), "in a row group that"),
    "so many rows": (lambda: bomb("notes", "x", rows=60_000), "in a row group that"),
    "one long text": (lambda: bomb("chosen", "x" * 5 * MIB, rows=1), "a row of more"),
    "needs memory": (lambda: bomb("chosen", "x" * 100 * MIB, rows=1), "in a row group that"),
    "an endless list": (
        lambda: parquet({"responses": pa.array([[0] * 10**6]), "prompt": ["p"]}),
        "a row of more",
    ),
    "a.arrow": (
        lambda: arrow([{**ROWS[0], "chosen": "x" * 100 * MIB}], compression="zstd"),
        "bytes of memory",
    ),
    "a.parquet.gz": (lambda: gzip.compress(bytes(10 * MIB)), "would become"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_line(tmp_path, monkeypatch, name):
    monkeypatch.setattr(reading, "BUDGET", SMALL)
    file = tmp_path / (name if name.startswith("a.") else "a.parquet")
    content, reason = BOMBS[name]
    file.write_bytes(packed := content())
    assert len(packed) < 20_000
    for source in (file, tmp_path):
        with pytest.raises(InputError, match=reason) as refused:
            load_judgements(str(source))
        assert str(refused.value).startswith(f"{file}:") and "\n" not in str(refused.value)
    # At a node the others' files, which the next child reads, stay.
    (tmp_path / "b.parquet").write_bytes(FORMS["a.parquet"])
    found = load_judgements(str(tmp_path), on_bad_rows="isolate")
    assert found.left_out and {"u", "v"} <= {*found.user_ids}
    assert len(found.select([found.user_ids.index("v")])) == 1


OTHERS = [{"user_id": f"o{n}", "prompt": "p", "chosen": f"{n}", "rejected": "b"} for n in range(9)]


def groups(*parts, name="user_id"):
    """A file with a row group for each part."""
    out = io.BytesIO()
    tables = [pa.Table.from_pylist(rows) for rows in parts]
    tables = [table.rename_columns([name, *table.column_names[1:]]) for table in tables]
    with pq.ParquetWriter(out, tables[0].schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
    return out.getvalue()


def hostile(text, rows=1):
    return [{"user_id": "eve", "prompt": "p", "chosen": text, "rejected": "b"}] * rows


@pytest.mark.parametrize("on_bad_rows", ["skip", "isolate"])
@pytest.mark.parametrize("name", ["user_id", "worker", "who"])
@pytest.mark.parametrize(
    "rows", [hostile("x" * 100 * MIB), hostile("x" * MIB, 99)], ids=["memory", "bytes"]
)
def test_a_row_group_of_one_user_takes_nothing_from_others(
    tmp_path, monkeypatch, rows, name, on_bad_rows
):
    monkeypatch.setattr(reading, "BUDGET", SMALL)
    path, columns = tmp_path / "a.parquet", {"user_id": "who"} if name == "who" else None
    path.write_bytes(groups(OTHERS[:4], rows, OTHERS[4:], name=name))
    judgements = load_judgements(str(path), columns=columns, on_bad_rows=on_bad_rows)
    assert set(judgements.user_ids) == {"eve", *(row["user_id"] for row in OTHERS)}
    others = [judgements.user_ids.index(row["user_id"]) for row in OTHERS]
    assert [pair[0] for pair in judgements.select(others).responses] == [*"012345678"]
    # Where a group is several users', the whole file is refused: one bit, to whoever holds it.
    path.write_bytes(groups(OTHERS[:4] + rows, OTHERS[4:], name=name))
    with pytest.raises(InputError, match=r"it would become more|bytes of memory"):
        load_judgements(str(path), columns=columns, on_bad_rows=on_bad_rows)


@pytest.mark.parametrize("on_bad_rows", ["skip", "isolate"])
def test_rows_that_are_too_long_count_for_nothing(tmp_path, monkeypatch, on_bad_rows):
    monkeypatch.setattr(reading, "BUDGET", replace(SMALL, memory=2**28))
    rows = [*OTHERS[:4], *hostile("x" * 5 * MIB, 3), *OTHERS[4:]]
    (tmp_path / "a.parquet").write_bytes(groups(rows))
    judgements = load_judgements(str(tmp_path / "a.parquet"), on_bad_rows=on_bad_rows)
    assert (len(judgements), judgements.left_out) == (9, 3)


def test_time_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "BUDGET", FileBudget(seconds=1, least_bytes=2**40))
    (tmp_path / "a.parquet").write_bytes(bomb("chosen", "x", rows=2_000_000))
    with pytest.raises(InputError, match="more than 1 seconds"):
        load_data("text", str(tmp_path / "a.parquet"), "text=chosen", "isolate")


def test_what_is_said_of_rows_is_not_believed(tmp_path):
    """A file that says it has no rows, or columns that it has not."""
    content = FORMS["a.parquet"]
    for at in range(len(content) - 400, len(content) - 8, 61):
        (tmp_path / "a.parquet").write_bytes(content[:at] + b"\x00\xff" + content[at + 2 :])
        found = load_judgements(str(tmp_path), on_bad_rows="isolate")
        assert {*found.user_ids} <= {"u", "v"}


def test_one_child_reads_a_folder_and_ends_with_it(tmp_path, monkeypatch):
    begun, popen = [], subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *a, **b: begun.append(popen(*a, **b)) or begun[-1]
    )
    for user in range(5):
        (tmp_path / f"{user}.parquet").write_bytes(FORMS["a.parquet"])
    assert len(load_judgements(str(tmp_path))) == 15
    columns_of(str(tmp_path))  # of which nobody reads on
    assert len(begun) == 2
    assert all(child.returncode is not None for child in begun)


def test_the_child_has_nothing_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "of a test")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit")
    file = tmp_path / "a.parquet"
    file.write_bytes(FORMS["a.parquet"])
    with ColumnarReader(FileBudget()) as reader, file.open("rb") as stream:
        rows = reader.rows(stream, ".parquet", False, {"user_id"})
        assert next(rows) == (1, {**dict.fromkeys(ROWS[0]), "user_id": "u"})
        assert reader._process is not None
        environment = Path(f"/proc/{reader._process.pid}/environ")
        assert not environment.exists() or b"HF_TOKEN" not in environment.read_bytes()


@pytest.mark.parametrize("error", ["KeyError", "MemoryError", "RuntimeError", "SystemError"])
def test_whatever_pyarrow_raises_of_a_file_is_about_that_file(monkeypatch, error):
    def fails(*_):
        raise getattr(builtins, error)("odd")

    monkeypatch.setitem(columnar_child._READERS, ".parquet", fails)
    request = {"kind": ".parquet", "packed": False, **FileBudget().decoding(0)}
    *_, end = columnar_child.answer(io.BytesIO(), request)
    assert json.loads(end)["end"] == ("memory" if error == "MemoryError" else "damaged")


def test_a_child_that_cannot_start_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(columnar, "_CHILD", tmp_path / "gone.py")
    (tmp_path / "a.parquet").write_bytes(FORMS["a.parquet"])
    with ColumnarReader(FileBudget()) as reader, (tmp_path / "a.parquet").open("rb") as stream:
        rows = reader.rows(stream, ".parquet", False, {"user_id"})
        with pytest.raises(NotReadable, match="what decodes it broke off"):
            next(rows)


@pytest.mark.parametrize("read", [0, 7, 999, 1_000, 5_000])
def test_a_row_group_that_breaks_off_has_a_bad_row(monkeypatch, read):
    """Of one that was damaged behind its first thousand rows the rest was lost without a word."""
    whole = columnar_child._cells

    def breaks_off(batches, columns, request):
        rows = list(whole(batches, columns, request))
        mine = len(columns) > 1 and len(rows) > len(OTHERS)
        yield from rows[:read] if mine else rows
        if mine:
            raise OSError("damaged")

    monkeypatch.setattr(columnar_child, "_cells", breaks_off)
    content = io.BytesIO(groups(hostile("x", 6_000), OTHERS))
    request = {"kind": ".parquet", "packed": False, "wanted": None, "users": ["user_id"]}
    answer = map(json.loads, columnar_child.answer(content, request | FileBudget().decoding(0)))
    _, *rows, end = answer
    lost = [row for row in rows if isinstance(row, dict)]
    assert (end["end"], len(rows) - len(lost)) == ("whole", read + len(OTHERS))
    assert lost and all(row == {"user": {"user_id": "eve"}} for row in lost)


@pytest.mark.parametrize("columns", [{"user_id": "user.id"}, None])
def test_columns_that_are_called_with_a_dot_are_read(tmp_path, columns):
    """As `json_normalize` of pandas calls them; and of a group that is lost, whose it was."""
    name = "user.id" if columns else "user_id"
    (tmp_path / "a.parquet").write_bytes(groups(OTHERS, name=name))
    read = load_judgements(str(tmp_path / "a.parquet"), columns=columns)
    assert len(read.user_ids) == 9


@pytest.mark.parametrize("end", ["cut", "bomb"])
def test_at_a_node_a_file_of_several_users_is_read_whole_or_not_at_all(tmp_path, monkeypatch, end):
    monkeypatch.setattr(reading, "BUDGET", replace(SMALL, least_bytes=2**16))
    lines = "".join(json.dumps(row) + "\n" for row in OTHERS).encode()
    packed = gzip.compress(lines + (b" " * 2**20 if end == "bomb" else b""))
    (tmp_path / "a.jsonl.gz").write_bytes(packed[:-9] if end == "cut" else packed)
    (tmp_path / "b.jsonl").write_text(json.dumps({**ROWS[0], "user_id": "own file"}))
    read = load_judgements(str(tmp_path), on_bad_rows="isolate")
    assert (read.user_ids, read.left_out) == (("own file",), 1)
