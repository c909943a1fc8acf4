"""Data sets that the `datasets` library saved, and what its hub would give."""

import json
import shutil
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.sources import Named, absolute, parse_source

datasets = pytest.importorskip("datasets")

PAIR = {"prompt": "p", "chosen": "x", "rejected": "y"}


def rows(*users):
    return [{"user_id": user, **PAIR} for user in users]


def users(source, **more):
    return load_judgements(str(source), **more).user_ids


def refusal(source, **more):
    with pytest.raises(InputError) as caught:
        load_judgements(str(source), **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def saved(tmp_path):
    whole = datasets.DatasetDict(
        train=datasets.Dataset.from_list(rows("a", "b", "c")),
        test=datasets.Dataset.from_list(rows("d")),
    )
    whole.save_to_disk(str(tmp_path / "all"), num_shards={"train": 2, "test": 1})
    return tmp_path / "all"


def test_a_saved_data_set(saved):
    assert users(saved / "train") == ("a", "b", "c")
    assert users(f"{saved}#test") == ("d",)
    assert "which split? there are: train, test; name one, as in NAME#SPLIT" in refusal(saved)
    assert "no split 'dev'; there are: train, test" in refusal(f"{saved}#dev")


def test_a_saved_data_set_with_messages(tmp_path):
    turns = [{"role": "user", "content": "q"}]
    pair = {
        side: [[*turns, {"role": "assistant", "content": text}]]
        for side, text in (("chosen", "x"), ("rejected", "y"))
    }
    datasets.Dataset.from_dict({"worker": [7], **pair}).save_to_disk(str(tmp_path / "set"))
    found = load_judgements(str(tmp_path / "set"))
    assert (found.user_ids, found.prompts, found.responses) == (("7",), ["q"], [("x", "y")])


def test_a_node_reads_the_files_and_concludes_nothing_from_what_lies_beside(saved):
    assert users(saved / "train", on_bad_rows="isolate") == ("a", "b", "c")
    assert users(f"{saved}#test", on_bad_rows="isolate") == ("d",)
    assert users(saved, on_bad_rows="isolate") == ()


def test_a_damaged_saved_data_set(saved):
    (saved / "train" / "state.json").write_text("{")
    assert "state.json: cannot be read" in refusal(saved / "train")
    (saved / "train" / "state.json").write_text('{"_data_files": []}')
    assert "names no files" in refusal(saved / "train")
    part = next((saved / "test").glob("*.arrow"))
    part.write_bytes(part.read_bytes()[:100])
    assert "not readable as Arrow" in refusal(f"{saved}#test")
    shutil.rmtree(saved / "test")
    assert "state.json: cannot be read" in refusal(f"{saved}#test")


def test_shards_of_several_splits(tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    for name, who in (
        ("train_prefs-00000-of-00002", "a"),
        ("train_prefs-00001-of-00002", "b"),
        ("test_prefs-00000-of-00001", "c"),
    ):
        pq.write_table(pa.Table.from_pylist(rows(who)), place / f"{name}.parquet")
    assert users(f"{tmp_path}#train_prefs") == users(f"{place}#train_prefs") == ("a", "b")
    assert "which split? there are: test_prefs, train_prefs" in refusal(tmp_path)
    place.rename(tmp_path / "small")
    assert users(f"{tmp_path}#small/test_prefs") == ("c",)
    assert users(f"{tmp_path}/small", on_bad_rows="isolate") == ("c", "a", "b")


@pytest.mark.parametrize("start", ["", " \n", "\ufeff"])
def test_json_arrays_and_lines(tmp_path, start):
    path = tmp_path / "rows.json"
    path.write_text(start + json.dumps(rows("a", "b"), indent=1), encoding="utf-8")
    assert users(path) == users(tmp_path) == ("a", "b")
    path.write_text("\n".join(map(json.dumps, rows("a", "b"))))
    assert users(path) == ("a", "b")


def test_a_node_reads_no_json_array(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows("a")))
    assert "a node does not read it; write the rows as .jsonl" in refusal(
        path, on_bad_rows="isolate"
    )
    found = load_judgements(str(tmp_path), on_bad_rows="isolate")
    assert (found.user_ids, found.left_out) == ((), 1)


def test_json_about_rows_is_no_rows(tmp_path):
    for name in ("truth.json", "dataset_info.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "rows.jsonl").write_text(json.dumps(rows("a")[0]))
    assert users(tmp_path) == ("a",)


def test_what_a_file_is_called_hides_no_other(tmp_path):
    """A folder with a file for each user: one `.jsonl` hid every `.json`, and one that was called
    as a shard or as a state hid the rest."""
    for user in "ab":
        (tmp_path / f"{user}.json").write_text(json.dumps(rows(user)))
    (tmp_path / "c.jsonl").write_text(json.dumps(rows("c")[0]))
    assert users(tmp_path) == ("a", "b", "c")
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": "c.jsonl"}]}))
    assert "a.json, b.json lie beside them" in refusal(tmp_path)
    assert users(tmp_path, on_bad_rows="isolate") == ("c",)
    (tmp_path / "state.json").unlink()
    (tmp_path / "d-00000-of-00001.jsonl").write_text(json.dumps(rows("d")[0]))
    assert "lie beside them" in refusal(tmp_path, on_bad_rows="skip")
    assert users(tmp_path, on_bad_rows="isolate") == ("c", "d")
    assert users(f"{tmp_path}#d") == ("d",)


def test_what_a_library_keeps_beside_a_saved_data_set_is_not_read(saved):
    part = next((saved / "test").glob("data-*.arrow"))
    (saved / "test" / "cache-0123456789abcdef.arrow").write_bytes(part.read_bytes())
    assert users(f"{saved}#test") == users(saved / "test") == ("d",)


def test_the_parts_of_a_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_source("o/n") == Named("o/n")
    assert parse_source("o/n#s") == Named("o/n", "s")
    assert parse_source("o/n#c/s") == Named("o/n", "s", "c")
    assert parse_source("o/n#c/") == Named("o/n", "", "c")
    with pytest.raises(InputError, match="write NAME#SPLIT"):
        parse_source("o/n#")
    (tmp_path / "x#y.jsonl").write_text(json.dumps(rows("a")[0]))
    assert users("x#y.jsonl") == ("a",)
    assert "a single file has no splits" in refusal("x#y.jsonl#train")
    assert absolute("x#y.jsonl") == str(tmp_path / "x#y.jsonl")
    (tmp_path / "set").mkdir()
    assert absolute("set#test") == f"{tmp_path / 'set'}#test"
    assert absolute("o/n#test") == "o/n#test"


def test_split_and_configuration_are_asked_of_the_hub(monkeypatch):
    asked = []

    def load_dataset(path, split, **more):
        asked.append((path, split, more))
        return rows("a")

    hub = SimpleNamespace(config=SimpleNamespace(HF_HUB_OFFLINE=True), load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", hub)
    users("o/n#train_prefs")
    users("o/n#default/test_prefs")
    assert asked == [("o/n", "train_prefs", {}), ("o/n", "test_prefs", {"name": "default"})]
