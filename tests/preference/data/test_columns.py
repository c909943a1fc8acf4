import json

import pytest

from murmuration.preference.data.columns import parse_columns, write_columns
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.texts import UserTexts
from tests.preference.data.test_rows import NAMES, PAIR, SAID, judged, parsed


def test_missing_columns_name_what_is_there_and_what_to_do():
    with pytest.raises(BadRow) as caught:
        judged({"who": "u", "prompt": "p", "chosen": "x", "worse": "y"}, NAMES)
    assert str(caught.value) == (
        "no column 'user_id', 'rejected'; the columns are: who, prompt, chosen, worse. "
        "Name yours with --columns user_id=NAME,rejected=NAME"
    )


def test_columns_that_were_asked_for_must_be_there():
    with pytest.raises(BadRow, match=r"no column 'pick'; .* --columns best=NAME"):
        judged({**SAID, "responses": ["x", "y", "z"], "best": 0}, {**NAMES, "best": "pick"})
    with pytest.raises(BadRow, match="no column 'options'"):
        judged({"user_id": "u", **PAIR}, {**NAMES, "responses": "options"})


@pytest.mark.parametrize("column", ["rank", "ranks", "ranking"])
def test_names_of_ranks(column):
    row = {"user_id": "u", "prompt": "p", "responses": ["a", "b"], column: [2, 1]}
    assert judged(row).responses == ("b", "a")


@pytest.mark.parametrize(
    "column",
    ["annotator_id", "annotator", "worker_id", "worker", "participant_id", "participant",
     "rater_id", "rater", "labeler_id", "labeler", "userid", "user", "judge", "judge_hash",
     "evaluator", "completed_by", "visitor_id", "voter", "voter_id", "voter-id", "voter_email",
     "raterParticipantId"],
)  # fmt: skip
def test_the_only_column_that_can_be_the_users_is_taken_and_said(column):
    result = Judgements.from_rows([{column: "ann", **PAIR}])
    assert result.user_ids == ("ann",)
    assert result.notes == (f"who judged is read from the column {column!r} (1 rows)",)


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
    result = Judgements.from_rows([row], columns={"prompt": "user"})
    assert (result.user_ids, result.prompts) == (("c",), ["what?"])


def test_without_users_it_is_said_what_that_means():
    with pytest.raises(InputError, match=r"^.* no column says who judged.*--one-user-per-row.*$"):
        Judgements.from_rows([PAIR])


def test_one_row_decides_nothing_about_others():
    """At a node: a row with two candidates is bad, and the others are read as without it."""
    rows = [{"worker": 1, **PAIR}, {"worker": 2, "rater": 3, **PAIR}, {"rater": 4, **PAIR}]
    result = Judgements.from_rows(rows, on_bad_rows="isolate")
    assert result.user_ids == ("1", "4")
    assert result.left_out == 1
    for rest in ([rows[0]], [rows[2]]):
        alone = Judgements.from_rows(rest, on_bad_rows="isolate")
        assert set(alone.user_ids) <= set(result.user_ids)


def test_texts_have_such_columns_too():
    result = UserTexts.from_placed_rows([("f", 1, {"participant": 7, "text": "t"})])
    assert result.user_ids == ("7",)
    assert result.notes == ("who judged is read from the column 'participant' (1 rows)",)


@pytest.mark.parametrize("name", ["response", "answer", "output", "completion", "conversation"])
@pytest.mark.parametrize("ends", ["ab", "01", "12"])
@pytest.mark.parametrize(
    "column", ["winner", "preference", "preferred", "choice", "better_response_id"]
)
def test_known_names_of_sides_and_winners(name, ends, column):
    for side, end in enumerate(ends):
        for winner in (end, f"{name}_{end}", int(end) if end.isdigit() else end.upper()):
            row = {f"{name}_{ends[0]}": "zero", f"{name}_{ends[1]}": "one", column: winner}
            assert parsed(row)[0][0] == ("zero", "one")[side]


