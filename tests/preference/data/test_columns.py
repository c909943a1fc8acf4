"""Whose a row is, where the column of its user has another name."""

import pytest

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.rows import USER_COLUMNS, InputError
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.texts import UserTexts

PAIR = {"prompt": "p", "chosen": "x", "rejected": "y"}
ALONE = Schema(one_user_per_row=True)


@pytest.mark.parametrize("column", USER_COLUMNS)
def test_the_only_column_that_can_be_the_users_is_taken_and_said(column):
    found = Judgements.from_rows([{column: "ann", **PAIR}])
    assert found.user_ids == ("ann",)
    assert found.notes == (f"who judged is read from the column {column!r} (1 rows)",)


def test_user_id_comes_first_and_what_is_named_before_all():
    row = {"user_id": "a", "annotator": "b", "worker": "c", **PAIR}
    assert Judgements.from_rows([row]).user_ids == ("a",)
    assert Judgements.from_rows([row]).notes == ()
    assert Judgements.from_rows([row], columns={"user_id": "worker"}).user_ids == ("c",)


def test_of_several_none_is_guessed():
    with pytest.raises(InputError) as caught:
        Judgements.from_rows([{"annotator": "b", "worker": "c", **PAIR}])
    assert str(caught.value) == (
        "row:1: columns 'annotator', 'worker' may each say who judged: name the one with "
        "--columns user_id=annotator"
    )


def test_a_column_that_is_another_field_is_nobody():
    row = {"user": "what?", "worker": "c", "chosen": "x", "rejected": "y"}
    found = Judgements.from_rows([row], columns={"prompt": "user"})
    assert (found.user_ids, found.prompts) == (("c",), ["what?"])


def test_without_users_it_is_said_what_that_means():
    with pytest.raises(InputError) as caught:
        Judgements.from_rows([PAIR])
    message = str(caught.value)
    assert "no column says who judged; the columns are: prompt, chosen, rejected" in message
    assert "--user-column NAME" in message
    assert "--one-user-per-row" in message
    assert "\n" not in message


def test_one_row_decides_nothing_about_others():
    """At a node: a row with two candidates is bad, and the others are read as without it."""
    rows = [{"worker": 1, **PAIR}, {"worker": 2, "rater": 3, **PAIR}, {"rater": 4, **PAIR}]
    found = Judgements.from_rows(rows, on_bad_rows="isolate")
    assert found.user_ids == ("1", "4")
    assert found.left_out == 1
    for rest in ([rows[0]], [rows[2]]):
        alone = Judgements.from_rows(rest, on_bad_rows="isolate")
        assert set(alone.user_ids) <= set(found.user_ids)


def test_texts_have_such_columns_too():
    found = UserTexts.from_placed_rows([("f", 1, {"participant": 7, "text": "t"})])
    assert found.user_ids == ("7",)
    assert found.notes == ("who judged is read from the column 'participant' (1 rows)",)


def test_one_user_for_each_row_when_that_is_declared():
    other = PAIR | {"chosen": "z"}
    found = Judgements.from_rows([PAIR, other, PAIR], schema=ALONE)
    assert len(found.user_ids) == 3
    assert found.counts_U.tolist() == [1, 1, 1]
    moved = Judgements.from_rows([other, PAIR, PAIR], schema=ALONE)
    assert set(moved.user_ids) == set(found.user_ids)
    assert set(Judgements.from_rows([PAIR], schema=ALONE).user_ids) < set(found.user_ids)


def test_one_user_for_each_row_needs_no_user_and_heeds_none():
    found = Judgements.from_rows([{"user_id": "a", **PAIR}] * 2, schema=ALONE)
    assert len(found.user_ids) == 2
    bad = Judgements.from_rows([{"chosen": 3}], schema=ALONE, on_bad_rows="isolate")
    assert bad.user_ids == ()
    with pytest.raises(InputError, match="--one-user-per-row is about judgements"):
        UserTexts.from_placed_rows([], schema=ALONE)


def test_it_is_declared_like_the_rest():
    assert ALONE.options == "--one-user-per-row"
    assert Schema.of({"one-user-per-row": True}) == ALONE
    with pytest.raises(InputError, match="'one-user-per-row' must be a bool"):
        Schema.of({"one-user-per-row": 1})
