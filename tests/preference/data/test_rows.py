import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.columns import FIELDS, REQUIRED
from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.labels import TIES
from murmuration.preference.data.rows import Row, read_row
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.texts import UserTexts

NAMES = {field: field for field in REQUIRED}


def judged(row, names=NAMES, schema=PAIRS):
    return read_row(row, names, schema)[1]


GOOD = {"user_id": "u", "prompt": "p", "chosen": "x", "rejected": "y"}


LISTED = {"user_id": "u", "prompt": "p", "responses": ["x", "y", "z"]}


def parse(**changes):
    return judged(GOOD | changes, NAMES)


def listed(**changes):
    return judged(LISTED | changes, NAMES)


def test_a_good_row():
    assert parse(other=3) == Row("pairs", "p", ("x", "y"))


@pytest.mark.parametrize("field", ["prompt", "chosen", "rejected"])
@pytest.mark.parametrize("text", ["", "  \n", None, 3, ["x"], {"role": "user"}, "half \ud800"])
def test_bad_texts(field, text):
    with pytest.raises(BadRow, match=f"'{field}'"):
        parse(**{field: text})


YES = [True, 1, 1.0, np.True_, np.int64(1), "true", "True", " TRUE ", "1"]
NO = [False, 0, 0.0, np.False_, "false", "FALSE", "0", "", None]


@pytest.mark.parametrize(("value", "y"), [*((yes, 0.5) for yes in YES), *((no, 1.0) for no in NO)])
def test_ties(value, y):
    assert parse(tie=value).y == y


@pytest.mark.parametrize("value", ["yes", 2, -1, 0.5, float("nan"), [], "tie"])
def test_not_a_tie_nor_none(value):
    with pytest.raises(BadRow, match="'tie' must be true or false"):
        parse(tie=value)


def test_a_text_against_itself_is_a_tie():
    assert parse(rejected="x").y == 0.5


def test_long_texts_are_not_quoted_whole():
    with pytest.raises(BadRow) as caught:
        parse(chosen=["secret " * 100])
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize("best", [2, 2.0, "2", " 2", [2], "[2]", np.int64(2), (2,), np.array([2])])
def test_the_best_of_several(best):
    assert listed(best=best) == Row("top-1", "p", ("z", "x", "y"))


def test_several_that_tie():
    assert listed(best=[2, 0]).responses == ("x", "z", "y")
    assert listed(best=[2, 0]).y == 0.5
    assert listed(best=[0, 1, 2]).y == pytest.approx(1 / 3)


def test_the_best_text_shown_twice_ties_with_itself():
    found = listed(responses=["x", "y", "x"], best=0)
    assert (found.responses, found.y) == (("x", "x", "y"), 0.5)


@pytest.mark.parametrize(
    "best", [3, -1, 1.5, "x", [], [0, 0], [0, 3], [0, "x"], True, {"x": 1}, float("nan"), 10**400]
)
def test_what_is_no_best(best):
    with pytest.raises(BadRow, match="'best' must be the place of a response, counted from 0 to 2"):
        listed(best=best)


@pytest.mark.parametrize("ranking", [[2, 3, 1], "[2, 3, 1]", (2.0, 3.0, 1.0), np.array([2, 3, 1])])
def test_rankings(ranking):
    assert listed(ranking=ranking) == Row("ranking", "p", ("z", "x", "y"))


@pytest.mark.parametrize(
    ("ranking", "responses", "groups"),
    [
        ([1, 2, 2], "xyz", (1, 2)),
        ([1, 3, 3], "xyz", (1, 2)),
        ([2.5, 1, 2.5], "yxz", (1, 2)),
        ("[2, 2, 1]", "zxy", (1, 2)),
        ([3, 1, 1], "yzx", (2, 1)),
        ([2, 1, 1], "yzx", (2, 1)),
        ([1.5, "1.5", 3], "xyz", (2, 1)),
        ([1, 1, 1], "xyz", (3,)),
        ([2, 2, 2], "xyz", (3,)),
    ],
)
def test_ranks_are_shared_in_all_the_usual_ways(ranking, responses, groups):
    found = listed(ranking=ranking)
    assert (found.responses, found.groups) == (tuple(responses), groups)
    assert found.y == pytest.approx(1 / groups[0])


