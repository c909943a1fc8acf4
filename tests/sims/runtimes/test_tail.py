"""Following a metrics file: torn lines, replaced files."""

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from murmuration.sims.runtimes.tail import Tail


def lines(*rounds):
    return [{"round": t} for t in rounds]


def text(*rounds):
    return "".join(json.dumps(line) + "\n" for line in lines(*rounds))


def append(path, data):
    with path.open("a") as file:
        file.write(data)


def test_only_what_is_new(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tail = Tail(path)
    assert tail.read() == ([], False)
    append(path, text(1, 2))
    assert tail.read() == (lines(1, 2), False)
    append(path, text(3))
    assert tail.read() == (lines(3), False)
    assert tail.read() == ([], False)


def test_what_was_there_before_is_told_apart(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, text(1, 2))
    tail = Tail(path)
    assert tail.read() == (lines(1, 2), True)
    append(path, text(3))
    assert tail.read() == (lines(3), False)


@given(st.lists(st.integers(0, 60), max_size=8))
def test_torn_anywhere(tmp_path_factory, cuts):
    path = tmp_path_factory.mktemp("run") / "metrics.jsonl"
    data, tail, read = text(*range(1, 6)), Tail(path), []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        append(path, data[start:end])
        read += tail.read()[0]
    assert read == lines(1, 2, 3, 4, 5)


def test_replaced_by_a_shorter_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, text(1, 2, 3) + '{"rou')
    tail = Tail(path)
    tail.read()
    append(tmp_path / "new", text(1, 2))
    (tmp_path / "new").replace(path)
    assert tail.read() == (lines(1, 2), True)
    append(path, text(3))
    assert tail.read() == (lines(3), False)


def test_replaced_by_a_file_that_has_grown_longer(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, text(1, 2, 3))
    tail = Tail(path)
    tail.read()
    append(tmp_path / "new", text(1, 2, 3, 4, 5))
    (tmp_path / "new").replace(path)
    assert tail.read() == (lines(1, 2, 3, 4, 5), True)


def test_cut_short_in_place(tmp_path):
    path = tmp_path / "metrics.jsonl"
    append(path, text(1, 2, 3))
    tail = Tail(path)
    tail.read()
    path.write_text(text(1))
    assert tail.read() == (lines(1), True)


def test_what_is_no_object_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"null\n\xff\xfe\n{broken\n[1]\n\n" + text(7).encode())
    assert Tail(path).read()[0] == lines(7)


def test_folder_in_its_place(tmp_path):
    assert Tail(tmp_path).read() == ([], False)
