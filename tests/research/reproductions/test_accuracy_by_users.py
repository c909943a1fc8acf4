"""Accuracy by number of users: what is run, and what is said of it."""

import numpy as np
import pytest

from murmuration.research.reproductions import accuracy_by_users
from murmuration.research.reproductions.accuracy_by_users import measured, plot, remarks

KEYS = {
    *("users", "epsilon", "accuracy_mean", "accuracy_sd", "over_users", "pooled_mean"),
    *("length_baseline", "seeds"),
}


@pytest.fixture(scope="module")
def rows():
    return measured((60,), (8.0,), seeds=2, rounds=3)


def test_a_row_for_each_epsilon_and_one_without(rows):
    assert [(row["users"], row["epsilon"]) for row in rows] == [(60, 8.0), (60, None)]
    for row in rows:
        assert set(row) == KEYS and 0.4 < row["accuracy_mean"] < 0.9
        assert row["length_baseline"] == pytest.approx(0.599, abs=5e-4)


def test_each_seed_draws_users_of_its_own():
    by_user = {f"u{n}": [f"{n}"] for n in range(50)}
    first, second = (accuracy_by_users._drawn(by_user, 20, seed) for seed in (0, 1))
    assert len(first) == len(set(first)) == 20 and set(first) != set(second)
    assert first == accuracy_by_users._drawn(by_user, 20, 0)


def made(users, epsilon, accuracy):
    return {"users": users, "epsilon": epsilon, "accuracy_mean": accuracy, "length_baseline": 0.6}


def test_what_is_said_of_rows():
    rows = [made(10, 1.0, 0.55), made(10, None, 0.7), made(90, 1.0, 0.72), made(90, None, 0.725)]
    (line,) = remarks(rows)
    assert "no better than the length baseline with 10 users" in line
    assert "within a point of no privacy with 90 users" in line
    axes = plot(rows).axes[0]
    assert [line.get_label() for line in axes.lines][:2] == ["ε = 1", "no privacy"]
    assert np.allclose(axes.lines[0].get_ydata(), [0.55, 0.72])
