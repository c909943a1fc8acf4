"""How often rewards are right about others: rows of each strategy, and what is said of AUP."""

import numpy as np
import pytest

from murmuration.research.reproductions.alignment import accuracies
from murmuration.research.reproductions.alignment.rewards import (
    AS_RUN,
    GROUP,
    NONPRIVATE,
    PRIVATE,
    RESPONSE,
    RESPONSE_SPLIT,
    UNTESTED,
    USERWISE,
    Learnt,
)


@pytest.fixture
def rows(monkeypatch):
    """Rows of two seeds: AUP as run is near group privacy, above randomized response with ε/m a
    label, and below the rest."""

    def rewards(sizes, seeds, names):
        right = {UNTESTED: 0.61, AS_RUN: 0.60, GROUP: 0.605, RESPONSE_SPLIT: 0.52, NONPRIVATE: 0.77}
        keys = [(name, e) for name in names for e in (3.0, 8.0)] + [(NONPRIVATE, None)]
        return [
            {key: Learnt(np.zeros(2), right.get(key[0], 0.74) + 0.001 * seed, 7 + seed)
             for key in keys}
            for seed in range(seeds)
        ]  # fmt: skip

    monkeypatch.setattr(accuracies, "rewards_of_seeds", rewards)
    return accuracies.accuracies(True)


def test_every_strategy_has_a_row_at_every_epsilon(rows):
    assert len(rows) == 2 * len(PRIVATE) + 3
    row = next(row for row in rows if row["strategy"] == USERWISE)
    assert row["accuracy_mean"] == pytest.approx(0.7405) and row["rounds"] == "7/8"
    assert row["accuracy_interval"] == pytest.approx(12.706 * 0.0005, rel=1e-3)


def test_what_is_within_the_intervals_is_not_told_apart(rows):
    low, high, clean = accuracies.remarks(rows)
    assert low == (
        f"film reviews, ε = 3: {AS_RUN} 0.601, above {RESPONSE_SPLIT}; "
        f"below {USERWISE}, {RESPONSE}; not told from {GROUP}. With its test off 0.611."
    )
    assert high.startswith("film reviews, ε = 8") and clean == (
        "Without privacy: film reviews 0.770."
    )
