"""Covariates of votes: by how much one answer has more, whatever a row says."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.covariates import (
    STYLES,
    covariate_columns,
    covariates_of,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import Schema

LENGTH = Schema(no_prompt=True, covariates="length")


def test_names_are_a_list():
    assert Schema().covariate_names == ()
    assert Schema(covariates="length, bold_words").covariate_names == ("length", "bold_words")
    for wrong in ("Length", "length,", "length,length", "a,b,c,d,e", "0a", "a-b"):
        with pytest.raises(InputError, match="--covariates must be"):
            Schema(covariates=wrong)
    assert "length_a" in covariate_columns(["length"])
    assert covariate_columns(()) == frozenset()


@given(st.floats(0, 1e308), st.floats(0, 1e308))
def test_they_are_bounded_and_of_the_other_side_the_opposite(x, y):
    sides = ("a", "b")
    (one,) = covariates_of({"n_a": x, "n_b": y}, ["n"], sides)
    (other,) = covariates_of({"n_a": y, "n_b": x}, ["n"], sides)
    assert -1.0 <= one <= 1.0
    assert one == -other
    assert (one > 0.0) == (x > y) or x == pytest.approx(y, abs=1e-300)


def test_their_values():
    row = {"length_chosen": "200", "length_rejected": 100, "bold_chosen": 0, "bold_rejected": 0.0}
    assert covariates_of(row, ["length", "bold"], ("chosen", "rejected")) == (1 / 3, 0.0)


@pytest.mark.parametrize("cell", [-1, math.nan, math.inf, "", "long", None, True, [3], "1e999"])
def test_what_is_no_length_is_a_bad_row(cell):
    row = {"user_id": "u", "chosen": "a", "rejected": "b", "length_chosen": cell}
    row["length_rejected"] = 3
    with pytest.raises(InputError, match="'length_chosen' must be a number"):
        Judgements.from_rows([row], schema=LENGTH)


def test_a_column_that_is_not_there_is_named():
    row = {"user_id": "u", "chosen": "a", "rejected": "b", "length_chosen": 3}
    with pytest.raises(InputError, match="'length_rejected', from which --covariates"):
        Judgements.from_rows([row], schema=LENGTH)
    # Those of the other form are not taken for it: they would say nothing of who was preferred.
    with pytest.raises(InputError, match="'length_chosen'"):
        Judgements.from_rows(
            [{"user_id": "u", "chosen": "a", "rejected": "b", "length_a": 1, "length_b": 2}],
            schema=LENGTH,
        )


@pytest.mark.parametrize(
    ("winner", "expected", "responses"),
    [("a", 0.5, ("x", "y")), ("b", -0.5, ("y", "x")), ("tie", 0.5, ("x", "y"))],
)
def test_of_two_sides_they_are_of_the_one_that_won(winner, expected, responses):
    row = {"user_id": "u", "response_a": "x", "response_b": "y", "winner": winner}
    judgements = Judgements.from_rows([{**row, "length_a": 3, "length_b": 1}], schema=LENGTH)
    assert judgements.responses == [responses]
    assert judgements.covariates_RC is not None
    assert judgements.covariates_RC.tolist() == [[expected]]


@pytest.mark.parametrize(("winner", "expected"), [(1, -0.5), (0, 0.5)])
def test_also_where_all_labels_together_say_what_one_means(winner, expected):
    row = {"user_id": "u", "response_0": "x", "response_1": "y", "length_0": 3, "length_1": 1}
    judgements = Judgements.from_rows([{**row, "winner": winner}], schema=LENGTH)
    assert judgements.covariates_RC is not None
    assert judgements.covariates_RC.tolist() == [[expected]]


def test_rows_keep_their_own_when_others_are_left_out():
    rows = [
        {"user_id": user, "chosen": "a", "rejected": "b", "length_chosen": n, "length_rejected": 1}
        for user, n in (("u", 1), ("w", 3), ("u", 1), ("w", 3))
    ]
    judgements = Judgements.from_rows(rows, schema=LENGTH)
    assert judgements.covariates_RC is not None
    assert judgements.covariates_RC[:, 0].tolist() == [0.0, 0.0, 0.5, 0.5]
    only = judgements.select([1])
    assert only.covariates_RC is not None
    assert only.covariates_RC[:, 0].tolist() == [0.5, 0.5]


def test_kinds_without_two_sides_are_refused():
    with pytest.raises(InputError, match="--covariates are of pairs"):
        Schema(kind="ranking", responses=3, covariates="length")
    row = {"user_id": "u", "prompt": "q", "responses": ["a", "b"], "scores": [1, 0]}
    with pytest.raises(InputError, match="of pairs in two columns"):
        Judgements.from_rows([{**row, "length_a": 1, "length_b": 1}], schema=LENGTH)


def test_styles_are_counted_in_markdown():
    text = "# Title\n\nSome **bold** and **more** words.\n- one\n* two\n  1. three\n## Next\n#no"
    counted = {name: count(text) for name, count in STYLES.items()}
    assert counted == {"length": len(text), "headers": 2, "lists": 3, "bold": 2}
