"""What labels mean: words by themselves, numbers as declared, and nobody's by others' rows."""

import math

import numpy as np
import pytest

from murmuration.preference.data.cells import number_cell
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema

THUMBS = Schema("thumbs")


def rated(labels, user="u{}"):
    return [
        {"user_id": user.format(n % 7), "prompt": "p", "completion": f"text {n}", "label": label}
        for n, label in enumerate(labels)
    ]


def voted(winners, columns=("response_a", "response_b")):
    shown = dict(zip(columns, ("left text", "right text"), strict=True))
    return [
        {"user_id": f"u{n}", "prompt": "p", **shown, "winner": w} for n, w in enumerate(winners)
    ]


def liked(rows, schema=THUMBS, **more):
    judgements = Judgements.from_rows(rows, schema=schema, **more)
    return {
        text: y for (text,), y in zip(judgements.responses, judgements.y_R.tolist(), strict=True)
    }


def first(rows, **more):
    judgements = Judgements.from_rows(rows, **more)
    return [
        (pair[0].split()[0], y)
        for pair, y in zip(judgements.responses, judgements.y_R.tolist(), strict=True)
    ]


@pytest.mark.parametrize("schema", [THUMBS, Schema()])
@pytest.mark.parametrize("write", [int, float, str])
def test_numbers_without_a_scale_are_bad_rows_whatever_others_are(schema, write):
    """In ratings the worst would pass for the best, where it is the only one."""
    for labels in ([1, 2, 3, 4, 5], [1, 0], [1, -1], [1] * 9):
        rows = rated(map(write, labels))
        with pytest.raises(InputError, match=r"^row:1: 'label' holds numbers") as caught:
            Judgements.from_rows(rows, schema=schema)
        message = str(caught.value)
        assert "--positive-from" in message and "--scale 0..1" in message and "\n" not in message
        words = rated(["up", "down"], "w")
        judgements = Judgements.from_rows([*rows, *words], schema=schema, on_bad_rows="skip")
        assert judgements.left_out == len(labels) and (
            len(judgements) == (2 if schema is THUMBS else 1)
        )


def test_ratings_as_they_are_declared():
    rows = rated([1, 2, 3, 4, 5, "4.0"])
    up = {"text 3", "text 4", "text 5"}
    expected = {f"text {n}": float(f"text {n}" in up) for n in range(6)}
    assert liked(rows, Schema("thumbs", positive_from="4")) == expected
    assert liked(rows, Schema("thumbs", positive_from="4", scale="1..5")) == expected
    without_middle = {text: y for text, y in expected.items() if text != "text 2"}
    assert liked(rows, Schema("thumbs", scale="1..5")) == without_middle


def test_a_rating_that_is_not_on_the_scale_is_named():
    with pytest.raises(InputError, match=r"^row:3: the label '9' is not on the scale"):
        liked(rated([1, 5, 9]), Schema("thumbs", scale="1..5"))


def test_who_is_unsure_is_neither_up_nor_down_and_that_is_said():
    rows = rated(["Yes", "No", "Unsure", "yes"])
    assert liked(rows) == {"text 0": 1.0, "text 1": 0.0, "text 3": 1.0}
    judgements = Judgements.from_rows(rows, schema=THUMBS)
    assert "a rating that says neither up nor down is not used (1 rows)" in judgements.notes


@pytest.mark.parametrize("odd", ["meh", "see above", 2, None, [1], "5"])
@pytest.mark.parametrize("times", [1, 39])
def test_an_odd_label_is_its_own_loss(odd, times):
    """However many there are: nobody counts them."""
    good = rated(["true", "false"] * 20)
    rows = good[:20] + rated([odd] * times, "odd{}") + good[20:]
    with pytest.raises(InputError, match=r"^row:21: 'label'"):
        liked(rows)
    for on_bad_rows in ("skip", "isolate"):
        assert liked(rows, on_bad_rows=on_bad_rows) == liked(good)


def test_winners_by_where_they_stand():
    left, right = ("left", 1.0), ("right", 1.0)
    assert first(voted(["left", "Right", "tie"])) == [left, right, ("left", 0.5)]
    assert first(voted(["first", "second"])) == [left, right]
    numbered = ("response_1", "response_2")
    assert first(voted(["A", "B"], numbered)) == [left, right]


def test_winners_on_a_scale_are_declared():
    numbered = ("response_1", "response_2")
    for columns in (numbered, ("response_a", "response_b")):
        rows = voted([-3, -1, 0, 1, 3], columns)
        with pytest.raises(InputError, match=r"^row:1: 'winner' must name the side"):
            first(rows)
        assert first(rows, schema=Schema(scale="-3..3")) == [
            *[("left", 1.0)] * 2,
            ("left", 0.5),
            *[("right", 1.0)] * 2,
        ]


def test_of_grades_the_lowest_may_be_the_best():
    rows = rated([1, 2, 3, 4, 6])
    graded = liked(rows, Schema("thumbs", scale="6..1"))
    assert [graded[f"text {n}"] for n in range(5)] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert first(voted([3, -3]), schema=Schema(scale="3..-3")) == [("left", 1.0), ("right", 1.0)]


