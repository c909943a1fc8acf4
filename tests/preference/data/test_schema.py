"""What judgements are declared to be."""

import pytest

from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.rows import Row, check_count, check_row
from murmuration.preference.data.schema import Schema


def row(kind="pairs", responses=("x", "y"), flip=None):
    return Row(kind, "p", tuple(responses), flip_probability=flip)


def test_pairs_are_the_default():
    assert (Schema().kind, Schema().responses, Schema().labels) == ("pairs", 2, "true")
    assert Schema() == Schema("pairs", 2) == Schema.of({})
    assert Schema().options == Schema("pairs", 2).options == ""


@pytest.mark.parametrize(
    ("declared", "option"),
    [
        ({"kind": "best"}, "--kind must be one of"),
        ({"responses": 3}, "--responses 3: pairs have two"),
        ({"kind": "top-1"}, "--kind top-1 needs --responses"),
        ({"kind": "ranking", "responses": 1}, "--kind ranking needs --responses"),
        ({"kind": "ranking", "responses": 65}, "2 to 64; got 65"),
        ({"labels": "noisy"}, "--labels must be one of"),
        ({"kind": "ranking", "responses": 3, "labels": "randomized"}, "not about rankings"),
        ({"max_judgements": 0}, "--max-judgements must be at least 1"),
        ({"max_characters": -1}, "--max-characters must be at least 1"),
    ],
)
def test_declarations_that_make_no_sense(declared, option):
    with pytest.raises(InputError, match=option):
        Schema(**declared)


def test_of_settings():
    """By the names of options, whatever else there is."""
    settings = {"kind": "top-1", "responses": 4, "max-characters": 9, "data": "f", "seed": 1}
    found = Schema.of(settings)
    assert found == Schema("top-1", 4, max_characters=9)
    assert found.options == "--kind top-1 --responses 4 --max-characters 9"
    assert Schema("top-1", 2).options == "--kind top-1 --responses 2"
    for wrong in ({"responses": "4"}, {"kind": 1}, {"max-judgements": 2.0}, {"responses": True}):
        with pytest.raises(InputError, match="must be a"):
            Schema.of(wrong)


def test_rows_that_are_as_declared():
    check_row(row(), Schema())
    check_row(row("top-1", "xyz"), Schema("top-1", 4))
    check_row(row("ranking", "xyz"), Schema("ranking", 3))
    check_row(row(flip=0.0), Schema(labels="randomized"))
    check_row(row(responses=("xyz", "abc")), Schema(max_characters=3, max_judgements=2))
    check_count(1, Schema(max_judgements=2))


@pytest.mark.parametrize(
    ("schema", "bad", "said"),
    [
        (Schema(), row("top-1", "xy"), "a row of kind top-1 over 2 responses"),
        (Schema("ranking", 3), row("top-1", "xyz"), "a row of kind top-1"),
        (Schema("top-1", 3), row("top-1", "wxyz"), "raise --responses"),
        (Schema(), row(flip=0.0), "pass --labels randomized"),
        (Schema(labels="randomized"), row(), "see --labels"),
        (Schema(max_characters=3), row(responses=("x", "four")), "raise --max-characters"),
    ],
)
def test_rows_that_are_not(schema, bad, said):
    with pytest.raises(BadRow, match=said):
        check_row(bad, schema)
    with pytest.raises(BadRow, match="more than 2 rows of this user"):
        check_count(2, Schema(max_judgements=2))
