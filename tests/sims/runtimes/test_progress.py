"""Following a metrics file: torn lines, replaced files, speed."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.sims.runtimes.progress import Progress, Tail


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
    data, tail, found = text(*range(1, 6)), Tail(path), []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        append(path, data[start:end])
        found += tail.read()[0]
    assert found == lines(1, 2, 3, 4, 5)


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


@pytest.fixture
def progress():
    return Progress(rounds=100, cohort=50, epsilon_target=3.0)


def test_figures(progress):
    assert progress.known() == []
    progress.add([{"round": 1, "epsilon": 0.5, "heldout_accuracy": 0.0}], anew=False, now=0.0)
    assert progress.known() == ["ε 0.500 of 3", "held-out 0.0 %"]
    progress.add([{"round": 2, "epsilon": 0.7}], anew=False, now=2.0)
    assert progress.known() == [
        *("ε 0.700 of 3", "held-out 0.0 %", "25 users/s"),
        "3 min 16 s left",
    ]
    assert len(progress.known(ended=True)) == 3


def test_speed_leaves_out_rounds_of_an_earlier_run_and_the_start(progress):
    progress.add(lines(*range(1, 81)), anew=True, now=0.0)
    assert progress.round == 80 and progress.seconds_a_round is None
    progress.add(lines(81), anew=False, now=100.0)
    assert progress.seconds_a_round is None
    progress.add(lines(82, 83), anew=False, now=101.0)
    assert progress.seconds_a_round == 0.5
    assert progress.left() == "9 s left"


def test_speed_stays_while_nothing_comes(progress):
    for now, t in ((0.0, 1), (1.0, 2)):
        progress.add(lines(t), anew=False, now=now)
    assert progress.add([], anew=False, now=500.0) is False
    assert progress.seconds_a_round == 1.0


def test_a_resumed_run_goes_back(progress):
    progress.add([{"round": 50, "epsilon": 2.0, "heldout_accuracy": 0.7}], anew=False, now=0.0)
    progress.add([{"round": 48, "epsilon": 1.9}], anew=True, now=1.0)
    assert (progress.round, progress.epsilon, progress.accuracy) == (48, 1.9, None)


def test_interpolation_does_not_look_like_overspending(progress):
    progress.add([{"round": 100, "epsilon": 2.9998}], anew=False, now=0.0)
    assert progress.known() == ["ε 3.00 of 3"]


def test_nonprivate_and_odd_values(progress):
    progress.epsilon_target = None
    odd = [{"round": True}, {"round": "5"}, {"epsilon": 1}]
    assert not progress.add(odd, anew=False, now=0.0)
    line = {"round": 3, "epsilon": None, "heldout_accuracy": float("nan")}
    assert progress.add([line], anew=False, now=0.0)
    assert progress.round == 3 and progress.known() == []


def test_nothing_is_left_after_the_last_round(progress):
    progress.add(lines(1), anew=False, now=0.0)
    progress.add(lines(100), anew=False, now=1.0)
    assert progress.left() is None
