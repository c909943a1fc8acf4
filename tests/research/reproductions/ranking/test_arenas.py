"""The benchmark of private boards: its rows, and the order that protections come in."""

import numpy as np
import pytest

from murmuration.ranking.arena import Arena
from murmuration.research.reproductions.entry import where
from murmuration.research.reproductions.ranking import arenas
from murmuration.research.reproductions.ranking.arenas import LOCAL, NONE, USER, VOTE


@pytest.fixture(scope="module")
def rows():
    base = Arena(items=8, tie=0.0)
    return arenas.ranking(
        base=base, sweeps={"voters": (200, 2000)}, epsilons=(0.25, 1.0), seeds=(0, 1)
    )


def error(rows, protection, epsilon, voters):
    same = where(rows, protection=protection, epsilon=epsilon, value=voters)
    return same[0]["error_mean"]


def test_what_protects_more_costs_more(rows):
    for voters in (200, 2000):
        errors = [error(rows, NONE, None, voters)]
        errors += [error(rows, protection, 0.25, voters) for protection in (VOTE, USER, LOCAL)]
        assert errors == sorted(errors)


def test_more_voters_and_a_larger_epsilon_help(rows):
    for protection in (USER, LOCAL):
        assert error(rows, protection, 1.0, 2000) < error(rows, protection, 0.25, 2000)
        assert error(rows, protection, 1.0, 2000) < error(rows, protection, 1.0, 200)


def test_measures_are_of_ranks_and_points():
    truth_K = np.array([0.0, 1.0, 2.0])
    assert arenas._measures(truth_K, truth_K) == (pytest.approx(1.0), 0.0, 1.0)
    rank, off, first = arenas._measures(-truth_K, truth_K)
    assert rank == pytest.approx(-1.0) and first == 0.0 and off > 300