@pytest.mark.parametrize(
    "ranking",
    [
        [0, 1, 2],
        [1, 2],
        [2, 2, 5],
        [1, 1, 4],
        [90, 40, 40],
        [3, 4, 5],
        [1, 2, 3, 4],
        [1, 2, 3, "x"],
        [1, 2, None],
        [1, 2, True],
        [1, 2, float("nan")],
        1,
        "x",
        [],
    ],
)
def test_what_is_no_ranking(ranking):
    with pytest.raises(BadRow, match="'ranking' must give each of the 3 responses a rank"):
        listed(ranking=ranking)


KTO = {"user_id": "u", "prompt": "p", "completion": "x", "label": True}
HI = [{"role": "user", "content": "hi"}]
YO = [{"role": "assistant", "content": "yo"}]


LIKED = [True, "true", " TRUE", np.True_, "Yes", "👍", "thumbs_up"]
NOT_LIKED = [False, "false", np.False_, "no", "Bad"]


@pytest.mark.parametrize(
    ("label", "y"), [*((up, 1.0) for up in LIKED), *((down, 0.0) for down in NOT_LIKED)]
)
def test_a_response_that_was_liked_or_not(label, y):
    assert judged(KTO | {"label": label}) == Row("thumbs", "p", ("x",), y)


@pytest.mark.parametrize("label", [None, "", "meh", [], float("nan")])
def test_what_is_no_label(label):
    with pytest.raises(BadRow, match="'label' must be true or false"):
        judged(KTO | {"label": label}, NAMES)


@pytest.mark.parametrize("label", [0, 1, "1", 2, -1, 0.5, np.int64(1)])
def test_what_a_number_stands_for_is_declared(label):
    with pytest.raises(BadRow, match=r"'label' holds numbers.*--scale 0\.\.1"):
        judged(KTO | {"label": label}, NAMES)
    judgements = judged(KTO | {"label": label}, NAMES, Schema("thumbs", scale="-2..2"))
    assert judgements.y == (float(label) > 0 if float(label) else 0.5)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi", "completion": "yo"},
        {"prompt": HI, "completion": YO},
        {"prompt": "hi", "completion": YO},
        {"prompt": "hi", "response": "yo"},
        {"completion": HI + YO},
        {"messages": HI + YO},
        {"prompt": "something else", "completion": HI + YO},
        {"completion": "\n\nHuman: hi\n\nAssistant: yo"},
    ],
)
def test_forms_of_ratings(row):
    judgements = judged({"annotator": 7, "label": False} | row, NAMES)
    assert judgements == Row("thumbs", "hi", ("yo",), 0.0)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"completion": "yo"}, "no column 'prompt', and 'completion' is no conversation"),
        ({"completion": HI}, "'completion' ends with a turn of the user"),
        ({"completion": YO}, "no column 'prompt'"),
        ({"prompt": "hi", "completion": ""}, "'completion' is empty"),
        ({"prompt": "hi", "completion": "x", "flip_probability": 0.1}, "not about a single one"),
    ],
)
def test_what_is_no_rating(row, said):
    with pytest.raises(BadRow, match=said):
        judged({"user_id": "u", "label": True} | row, NAMES)


def test_a_label_beside_a_pair_is_not_read():
    assert parse(label=0).kind == "pairs"
    with pytest.raises(BadRow, match="no column 'chosen', 'rejected'"):
        judged({"user_id": "u", "prompt": "p", "better": "x", "label": 0}, NAMES)


@pytest.mark.parametrize("responses", [["x"], [], "x", 3, None, ["x"] * 65, {"a": "x", "b": "y"}])
def test_what_are_no_responses(responses):
    with pytest.raises(BadRow, match="'responses' must be a list of 2 to 64 texts"):
        listed(responses=responses, best=0)


