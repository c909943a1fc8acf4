"""Both sides of the accounting benchmark are given the same mechanism: what they say agrees."""

from dataclasses import replace

import pytest

from murmuration.research.bench.accounting import TASKS, measure


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(t, marks=pytest.mark.slow if t.name.startswith("els") else (), id=t.name)
        for t in TASKS
    ],
)
def test_both_accountants_agree_about_the_noise_that_was_found(task):
    row = measure(replace(task, rounds=task.rounds // 100, epsilon=1.0), repetitions=1)
    assert row["rival_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert row["ratio"] == pytest.approx(row["calibration_seconds"] / row["rival_seconds"])
