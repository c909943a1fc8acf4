"""Following a metrics file: torn lines, replaced files, speed."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.reporting.live.progress import RoundProgress, Tail


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


class Clock:
    """A function of the seconds that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


class Run(RoundProgress):
    """Of 100 rounds; lines are added at a time."""

    def __init__(self, epsilon_target=3.0):
        self.clock = Clock()
        super().__init__(100, epsilon_target, clock=self.clock)

    def at(self, now, found, anew=False):
        self.clock.now = now
        return self.add(found, anew=anew)


@pytest.fixture
def progress():
    return Run()


def test_figures(progress):
    assert progress.known() == []
    progress.at(0.0, [{"round": 1, "epsilon": 0.5, "heldout_accuracy": 0.0}])
    assert progress.known() == ["ε 0.500 of 3", "held-out 0.0 %"]
    progress.at(2.0, [{"round": 2, "epsilon": 0.7}])
    assert progress.known() == [
        *("ε 0.700 of 3", "held-out 0.0 %"),
        "3 min 16 s left",
    ]
    assert len(progress.known(ended=True)) == 2


def test_speed_leaves_out_rounds_of_an_earlier_run_and_the_start(progress):
    progress.at(0.0, lines(*range(1, 81)), anew=True)
    assert progress.task.completed == 80 and progress.known() == []
    progress.at(100.0, lines(81))
    assert progress.known() == []
    progress.at(101.0, lines(82, 83))
    assert progress.known() == ["9 s left"]


def test_speed_of_rounds_that_take_an_hour(progress):
    progress.at(0.0, lines(1))
    progress.at(3600.0, lines(2))
    progress.at(7200.0, lines(3))
    assert progress.known() == ["97 h 0 min left"]


def test_speed_stays_while_nothing_comes(progress):
    progress.at(0.0, lines(1))
    progress.at(1.0, lines(2))
    assert progress.at(500.0, []) is False
    assert progress.known() == ["1 min 38 s left"]


def test_a_resumed_run_goes_back(progress):
    progress.at(0.0, [{"round": 50, "epsilon": 2.0, "heldout_accuracy": 0.7}])
    progress.at(1.0, [{"round": 48, "epsilon": 1.9}], anew=True)
    assert progress.task.completed == 48 and progress.known() == ["ε 1.90 of 3"]


def test_a_run_that_was_complete_before_goes_on(progress):
    progress.at(0.0, lines(*range(1, 101)), anew=True)
    progress.at(1.0, lines(*range(1, 91)), anew=True)
    progress.at(2.0, lines(91))
    progress.at(4.0, lines(92))
    assert progress.known() == ["16 s left"]


def test_interpolation_does_not_look_like_overspending(progress):
    progress.at(0.0, [{"round": 100, "epsilon": 2.9998}])
    assert progress.known() == ["ε 3.00 of 3"]


def test_nonprivate_and_odd_values():
    progress = Run(epsilon_target=None)
    assert not progress.at(0.0, [{"round": True}, {"round": "5"}, {"epsilon": 1}])
    line = {"round": 3, "epsilon": None, "heldout_accuracy": float("nan")}
    assert progress.at(0.0, [line])
    assert progress.task.completed == 3 and progress.known() == []


def test_nothing_is_left_after_the_last_round(progress):
    progress.at(0.0, lines(1))
    progress.at(1.0, lines(100))
    assert progress.known() == []
