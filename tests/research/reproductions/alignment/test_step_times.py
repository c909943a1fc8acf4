"""Times of steps: arithmetic with times that are made up, and that steps are taken."""

import pytest

from murmuration.research.reproductions.alignment import step_times
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    CENTRED,
    GROUP,
    PUBLISHED,
    RESPONSE,
    USERWISE,
)
from murmuration.research.reproductions.alignment.step_times import FEATURES

SECONDS = {
    RESPONSE: [0.010, 0.010, 9.0],  # one long step does not move a median
    GROUP: [0.015] * 3,
    USERWISE: [0.014] * 3,
    PUBLISHED: [0.028] * 3,
    AS_RUN: [0.017] * 3,
    CENTRED: [0.016] * 3,
    FEATURES: [0.090] * 3,
}


def test_ratios_are_of_medians():
    rows = {row["strategy"]: row for row in step_times.rows_of(SECONDS)}
    assert list(rows) == [RESPONSE, GROUP, USERWISE, PUBLISHED, AS_RUN, CENTRED]
    assert rows[PUBLISHED]["ratio"] == pytest.approx(2.8)
    assert rows[PUBLISHED]["with_features"] == pytest.approx(118 / 100)
    assert rows[PUBLISHED]["paper"] == pytest.approx(1.63, abs=0.01)
    assert rows[GROUP]["paper"] == pytest.approx(1.54, abs=0.01)
    assert rows[CENTRED]["paper"] is None


def test_claims_are_judged_in_both_columns():
    said = step_times.told(SECONDS).remarks
    (alone,) = [text for text in said if PUBLISHED in text and "steps alone" in text]
    (whole,) = [text for text in said if PUBLISHED in text and "with features" in text]
    assert "takes 2.00 times" in alone
    assert "DOES NOT AGREE" in alone
    assert "agrees" in whole
    faster = step_times.told({**SECONDS, GROUP: [0.001] * 3}).remarks
    assert any(f"{GROUP} is the cheapest" in text and "DOES NOT" in text for text in faster)


def test_steps_are_taken_in_turn_and_none_is_halted():
    ticks = iter(range(10_000))
    found = step_times.timed(3, clock=lambda: float(next(ticks)))
    assert all(values == [1.0] * 3 for values in found.values())
    assert set(found) == set(SECONDS)


def test_a_step_that_was_not_taken_is_no_time():
    class Halted:
        name, rounds_done = "aup-published", 4

        def start(self, grid, num_rounds):
            pass

    class Training:
        grid = None

    with pytest.raises(RuntimeError, match="halted at step 5"):
        step_times._step(Halted(), Training())


def test_half_of_the_users_of_a_phase_are_those_of_the_others():
    assert 90 <= step_times.halved() <= 110
