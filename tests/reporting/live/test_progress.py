"""How far a run is: figures and speed."""

import pytest

from murmuration.reporting.live.progress import RoundProgress


def lines(*rounds):
    return [{"round": t} for t in rounds]


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