def test_columns_of_other_names():
    row = {"user_id": "u", "prompt": "p", "better": "x", "worse": "y", "same": "true"}
    names = {"chosen": "better", "rejected": "worse", "tie": "same"}
    assert judged(row, NAMES | names).y == 0.5
    named = {"response_a": "left", "response_b": "right", "winner": "vote"}
    row = {"left": "first", "right": "second", "vote": "right", "winner": "left"}
    assert parsed(row, **named)[0] == ("second", "first")
    with pytest.raises(BadRow, match="no column 'vote'"):
        parsed({"left": "first", "right": "second"}, **named)


@pytest.mark.parametrize(
    "cells",
    [
        {"response_a": "l", "response_b": "r", "winner": "a", "choice": "b"},
        {"response_a": "l", "response_b": "r", "answer_a": "x", "answer_b": "y", "winner": "a"},
    ],
)
def test_of_several_columns_none_is_guessed(cells):
    with pytest.raises(BadRow, match="is not clear"):
        parsed(cells)


def test_a_row_that_holds_the_preferred_one_is_read_as_before():
    row = {"chosen": "good", "rejected": "bad"}
    sides = {"response_a": "bad", "response_b": "good", "winner": "a"}
    assert parsed({**row, **sides})[0] == ("good", "bad")
    listed = {"responses": ["p", "q"], "best": 1}
    assert parsed({**listed, **sides})[0] == ("q", "p")


def test_sides_without_a_winner_are_told_how_to_name_one():
    with pytest.raises(BadRow, match="response_a=NAME,response_b=NAME,winner=NAME"):
        parsed({"response_a": "left", "response_b": "right", "vote": "a"})


def test_a_named_side_that_hides_who_won_is_said(tmp_path):
    """`--columns chosen=answer_a` takes every first answer for the better one."""
    file = tmp_path / "rows.jsonl"
    row = {**SAID, "answer_a": "left", "answer_b": "right", "winner": "b"}
    file.write_text(json.dumps(row) + "\n")
    columns = {"chosen": "answer_a", "rejected": "answer_b"}
    result = load_judgements(str(file), columns=columns)
    assert any("the column 'winner' is not used" in note for note in result.notes)
    with pytest.raises(InputError, match="winner"):
        load_judgements(str(file), columns={"winner": "who"})


@pytest.mark.parametrize("column", ["disliked", "Dislike", "thumbs_down"])
def test_what_was_not_liked_is_no_label(column):
    with pytest.raises(InputError, match="was not liked"):
        Judgements.from_rows(
            [{"user_id": "u", "prompt": "p", "completion": "x", "label": True}],
            columns={"label": column},
        )


def test_parse_columns():
    assert parse_columns("") == parse_columns(" , ") == {}
    both = {"user_id": "annotator", "chosen": "the better one"}
    assert parse_columns("user_id=annotator, chosen = the better one,") == both
    for option in ("annotator", "user_id=", "=annotator", "user_id annotator"):
        with pytest.raises(InputError, match="write field=column"):
            parse_columns(option)
    with pytest.raises(InputError, match="twice"):
        parse_columns("user_id=a,user_id=b")


@pytest.mark.parametrize("column", ["a", "What do you prefer, A or B?", "a=b", " a", "{", "é"])
def test_columns_are_read_as_they_were_written(column):
    assert parse_columns(write_columns({"chosen": column})) == {"chosen": column}
    both = {"chosen": "better", "user_id": column}
    assert parse_columns(write_columns({"chosen": "better"}, column)) == both
    assert parse_columns(write_columns("chosen=better", column)) == both
    assert parse_columns(write_columns(write_columns(both), column)) == both


def test_plain_columns_are_written_plainly():
    assert write_columns(None) == write_columns({}) == write_columns("") == ""
    assert write_columns({"chosen": "a", "user_id": "b"}) == "chosen=a,user_id=b"
    assert write_columns("chosen=a", "b") == "chosen=a,user_id=b"


@pytest.mark.parametrize(
    ("columns", "user"),
    [("user_id=a", "b"), ({"user_id": "a"}, "b"), ("", ""), ({}, " "), (None, 3)],
)
def test_a_users_column_that_cannot_be(columns, user):
    with pytest.raises(InputError, match="--user-column"):
        write_columns(columns, user)


@pytest.mark.parametrize("columns", [3, ["chosen"], "{", "{chosen}"])
def test_columns_that_are_none(columns):
    with pytest.raises(InputError, match="--columns"):
        parse_columns(columns)