@pytest.mark.parametrize("text", ["", " ", None, 3])
def test_a_response_that_is_no_text(text):
    with pytest.raises(BadRow, match="'responses'"):
        listed(responses=["x", text], best=0)


@pytest.mark.parametrize("more", [{}, {"best": 0, "ranking": [1, 2, 3]}, {"best": None}])
def test_responses_need_one_judgement(more):
    with pytest.raises(BadRow, match=r"needs 'best', 'ranking' or 'scores'; found (neither|both)"):
        listed(**more)


def test_ties_are_said_in_best():
    with pytest.raises(BadRow, match="'tie' is for pairs"):
        listed(best=0, tie=True)
    assert listed(best=0, tie=False).y == 1.0


def test_pairs_win_where_a_row_has_both():
    assert parse(responses=["x", "y", "z"], best=2).kind == "pairs"


@pytest.mark.parametrize(
    ("flip", "expected"),
    [(None, None), ("", None), (0, 0.0), ("0.25", 0.25), (np.float32(0.25), 0.25)],
)
def test_flip_probabilities(flip, expected):
    assert parse(flip_probability=flip).flip_probability == expected
    assert listed(best=0, flip_probability=flip).flip_probability == expected


@pytest.mark.parametrize("flip", [0.5, 1, -0.1, float("nan"), True, "x", [0.1], 10**400, "nan"])
def test_what_is_no_flip_probability(flip):
    with pytest.raises(BadRow, match=r"'flip_probability' must be at least 0 and below 0\.5"):
        parse(flip_probability=flip)


def test_rankings_have_no_flip_probability():
    with pytest.raises(BadRow, match="'flip_probability' is about one label"):
        listed(ranking=[1, 2, 3], flip_probability=0.1)


texts = st.text("a \n1\u00e9\ud800", max_size=4)
json_values = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(), texts, st.lists(texts, max_size=2)
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys((*NAMES, *FIELDS), json_values)))
def test_any_row_is_parsed_or_refused(row):
    whole(row)


@given(
    st.fixed_dictionaries(
        {"user_id": st.just("u"), "prompt": st.just("p"), "responses": st.lists(texts, max_size=4)},
        optional={
            "best": st.one_of(json_values, st.lists(st.integers(-1, 4), max_size=4)),
            "ranking": st.one_of(json_values, st.permutations([1, 2, 3])),
            "flip_probability": json_values,
        },
    )
)
def test_any_row_with_responses_is_parsed_or_refused(row):
    whole(row)


def whole(row):
    """A row is refused in one line, or gives a judgement that is whole."""
    try:
        row_or_reason = judged(row)
    except BadRow as reason:
        assert "\n" not in str(reason)
    else:
        assert all(text.strip() for text in (row_or_reason.prompt, *row_or_reason.responses))
        assert len(row_or_reason.responses) >= 2
        assert round(1 / row_or_reason.y) <= len(row_or_reason.responses)
        assert 0 <= (row_or_reason.flip_probability or 0) < 1


# Scores and ranks beside responses: what of a judgement they make.


def scored(scores, declared="pairs", **more):
    texts = ["a", "b", "c", "d"][: len(scores) if isinstance(scores, list) else 3]
    row = {"user_id": "u", "prompt": "p", "responses": texts, "scores": scores, **more}
    return judged(row, NAMES, Schema(declared, 0 if declared == "pairs" else 4))


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


@pytest.mark.parametrize(
    "scores", [[1, 2], [1, None, 2], [1, "x", 2], [1, True, 2], [1, 2, math.inf], "no", 3]
)
def test_scores_that_are_none(scores):
    with pytest.raises(BadRow, match="'scores' must"):
        row = {"user_id": "u", "prompt": "p", "responses": ["a", "b", "c"], "scores": scores}
        judged(row)


def test_what_is_said_outright_comes_before_scores():
    assert scored([1, 3, 2], best=0).responses[0] == "a"


