"""One strategy on a synthetic population."""

import pytest

from murmuration.server.config import RunConfig
from murmuration.sims.reproductions.btl import Population, error_of

SETTINGS = RunConfig(epsilon=8.0, delta=1e-3, rounds=20, cohort=30, adjacency="replace-labels")


def test_a_run_comes_closer_than_answering_zero_and_is_repeated_exactly():
    people = Population.draw(1, users=60, each=10, dimension=3)
    found = error_of(people, SETTINGS, "nonprivate", seed=1)
    assert found < 1.0
    assert error_of(people, SETTINGS, "nonprivate", seed=1) == found


def test_settings_hold():
    people = Population.draw(1, users=60, each=10, dimension=3)
    with pytest.raises(ValueError, match="--cohort 90 is more than"):
        error_of(people, RunConfig(delta=1e-3, rounds=2, cohort=90), "uls", seed=1)
