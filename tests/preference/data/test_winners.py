"""Pairs that say which of two responses won: read by what each row says, never guessed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.cells import TIES, BadRow
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.rows import (
    PAIRS_OF_SIDES,
    REQUIRED,
    WINNERS,
    InputError,
    parse_row,
)

NAMES = {field: field for field in REQUIRED}
SAID = {"user_id": "u1", "prompt": "Why?"}


def parsed(cells, **named):
    row = parse_row({**SAID, **cells}, NAMES | named)
    return row.responses, row.y


@pytest.mark.parametrize(
    ("winner", "first"),
    [
        ("a", "left"),
        ("A", "left"),
        ("model_a", "left"),
        ("response_a", "left"),
        ("Response A", "left"),
        ("b", "right"),
        (" model_b ", "right"),
        ("response_b", "right"),
    ],
)
def test_the_winner_comes_first(winner, first):
    responses, y = parsed({"response_a": "left", "response_b": "right", "winner": winner})
    assert (responses[0], y) == (first, 1.0)
    assert {*responses} == {"left", "right"}


@pytest.mark.parametrize("pair", PAIRS_OF_SIDES)
@pytest.mark.parametrize("column", WINNERS)
def test_known_names_of_sides_and_winners(pair, column):
    for side, name in enumerate(pair):
        end = name.rpartition("_")[2]
        for winner in (end, name, int(end) if end.isdigit() else end.upper()):
            row = {pair[0]: "zero", pair[1]: "one", column: winner}
            assert parsed(row)[0][0] == ("zero", "one")[side]


@pytest.mark.parametrize("tie", TIES)
def test_neither_is_a_tie(tie):
    assert parsed({"response_a": "left", "response_b": "right", "winner": tie})[1] == 0.5


def test_columns_of_other_names():
    named = {"response_a": "left", "response_b": "right", "winner": "vote"}
    row = {"left": "first", "right": "second", "vote": "right", "winner": "left"}
    assert parsed(row, **named)[0] == ("second", "first")
    with pytest.raises(BadRow, match="no column 'vote'"):
        parsed({"left": "first", "right": "second"}, **named)


def test_votes_between_models_with_whole_conversations(tmp_path):
    """As people's votes between models are published: no user_id, no prompt, messages."""
    asked = {"role": "user", "content": "Tell me of trees"}
    row = {
        "question_id": "q1",
        "model_a": "one",
        "model_b": "two",
        "winner": "model_b",
        "judge": "voter_7",
        "conversation_a": [asked, {"role": "assistant", "content": "No."}],
        "conversation_b": [asked, {"role": "assistant", "content": "They are tall."}],
        "turn": 1,
    }
    file = tmp_path / "votes.jsonl"
    file.write_text(json.dumps(row) + "\n" + json.dumps({**row, "winner": "tie (bothbad)"}) + "\n")
    found = load_judgements(str(file))
    assert found.user_ids == ("voter_7",)
    assert list(found.prompts) == ["Tell me of trees"] * 2
    assert found.responses[0] == ("They are tall.", "No.")
    assert list(found.y_R) == [1.0, 0.5]
    said = "which of 'conversation_a' and 'conversation_b' was preferred is read from 'winner'"
    assert f"{said} (2 rows)" in found.notes


@pytest.mark.parametrize("winner", [0, 1, "1", True, 0.5, "", None, "model_c", "ab", ["a"], "aa"])
def test_a_winner_that_names_neither_side_is_no_guess(winner):
    with pytest.raises(BadRow, match="must name the side that won"):
        parsed({"response_a": "left", "response_b": "right", "winner": winner})


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
    found = load_judgements(str(file), columns=columns)
    assert any("the column 'winner' is not used" in note for note in found.notes)
    with pytest.raises(InputError, match="winner"):
        load_judgements(str(file), columns={"winner": "who"})


@given(st.booleans(), st.text("abcdefgh ", min_size=1), st.text("abcdefgh ", min_size=1))
def test_turning_the_sides_round_turns_nothing_round(first, left, right):
    """The same judgement, whichever side the better response is shown on."""
    left, right = f"l {left}", f"r {right}"
    row = {"response_a": left, "response_b": right, "winner": "a" if first else "b"}
    other = {"response_a": right, "response_b": left, "winner": "b" if first else "a"}
    assert parsed(row) == parsed(other)
