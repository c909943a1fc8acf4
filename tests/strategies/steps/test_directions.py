"""How many directions pay: a rule of public numbers, which reads nothing."""

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.strategies.config import RunConfig
from murmuration.strategies.steps.directions import (
    STEPS,
    advice_for,
    directions_for,
    directions_of,
)


def test_more_users_or_a_larger_epsilon_never_give_fewer_directions():
    counts = [directions_for(users, 1.0) or 10**6 for users in range(1, 3000, 7)]
    assert counts == sorted(counts) and {*counts} == {16, 64, 10**6}
    for users in (40, 200, 900):
        counts = [directions_for(users, epsilon) or 10**6 for epsilon in (0.1, 0.5, 1, 3, 8)]
        assert counts == sorted(counts)


def test_users_and_epsilon_count_alike():
    for most, count in STEPS:
        assert directions_for(int(most), 1.0) == directions_for(int(most) // 3, 3.0) == count


def settings(**more):
    named = {"data": "/nowhere/at/all", "public": "/nowhere/either", "directions": "auto"}
    return RunConfig(**{**named, "users": 100, "epsilon": 1.0, **more})


def test_the_rule_reads_no_data():
    """Neither file is there; and nothing of a registry, of nodes or of rows is an argument."""
    assert directions_of(settings()) == 16
    assert directions_of(settings(users=400)) == 64
    assert directions_of(settings(users=4000)) == 0
    assert directions_of(settings(cohort=20, rounds=7, delta=1e-3)) == 16


def test_a_number_that_is_given_is_taken_and_all_are_all():
    assert directions_of(settings(directions="33", users=9000)) == 33
    assert directions_of(settings(directions="all", public="")) == 0
    assert directions_of(settings(directions="", public="")) == 0
    assert directions_of(settings(strategy="nonprivate")) == 0


@pytest.mark.parametrize("given", ["0", "-3", "1.5", "many", "1e3", "00016"])
def test_what_is_no_number_of_directions_is_refused(given):
    with pytest.raises(InputError, match="--directions must be auto, all"):
        settings(directions=given)


def test_auto_without_users_is_refused():
    with pytest.raises(InputError, match="--users"):
        settings(users=0)


def test_the_advice_names_what_to_type():
    assert "--directions 16 --public" in advice_for(100, 1.0)
    assert "cost accuracy" in advice_for(2000, 3.0) and "--start length" in advice_for(2000, 3.0)
