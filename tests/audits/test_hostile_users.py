"""Hostile users are many, different, and leave the rows alone that theirs are made of."""

import copy

import pytest

from murmuration.audits.hostile_users import AS_ANOTHER, HOSTILE, who_of

ROWS = [
    {
        "user_id": "u7",
        "prompt": f"Q {place}",
        "chosen": f"a reply {place}",
        "rejected": f"another one {place}",
        "tie": False,
        "meta": {"message_id": "m", "parent_id": "n", "user": "u7"},
        "label": place,
    }
    for place in range(3)
]


def test_there_are_many():
    assert len(HOSTILE) >= 150


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_user_makes_rows_of_good_ones(name):
    before = copy.deepcopy(ROWS)
    made = HOSTILE[name](ROWS)
    assert isinstance(made, list) and repr(made) != repr(ROWS)
    assert before == ROWS
    assert HOSTILE[name]([]) is not None


@pytest.mark.parametrize("name", [each for each in HOSTILE if " id" not in each])
def test_who_judged_stays_as_it_is(name):
    rows = [each for each in HOSTILE[name](ROWS) if isinstance(each, dict) and "user_id" in each]
    assert {row["user_id"] for row in rows} <= {"u7"}
    assert all(who_of([row]) for row in rows)


def test_no_two_are_the_same():
    made = [repr(make(ROWS)) for make in HOSTILE.values()]
    assert len({*made}) == len(made)


def test_names_of_another_are_spelled_otherwise():
    spelled = [repr(spell("u7")) for spell in AS_ANOTHER.values()]
    assert len({*spelled}) == len(spelled)
