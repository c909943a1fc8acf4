"""Scores and ranks beside responses: what of a judgement they make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.rows import BadRow, parse_row

NAMES = {field: field for field in ("user_id", "prompt", "chosen", "rejected")}


def scored(scores, declared="pairs", **more):
    texts = ["a", "b", "c", "d"][: len(scores) if isinstance(scores, list) else 3]
    row = {"user_id": "u", "prompt": "p", "responses": texts, "scores": scores, **more}
    return parse_row(row, NAMES, declared)


def test_two_responses_are_a_pair():
    assert scored([1, 4.5]).responses == ("b", "a")
    assert scored([1, 4.5]).kind == "pairs"
    assert scored([2, 2]).y == 0.5


def test_the_best_of_several_and_all_that_tie():
    assert (scored([1, 3, 2]).kind, scored([1, 3, 2]).responses[0]) == ("top-1", "b")
    tied = scored([3, 1, "3"], "top-1")
    assert (tied.responses, tied.y) == (("a", "c", "b"), 0.5)
    assert scored([1, 2], "top-1").kind == "top-1"


def test_a_ranking_where_one_is_declared():
    assert scored([1, 3, 2], "ranking").responses == ("b", "c", "a")
    assert scored([1, 3, 2], "ranking").groups == ()


def test_equal_scores_share_a_place_of_a_ranking():
    found = scored([1, 2, 1, 2], "ranking")
    assert (found.responses, found.groups, found.y) == (("b", "d", "a", "c"), (2, 2), 0.5)
    assert scored([3, 1, 1], "ranking").groups == (1, 2)
    assert scored([3, 1, 1], "ranking").y == 1.0
    assert scored([2, 2], "ranking").groups == (2,)


@pytest.mark.parametrize("scores", [[1, 2], [1, None, 2], [1, "x", 2], [1, True, 2], "no", 3])
def test_scores_that_are_none(scores):
    with pytest.raises(BadRow, match="'scores' must"):
        row = {"user_id": "u", "prompt": "p", "responses": ["a", "b", "c"], "scores": scores}
        parse_row(row, NAMES)


def test_what_is_said_outright_comes_before_scores():
    assert scored([1, 3, 2], best=0).responses[0] == "a"


@pytest.mark.parametrize("column", ["rank", "ranks", "ranking"])
def test_names_of_ranks(column):
    row = {"user_id": "u", "prompt": "p", "responses": ["a", "b"], column: [2, 1]}
    assert parse_row(row, NAMES).responses == ("b", "a")


def test_scores_of_a_pair():
    pair = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}
    assert parse_row(pair | {"score_chosen": 5.0, "score_rejected": 2}, NAMES).y == 1.0
    assert parse_row(pair | {"score_chosen": 5.0, "score_rejected": 5}, NAMES).y == 0.5
    assert parse_row(pair | {"score_chosen": 5.0, "score_rejected": None}, NAMES).y == 1.0
    with pytest.raises(BadRow, match="is below 'score_rejected'"):
        parse_row(pair | {"score_chosen": 1, "score_rejected": 5}, NAMES)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=4))
def test_the_best_have_the_highest_score(scores):
    found = scored(scores, "top-1")
    best = {"abcd"[at] for at, score in enumerate(scores) if score == max(scores)}
    assert set(found.responses[: round(1 / found.y)]) == best
    assert sorted(found.responses) == ["a", "b", "c", "d"][: len(scores)]
