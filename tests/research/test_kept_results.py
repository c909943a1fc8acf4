"""Kept results: what they were, or nothing; and of this code alone."""

import json
import math
from dataclasses import fields

import numpy as np
import pytest

from murmuration.research import kept_results
from murmuration.research.kept_results import decoded, encoded
from murmuration.research.reproductions.alignment.claims import Claim
from murmuration.research.reproductions.policies.written import Won

CLAIM = Claim(*["x"] * len(fields(Claim)))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 0.1 + 0.2, math.inf, "é"),
        [1, (2, [3.0])],
        {("a", 1): {None: [True]}, 2: "x"},
        Won(0.5, 0.25),
        {Won(1.0, 0.0): [CLAIM]},
        np.float64(0.1),
        np.bool_(True),
    ],
)
def test_there_and_back(value):
    result = decoded(json.loads(json.dumps(encoded(value))))
    assert result == value and type(result) is type(value)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", ">f8", "complex128"])
def test_arrays_to_the_last_bit(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    result = decoded(json.loads(json.dumps(encoded(array))))
    assert result.dtype == array.dtype and result.tolist() == array.tolist()
    result[0, 0] = 1  # as its own


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), np.array(["a"]), print])
def test_anything_else_is_not_kept(value, tmp_path):
    with pytest.raises(TypeError):
        encoded(value)
    kept_results.keep(tmp_path / "x", [value])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "content",
    [
        {"record": ["os", "mkdir", ["made"]]},
        {"record": ["subprocess", "Popen", ["ls"]]},
        {"record": ["pathlib", "Path", []]},
        {"record": ["murmuration.research.reproductions.entry", "Path", []]},
        {"record": ["murmuration.research.reproductions.entry", "tracked", []]},
        {"record": ["murmuration.research.reproductions.policies.written", "Won", [1.0]]},
        {"array": ["|O", [1], "AAAAAAAAAAA="]},
        {"array": ["V8", [1], "AAAAAAAAAAA="]},
        {"array": ["<f8", [9], "AAAAAAAAAAA="]},
        {"list": 1},
        {"code": []},
        {"list": [], "tuple": []},
    ],
)
def test_a_file_that_was_made_to_do_something_is_no_result(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_text(json.dumps([content]))
    assert kept_results.read(tmp_path / "x.json") is None
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("content", ["", "[", "[1, 2]", "{}"])
def test_a_damaged_file_is_no_result(content, tmp_path):
    (tmp_path / "x.json").write_text(content)
    assert kept_results.read(tmp_path / "x.json") is None
    assert kept_results.read(tmp_path / "none.json") is None


def test_another_task_function_or_code_is_another_place(tmp_path, monkeypatch):
    place = kept_results.place(tmp_path, math.sqrt, (1, "a"))
    assert kept_results.place(tmp_path, math.sqrt, (1, "a")) == place
    assert kept_results.place(tmp_path, math.sqrt, (2, "a")) != place
    assert kept_results.place(tmp_path, math.exp, (1, "a")) != place
    monkeypatch.setattr(kept_results, "_code", lambda: "changed")
    assert kept_results.place(tmp_path, math.sqrt, (1, "a")) != place


def test_all_rooms_are_part_of_the_code(monkeypatch):
    read = []
    plain = kept_results.Path.read_bytes
    monkeypatch.setattr(
        kept_results.Path, "read_bytes", lambda self: read.append(self) or plain(self)
    )
    kept_results._code.__wrapped__()
    names = {f"{path.parent.name}/{path.name}" for path in read}
    assert {"linear/examples.py", "reproductions/entry.py", "api/scoring.py"} <= names
