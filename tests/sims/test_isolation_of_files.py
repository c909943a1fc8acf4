"""Files that somebody's data stand in: whatever one user wrote costs nobody else theirs.

As ``tests/sims/test_isolation.py``, with folders of a file for each user, and with tables.
"""

import gzip
import io
import json

import pyarrow
import pyarrow.parquet
import pytest
from neighbours import CHANGED, everybody, housed
from watch import PLAIN, assert_none, differences

pytestmark = pytest.mark.usefixtures("quick_runs")

#: What becomes of a file of the changed user's own, in a folder of such files.
FILES = {
    "gone": {},
    "empty": {"u005.jsonl": b""},
    "no gzip": {"u005.jsonl.gz": b"\x1f\x8b no gzip"},
    "cut off": {"u005.jsonl.gz": gzip.compress(b"{}" * 999)[:-9]},
    "no Parquet": {"u005.parquet": b"PAR1"},
    "an empty CSV": {"u005.csv": b""},
    "a header twice": {"u005.csv": b"user_id,user_id\nu005,u005\n"},
    "an open quote": {"u005.csv": b'user_id,prompt,chosen,rejected\nu005,"p,a,b\n'},
    "a cell of 200 kB": {"u005.csv": b"user_id,prompt,chosen,rejected\nu005,p,b," + b"a" * 200_000},
    "no UTF-8": {"u005.csv": b"\xff\xfeuser_id,prompt\n"},
    "another kind of file": {"u005.txt": b"nonsense"},
    "a folder's worth of nothing": {f"u005-{part}.jsonl": b"{\n" for part in range(20)},
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("alone", [False, True])
def test_a_file_of_each_user(watch, name, alone):
    """One that cannot be read is its user's loss, also where nobody else is on the node."""
    config, lines = {**PLAIN, "test": watch.test("pairs")}, everybody("pairs", 0)
    homes = {user: 1 + number % 3 for number, user in enumerate(lines)}
    homes[CHANGED] = 4 if alone else 2
    files = {node: {} for node in sorted(set(homes.values()))}
    for user, mine in lines.items():
        files[homes[user]][f"{user}.jsonl"] = b"\n".join(mine)
    before = watch.run(config, files, list(lines))
    assert before.given and not before.refused
    files[homes[CHANGED]] = {
        file: content for file, content in files[homes[CHANGED]].items() if CHANGED not in file
    } | FILES[name]
    after = watch.run(config, files, list(lines))
    assert_none(differences(before, after, CHANGED, leaves="200 kB" not in name))


@pytest.mark.parametrize("cell", [b"\xff\xfe", b"", b" ", b"a" * 200_000, b"\x00", b"\xed\xa0\x80"])
@pytest.mark.parametrize("column", ["prompt", "chosen"])
def test_a_cell_of_a_table(watch, cell, column):
    """Whatever bytes stand in a user's cells of a Parquet file, the other rows are read."""
    config, lines = {**PLAIN, "test": watch.test("pairs")}, everybody("pairs", 0)
    names = ("user_id", "prompt", "chosen", "rejected")

    def table(node: list[bytes], changed: bool) -> dict[str, bytes]:
        rows = [json.loads(one) for one in node]
        columns = {name: [row[name].encode() for row in rows] for name in names}
        for at, row in enumerate(rows):
            if changed and row["user_id"] == CHANGED:
                columns[column][at] = cell
        cells = {name: pyarrow.array(of, pyarrow.binary()) for name, of in columns.items()}
        cells = {name: of.view(pyarrow.string()) for name, of in cells.items()}
        out = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(cells), out)
        return {"judgements.parquet": out.getvalue()}

    nodes = housed(lines, False, 0)
    before, after = (
        watch.run(config, {node: table(mine, changed) for node, mine in nodes.items()}, list(lines))
        for changed in (False, True)
    )
    assert before.given and not before.refused
    assert_none(differences(before, after, CHANGED, leaves=cell != b"\x00"))
