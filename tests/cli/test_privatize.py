"""``murmuration privatize``: files whose labels are randomized once, with their channel."""

import gzip
import json

import numpy as np
import pytest

from murmuration.client.store import load
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.public_items import canonical
from murmuration.preference.data.schema import Schema
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse

RANDOMIZED = Schema(labels="randomized")


@pytest.fixture
def places(tmp_path):
    load.cache_clear()
    return {"state": tmp_path / "s.state", "out": tmp_path / "told.jsonl"}


@pytest.fixture
def privatize(cli, places):
    """A function: run the command; its exit code, what it printed, and the lines of stderr."""

    def call(data, **options):
        chosen = {"epsilon": 3.0, **places, **options}
        flags = [part for name, value in chosen.items() for part in (f"--{name}", value)]
        return cli("privatize", "--data", data, *flags)

    return call


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def refused(result, *parts):
    code, out, lines = result
    assert (code, out, len(lines)) == (2, "", 1), lines
    for part in parts:
        assert part in lines[0]


def shown(row):
    return (row["prompt"], canonical((row["chosen"], row["rejected"])))


def test_labels_are_randomized_and_nothing_else(privatize, places, write_rows, make_rows):
    rows = make_rows([120, 1, 30])
    code, out, lines = privatize(write_rows(rows))
    assert (code, lines) == (0, [])
    assert "151 labels of 3 users" in out
    assert "151 for the first time, 0 as before" in out
    told = read(places["out"])
    assert sorted(shown(row) for row in told) == sorted(shown(row) for row in rows)
    assert [row["user_id"] for row in told] == ["u000"] * 120 + ["u001"] + ["u002"] * 30
    for row in told:
        assert list(row) == ["user_id", "prompt", "chosen", "rejected", "flip_probability"]
        each = 3.0 / {"u000": 120, "u001": 1, "u002": 30}[row["user_id"]]
        assert row["flip_probability"] == pytest.approx(RandomizedResponse(each).flip_probability)


def test_the_loader_reads_the_channel(privatize, places, write_rows, make_rows):
    privatize(write_rows(make_rows([6, 2])))
    found = load_judgements(str(places["out"]), schema=RANDOMIZED)
    assert found.randomized
    flips = [RandomizedResponse(each).flip_probability for each in (0.5, 1.5)]
    np.testing.assert_allclose(found.flip_R, np.repeat(flips, [6, 2]), rtol=1e-15)


def test_what_may_tell_the_label_stays_behind(privatize, places, write_rows, make_rows):
    rows = make_rows([4, 4])
    told = []
    for turned in (False, True):
        found = [row | {"score": 9.5, "annotated_at": number} for number, row in enumerate(rows)]
        if turned:
            swap = {"chosen": "rejected", "rejected": "chosen"}
            found = [{swap.get(k, k): v for k, v in row.items()} for row in found[::-1]]
        for path in (*places.values(), places["state"].with_name("s.state.lock")):
            path.unlink(missing_ok=True)
        load.cache_clear()
        assert privatize(write_rows(found), epsilon=1e-6)[0] == 0
        told.append(read(places["out"]))
    for one, other in zip(*told, strict=True):
        assert (one["user_id"], shown(one)) == (other["user_id"], shown(other))
        assert one["flip_probability"] == other["flip_probability"]
        assert one.keys() == other.keys() == {*one} - {"score", "annotated_at", "tie"}


def test_the_best_of_several(privatize, places, write_rows):
    rows = [
        {"user_id": 7, "prompt": f"p{n}", "responses": ["b", "a", "c"], "best": best}
        for n, best in enumerate([0, 1, 2, [0, 2]])
    ]
    assert privatize(write_rows(rows), epsilon=200.0, kind="top-1", responses=3)[0] == 0
    told = {row["prompt"]: row for row in read(places["out"])}
    assert {row["user_id"] for row in told.values()} == {"7"}
    # The order in which responses were given may have been an order of preference.
    assert all(row["responses"] == ["a", "b", "c"] for row in told.values())
    assert [told[f"p{n}"]["best"] for n in range(3)] == [1, 0, 2]
    assert told["p3"]["best"] in (1, 2)
    schema = Schema("top-1", 3, labels="randomized")
    found = load_judgements(str(places["out"]), schema=schema)
    assert len(found) == 4
    assert found.randomized


def test_pairs_of_single_ratings_tell_the_ratings(privatize, write_rows):
    both = [("x", True), ("y", False)]
    rows = [{"user_id": "a", "prompt": "p", "completion": c, "label": up} for c, up in both]
    refused(privatize(write_rows(rows)), "which pairs ratings make tells what they were")


def test_a_second_run_gives_the_same_bytes(privatize, places, write_rows, make_rows, tmp_path):
    rows = make_rows([30, 20])
    data = write_rows(rows)
    privatize(data)
    first = places["out"].read_bytes()
    code, out, _ = privatize(data)
    assert code == 0
    assert "0 for the first time, 50 as before" in out
    load.cache_clear()
    other = write_rows(rows[::-1], "other.jsonl")
    assert privatize(other, out=tmp_path / "again.jsonl")[0] == 0
    assert (tmp_path / "again.jsonl").read_bytes() == first == places["out"].read_bytes()


def test_a_gzipped_file_holds_the_same_and_stays_the_same(
    privatize, places, write_rows, make_rows, tmp_path
):
    data, packed = write_rows(make_rows([9, 2])), tmp_path / "told.jsonl.gz"
    assert privatize(data)[0] == 0
    assert privatize(data, out=packed)[0] == 0
    assert gzip.decompress(packed.read_bytes()) == places["out"].read_bytes()
    assert privatize(data, out=packed)[0] == 0  # the same bytes: nothing is replaced
    assert len(load_judgements(str(packed), schema=RANDOMIZED)) == 11