def test_statements_that_were_rated_need_no_prompt_where_that_is_declared():
    rows = [{"user_id": "u", "completion": f"s{n}", "label": bool(n % 2)} for n in range(4)]
    with pytest.raises(InputError, match=r"^row:1: no column 'prompt'.*pass --no-prompt"):
        Judgements.from_rows(rows, schema=THUMBS)
    declared = Schema("thumbs", no_prompt=True)
    judgements = Judgements.from_rows(rows, schema=declared)
    assert [*judgements.prompts] == [""] * 4
    assert [*judgements.responses] == [(f"s{n}",) for n in range(4)]
    assert "no prompt, as declared (4 rows)" in judgements.notes
    pairs = Judgements.from_rows(rows, schema=Schema(no_prompt=True))
    assert pairs.responses[0] == ("s1", "s0")  # within a person
    one = [*rows, {**rows[0], "prompt": "Q"}]
    assert [*Judgements.from_rows(one, schema=declared).prompts] == [*[""] * 4, "Q"]
    chat = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "r"}]
    one = [*rows, {**rows[0], "completion": chat}]
    assert [*Judgements.from_rows(one, schema=declared).prompts] == [*[""] * 4, "Q"]


def test_winners_may_stand_in_a_column_that_is_called_chosen():
    rows = [{"user_id": "u", "prompt": "p", "response_a": "x", "response_b": "y", "chosen": "b"}]
    with pytest.raises(InputError, match=r"winner=NAME instead of it"):
        Judgements.from_rows(rows)
    assert first(rows, columns={"winner": "chosen"}) == [("y", 1.0)]


def test_winners_name_their_columns_in_any_spelling():
    columns = {"response_a": "Response A", "response_b": "Response B"}
    row = {"user_id": "u", "prompt": "p", "Response A": "x", "Response B": "y", "winner": ""}
    rows = [row | {"winner": winner} for winner in ("response_b", " RESPONSE A ", "Response-B")]
    assert first(rows, columns=columns) == [("y", 1.0), ("x", 1.0), ("y", 1.0)]


def test_a_rating_under_another_name_is_asked_for():
    row = {"user_id": "u", "prompt": "Q", "response": "r", "thumbs": "up"}
    with pytest.raises(InputError, match="completion=NAME,label=NAME"):
        Judgements.from_rows([row])
    assert liked([row], columns={"label": "thumbs"}) == {"r": 1.0}


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"scale": "5"}, "--scale must be LOW..HIGH"),
        ({"scale": "5..5"}, "--scale must be LOW..HIGH"),
        ({"scale": "a..b"}, "--scale must be LOW..HIGH"),
        ({"positive_from": "four"}, "--positive-from must be a number"),
        ({"positive_from": "2", "scale": "5..1"}, "--positive-from is a least number"),
    ],
)
def test_scales_that_are_none(declared, message):
    with pytest.raises(InputError, match=message):
        Schema("thumbs", **declared)


UNPROMPTED = {"user_id": "a", "chosen": "Cats sleep.", "rejected": "Dogs bark."}


ALIKE = {"user_id": "b", "chosen": "The sun is up.", "rejected": "The sun is down."}


@pytest.mark.parametrize("on_bad_rows", ["skip", "isolate"])
def test_shared_words_are_the_prompt_of_their_row_alone(on_bad_rows):
    """One more person whose texts share none took everybody's prompt: others' sums moved by 87.6
    clip norms."""
    alone = Judgements.from_rows([ALIKE], on_bad_rows=on_bad_rows)
    assert (alone.prompts, alone.responses) == (["The sun is"], [("up.", "down.")])
    rows = [UNPROMPTED, ALIKE, UNPROMPTED | {"prompt": "p"}]
    judgements = Judgements.from_rows(rows, on_bad_rows=on_bad_rows)
    assert judgements.user_ids == ("a", "b")
    mine = judgements.select([1])
    assert (mine.prompts, mine.responses) == (alone.prompts, alone.responses)
    assert judgements.select([0]).prompts == ["p"] and judgements.left_out == 1


@pytest.mark.parametrize("prompt", [{}, {"prompt": ""}, {"prompt": None}])
def test_pairs_without_a_prompt_where_that_is_declared(write_rows, prompt):
    path = write_rows([UNPROMPTED | prompt, ALIKE | prompt])
    with pytest.raises(InputError, match=r":1: (no column 'prompt'.*--no-prompt|'prompt' )"):
        load_judgements(path)
    for on_bad_rows in ("refuse", "skip", "isolate"):
        judgements = load_judgements(path, on_bad_rows=on_bad_rows, schema=Schema(no_prompt=True))
        assert judgements.prompts == ["", ""]
        assert judgements.responses[1] == ("The sun is up.", "The sun is down.")


@pytest.mark.parametrize("value", [3, 3.0, "3", " 3.0 ", np.float32(3), np.int64(3)])
def test_a_number_however_it_is_written(value):
    assert number_cell(value) == 3.0


@pytest.mark.parametrize(
    "value", [None, True, np.bool_(False), "", "three", [3], {"n": 3}, b"3", 10**400, "nan"]
)
def test_anything_else_is_none(value):
    assert math.isnan(number_cell(value))


def test_an_infinite_one_stays_so():
    """Whoever asks for a finite one sees that it is not."""
    assert number_cell("-inf") == -math.inf
