"""Accuracy by number of users: what is run, and what is said of it."""

import json
from functools import partial

import numpy as np
import pytest

from murmuration.research.reproductions import accuracy_by_users
from murmuration.research.reproductions.accuracy_by_users import Crowd, measured, plot, remarks

KEYS = {
    *("features", "users", "epsilon", "accuracy_mean", "accuracy_sd", "over_users", "pooled_mean"),
    *("length_baseline", "seeds"),
}


@pytest.fixture(scope="module")
def rows():
    return measured(Crowd.embedded(), (60,), epsilons=(8.0,), seeds=2, rounds=3)


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


def test_people_are_read_from_a_folder(monkeypatch, tmp_path):
    """The longer response is right for all: so says the baseline, and so each run learns."""
    for part, users in (("train", 60), ("test", 9)):
        lines = [
            {"user_id": f"{part}{user}", "prompt": "p", "chosen": "so so so", "rejected": "so"}
            for user in range(users)
        ]
        (tmp_path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(accuracy_by_users, "SIZES_OF_PEOPLE", (30, 100))
    monkeypatch.setattr(accuracy_by_users, "FEATURES_OF_PEOPLE", ("hashing:9", "hashing:17"))
    few = partial(measured, epsilons=(8.0,), seeds=1, rounds=20)
    monkeypatch.setattr(accuracy_by_users, "measured", few)
    result = accuracy_by_users.of_people(tmp_path, tmp_path / "out")
    sizes = {(row["features"], row["users"]) for row in result.rows}
    assert sizes == {(f, n) for f in ("hashing:9", "hashing:17") for n in (30, 60)}
    assert {row["length_baseline"] for row in result.rows} == {1.0}
    assert all(row["accuracy_mean"] == 1.0 for row in result.rows if row["epsilon"] is None)
    assert len(result.remarks) == 2


def made(users, epsilon, accuracy):
    figures = {"users": users, "accuracy_mean": accuracy, "length_baseline": 0.6}
    return {"features": "hashing", "epsilon": epsilon, **figures}


def test_what_is_said_of_rows():
    rows = [made(10, 1.0, 0.55), made(10, None, 0.7), made(90, 1.0, 0.72), made(90, None, 0.725)]
    (line,) = remarks(rows)
    assert "no better than the length baseline with 10 users" in line
    assert "within a point of no privacy with 90 users" in line
    axes = plot(rows).axes[0]
    assert [line.get_label() for line in axes.lines][:2] == ["ε = 1", "no privacy"]
    assert np.allclose(axes.lines[0].get_ydata(), [0.55, 0.72])