def test_other_terms_are_refused(privatize, places, write_rows, make_rows, tmp_path):
    data = write_rows(make_rows([5]))
    privatize(data)
    refused(privatize(data, out=tmp_path / "x.jsonl", cap=3), "told once with epsilon")
    assert not (tmp_path / "x.jsonl").exists()


def test_a_file_that_is_there_is_not_replaced(privatize, places, write_rows, make_rows):
    places["out"].write_text("mine\n")
    refused(privatize(write_rows(make_rows([5]))), "told.jsonl holds something else")
    assert places["out"].read_text() == "mine\n"


def test_labels_are_not_randomized_twice(privatize, places, write_rows, make_rows, tmp_path):
    privatize(write_rows(make_rows([5])))
    again = {"state": tmp_path / "t", "out": tmp_path / "twice.jsonl"}
    refused(privatize(places["out"], **again), "randomized already")
    assert not (tmp_path / "twice.jsonl").exists()


def test_a_cap(privatize, places, write_rows, make_rows):
    code, out, _ = privatize(write_rows(make_rows([9, 2])), cap=4)
    assert code == 0
    assert "5 judgements beyond what a user may tell" in out
    told = read(places["out"])
    assert [row["user_id"] for row in told] == ["u000"] * 4 + ["u001"] * 2
    expected = RandomizedResponse(0.75).flip_probability
    assert {row["flip_probability"] for row in told} == {expected}


def test_json(cli, places, write_rows, make_rows):
    data = write_rows(make_rows([4, 2]))
    flags = ["--epsilon", 8, "--cap", 4, "--state", places["state"], "--out", places["out"]]
    code, out, _ = cli("privatize", "--data", data, *flags, "--json")
    assert code == 0
    found = json.loads(out)
    flip = RandomizedResponse(2.0).flip_probability
    assert found.pop("flip_probability") == dict.fromkeys(("smallest", "median", "largest"), flip)
    assert {"out", "state", "left_out", "set_aside", "delta", "cap"} <= {*found}
    assert (found["users"], found["labels"], found["fresh"], found["epsilon"]) == (2, 6, 6, 8.0)
    assert (found["adjacency"], found["randomness"]) == ("replace-labels", "operating system")


def test_what_was_spent_is_shown(cli, privatize, places, write_rows, make_rows):
    privatize(write_rows(make_rows([3, 7])), cap=6)
    code, out, _ = cli("privatize", "--show-state", places["state"], "--json")
    assert code == 0
    users = json.loads(out)["users"]
    assert [user["user_id"] for user in users] == ["u000", "u001"]
    assert [user["told"] for user in users] == [3, 6]
    assert [user["epsilon_spent"] for user in users] == pytest.approx([1.5, 3.0])
    assert [len(user["items"]) for user in users] == [3, 6]
    assert "answer" not in out
    code, out, _ = cli("privatize", "--show-state", places["state"])
    assert code == 0
    assert "u001" in out
    assert "epsilon 3, at most 6 labels" in out


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"epsilon": -1}, ["epsilon must be a positive number"]),
        ({"epsilon": "nan"}, ["epsilon must be a positive number"]),
        ({"epsilon": 2e-9}, ["--epsilon 2e-09", "at least 1e-09"]),
        ({"delta": 1.5}, ["delta must be at least 0 and below 1"]),
        ({"out": "told.csv"}, ["told.csv", "must be named .jsonl"]),
        ({"out": "/dev/null/told.jsonl"}, ["cannot be used"]),
        ({"state": "/dev/null/state"}, ["cannot be used"]),
    ],
)
def test_bad_options_are_one_line(privatize, write_rows, make_rows, options, parts):
    refused(privatize(write_rows(make_rows([3])), **options), *parts)


def test_what_is_missing_is_one_line(cli, crowd, tmp_path):
    refused(cli("privatize", "--data", crowd), "needs --data, --epsilon, --state and --out")
    refused(cli("privatize", "--show-state", tmp_path / "none"), "there is no such file")


def test_nobody_has_room(privatize, places, write_rows, make_rows, tmp_path):
    row = make_rows([1])[0]
    privatize(write_rows([row]))
    load.cache_clear()
    other = write_rows([row | {"prompt": "Another?"}], "other.jsonl")
    refused(
        privatize(other, out=tmp_path / "x.jsonl"),
        "every user has released as many labels as they may",
    )


def test_an_export_is_randomized_in_our_form(privatize, places, write_rows, make_rows):
    rows = make_rows([6, 2])
    export = [
        {
            "info": {"post": row["prompt"]},
            "summaries": [{"text": row["rejected"]}, {"text": row["chosen"]}],
            "choice": 1,
            "worker": row["user_id"],
        }
        for row in rows
    ]
    code, _, lines = privatize(write_rows(export), format="tldr")
    assert code == 0, lines
    assert sorted(map(shown, read(places["out"]))) == sorted(map(shown, rows))
    refused(privatize(write_rows(export), format="arena"), "not of the form --format arena")
    refused(privatize(write_rows(export), format="arenas"), "--format must be one of arena")


def test_labels_that_are_numbers_are_read_by_their_scale(privatize, places, write_rows):
    both = {"response_a": "x", "response_b": "y"}
    rows = [
        {"user_id": f"u{n}", "prompt": "p", **both, "winner": (-2, 1)[n % 2]} for n in range(40)
    ]
    refused(privatize(write_rows(rows)), "'winner' must name the side")
    code, _, lines = privatize(write_rows(rows), scale="-2..2")
    assert code == 0, lines
    assert len(read(places["out"])) == 40