def test_scores_of_a_pair():
    pair = {"user_id": "u", "prompt": "p", "chosen": "a", "rejected": "b"}
    assert judged(pair | {"score_chosen": 5.0, "score_rejected": 2}, NAMES).y == 1.0
    assert judged(pair | {"score_chosen": 5.0, "score_rejected": 5}, NAMES).y == 0.5
    assert judged(pair | {"score_chosen": 5.0, "score_rejected": None}, NAMES).y == 1.0
    with pytest.raises(BadRow, match="is below 'score_rejected'"):
        judged(pair | {"score_chosen": 1, "score_rejected": 5}, NAMES)


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=4))
def test_the_best_have_the_highest_score(scores):
    found = scored(scores, "top-1")
    best = {"abcd"[at] for at, score in enumerate(scores) if score == max(scores)}
    assert set(found.responses[: round(1 / found.y)]) == best
    assert sorted(found.responses) == ["a", "b", "c", "d"][: len(scores)]


# Whose a row is, where the column of its user has another name.


PAIR = {"prompt": "p", "chosen": "x", "rejected": "y"}
ALONE = Schema(one_user_per_row=True)
LABELS = Schema(one_user_per_row=True, pair_thumbs=False)


def test_one_user_for_each_row_when_that_is_declared():
    other = PAIR | {"chosen": "z"}
    judgements = Judgements.from_rows([PAIR, other, PAIR], schema=ALONE)
    assert len(judgements.user_ids) == 3
    assert judgements.counts_U.tolist() == [1, 1, 1]
    moved = Judgements.from_rows([other, PAIR, PAIR], schema=ALONE)
    assert set(moved.user_ids) == set(judgements.user_ids)
    assert set(Judgements.from_rows([PAIR], schema=ALONE).user_ids) < set(judgements.user_ids)


def test_a_row_is_called_by_what_it_says_so_one_more_renames_no_other():
    turned = PAIR | {"chosen": "y", "rejected": "x"}

    def called(rows, schema=ALONE):
        judgements = Judgements.from_rows(rows, schema=schema)
        return set(zip(judgements.user_ids, judgements.responses, strict=True))

    assert called([PAIR, turned]) < called([turned, PAIR, turned])
    # Where labels are protected a name tells none.
    names = [{name for name, _ in called([row], LABELS)} for row in (PAIR, turned)]
    assert names[0] == names[1]


def test_one_user_for_each_row_needs_no_user_and_heeds_none():
    judgements = Judgements.from_rows([{"user_id": "a", **PAIR}] * 2, schema=ALONE)
    assert len(judgements.user_ids) == 2
    bad = Judgements.from_rows([{"chosen": 3}], schema=ALONE, on_bad_rows="isolate")
    assert bad.user_ids == ()
    with pytest.raises(InputError, match="--one-user-per-row is about judgements"):
        UserTexts.from_placed_rows([], schema=ALONE)


# Pairs that say which of two responses won: read by what each row says, never guessed.


SAID = {"user_id": "u1", "prompt": "Why?"}


def parsed(cells, **named):
    row = judged({**SAID, **cells}, NAMES | named)
    return row.responses, row.y


@pytest.mark.parametrize("tie", sorted(TIES))
def test_neither_is_a_tie(tie):
    assert parsed({"response_a": "left", "response_b": "right", "winner": tie})[1] == 0.5


@pytest.mark.parametrize("winner", [0, 1, "1", True, 0.5, "", None, "model_c", "ab", ["a"], "aa"])
def test_a_winner_that_names_neither_side_is_no_guess(winner):
    with pytest.raises(BadRow, match="must name the side that won"):
        parsed({"response_a": "left", "response_b": "right", "winner": winner})


@given(st.booleans(), st.text("abcdefgh ", min_size=1), st.text("abcdefgh ", min_size=1))
def test_turning_the_sides_round_turns_nothing_round(first, left, right):
    """The same judgement, whichever side the better response is shown on."""
    left, right = f"l {left}", f"r {right}"
    row = {"response_a": left, "response_b": right, "winner": "a" if first else "b"}
    other = {"response_a": right, "response_b": left, "winner": "b" if first else "a"}
    assert parsed(row) == parsed(other)


@pytest.mark.parametrize(("first", "odd"), [(True, 1), (True, 1.0), (False, 0)])
def test_cells_are_not_taken_for_equal_ones_of_another_kind(first, odd):
    """True == 1: a number of which nothing is declared is bad, whatever another's row said."""
    row = {"prompt": "Q", "completion": "a"}
    rows = [{**row, "user_id": "u", "label": first}, {**row, "user_id": "x", "label": odd}]
    for ordered in (rows[1:], rows, rows[::-1]):
        data = Judgements.from_rows(ordered, on_bad_rows="isolate", schema=Schema("thumbs"))
        assert data.counts_U[data.user_ids.index("x")] == 0


def test_cells_inside_of_others_are_not_taken_for_equal_ones():
    """(1, 2) == (True, 2): a row counted, or not, by what another's said before it."""
    row = {"prompt": "Q", "responses": ("a", "b")}
    first = {**row, "user_id": "u", "ranking": (1, 2)}
    odd = {**row, "user_id": "x", "ranking": (True, 2)}
    schema = Schema("ranking", 2)
    for rows in ([odd], [first, odd], [odd, first]):
        data = Judgements.from_rows(rows, on_bad_rows="isolate", schema=schema)
        assert data.counts_U[data.user_ids.index("x")] == 0


# Cells inside of others, and ids that are declared to be one.


def test_a_cell_inside_of_others_is_named_by_its_way(tmp_path):
    candidates = [{"content": "x"}, {"content": "y"}]
    row = {"user": {"id": 7}, "prompt": "p", "candidates": candidates}
    columns = {"user_id": "user.id", "chosen": "candidates.1.content"}
    columns |= {"rejected": "candidates.0.content"}
    for rows in ([row], [{**row, "candidates": json.dumps(candidates)}]):
        read = Judgements.from_rows(rows, columns=columns)
        assert (read.user_ids, read.responses) == (("7",), [("y", "x")])
    for broken in ({"user": 7}, {"candidates": []}, {"candidates": "{"}, {"user": None}):
        read = Judgements.from_rows([{**row, **broken}, row], columns=columns, on_bad_rows="skip")
        assert (len(read), read.left_out) == (1, 1)


def test_ids_that_differ_in_capitals_are_different_users():
    rows = [{**PAIR, "user_id": who} for who in ("Ann", "ANN", "ann", "Straße", "STRASSE")]
    assert len(Judgements.from_rows(rows).user_ids) == 5


@pytest.mark.parametrize("field", ["label", "tie", "prompt"])
def test_who_judged_is_in_a_column_of_its_own(field):
    with pytest.raises(InputError, match=f"--columns user_id={field}"):
        Judgements.from_rows([KTO], columns={"user_id": field})


@pytest.mark.parametrize("kind", ["top-1", "ranking"])
def test_lists_without_a_prompt_where_that_is_declared(kind):
    label = {"best": 1} if kind == "top-1" else {"ranking": [2, 1]}
    row = {"user_id": "u", "responses": ["a", "b"], **label}
    with pytest.raises(InputError, match="no column 'prompt'"):
        Judgements.from_rows([row], schema=Schema(kind, 2))
    read = Judgements.from_rows([row], schema=Schema(kind, 2, no_prompt=True))
    assert (read.prompts, read.responses) == ([""], [("b", "a")])


@pytest.mark.parametrize(("winner", "first"), [("left", "l"), ("right", "r")])
def test_a_side_is_the_column_that_is_called_so_wherever_it_stands(winner, first):
    columns = {"response_a": "right_text", "response_b": "left_text"}
    row = {"user_id": "u", "prompt": "p", "right_text": "r", "left_text": "l", "winner": winner}
    assert Judgements.from_rows([row], columns=columns).responses[0][0] == first
