"""What labels mean is recognised from all of them, or declared: never read in part."""

import json

import pytest

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.rows import InputError
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


@pytest.mark.parametrize("on_bad_rows", ["refuse", "skip"])
@pytest.mark.parametrize("schema", [THUMBS, Schema()])
@pytest.mark.parametrize("write", [int, float, str])
def test_ratings_are_no_thumbs_of_which_one_is_up(on_bad_rows, schema, write):
    """Not even where nearly all are 1: the worst would pass for the best."""
    for labels in ([1, 2, 3, 4, 5] * 6, [1] * 200 + [5], [5, 4, 1, 1]):
        with pytest.raises(InputError) as caught:
            Judgements.from_rows(rated(map(write, labels)), schema=schema, on_bad_rows=on_bad_rows)
        message = str(caught.value)
        assert "pass --positive-from" in message and "--scale 1..5" in message
        assert "\n" not in message and "skip" not in message


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


@pytest.mark.parametrize(
    ("up", "down"),
    [
        (1, -1),
        ("1", "-1.0"),
        (True, False),
        (1, 0),
        ("up", "down"),
        ("thumbs_up", "thumbs_down"),
        ("Yes", "No"),
        ("like", "dislike"),
        ("good", "bad"),
        ("👍", "👎"),
    ],
)
def test_scales_that_are_recognised_whole(up, down):
    assert liked(rated([up, down, up])) == {"text 0": 1.0, "text 1": 0.0, "text 2": 1.0}


def test_who_is_unsure_is_neither_up_nor_down_and_that_is_said():
    rows = rated(["Yes", "No", "Unsure", "yes"])
    assert liked(rows) == {"text 0": 1.0, "text 1": 0.0, "text 3": 1.0}
    judgements = Judgements.from_rows(rows, schema=THUMBS)
    assert "a rating that says neither up nor down is not used (1 rows)" in judgements.notes


def test_what_is_on_two_scales_is_on_none():
    for labels in ([1, 0, -1], [True, -1], ["up", "bad"] * 9, [1, 0, 2]):
        with pytest.raises(InputError, match="labels"):
            liked(rated(labels), on_bad_rows="skip")


def test_a_few_words_that_say_nothing_are_bad_rows_of_their_own():
    rows = rated(["true", "false"] * 20 + ["see above"])
    with pytest.raises(InputError, match=r"^row:41: 'label' must be true or false"):
        liked(rows)
    assert len(liked(rows, on_bad_rows="skip")) == 40


@pytest.mark.parametrize("on_bad_rows", ["refuse", "skip"])
def test_wins_of_responses_that_were_not_found_are_not_left_out(on_bad_rows):
    """Four were shown, and two columns are known."""
    with pytest.raises(InputError) as caught:
        Judgements.from_rows(voted("abcd" * 5), on_bad_rows=on_bad_rows)
    message = str(caught.value)
    assert "winners are a, b, c, d" in message and "`responses`, with `best`" in message
    assert "skip" not in message


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
        with pytest.raises(InputError, match=r"pass --scale -3\.\.3"):
            first(rows, on_bad_rows="skip")
        assert first(rows, schema=Schema(scale="-3..3")) == [
            *[("left", 1.0)] * 2,
            ("left", 0.5),
            *[("right", 1.0)] * 2,
        ]


def test_of_grades_the_lowest_may_be_the_best():
    rows = rated([1, 2, 3, 4, 6])
    with pytest.raises(InputError, match=r"--scale 6\.\.1 if 1 is the best"):
        liked(rows)
    graded = liked(rows, Schema("thumbs", scale="6..1"))
    assert [graded[f"text {n}"] for n in range(5)] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert first(voted([3, -3]), schema=Schema(scale="3..-3")) == [("left", 1.0), ("right", 1.0)]


def test_statements_that_were_rated_need_no_prompt():
    rows = [{"user_id": "u", "completion": f"s{n}", "label": n % 2} for n in range(4)]
    judgements = Judgements.from_rows(rows, schema=THUMBS)
    assert [*judgements.prompts] == [""] * 4
    assert [*judgements.responses] == [(f"s{n}",) for n in range(4)]
    assert any("no row has a prompt" in note for note in judgements.notes)
    assert Judgements.from_rows(rows).responses[0] == ("s1", "s0")  # pairs within a person
    one = [*rows, {**rows[0], "prompt": "Q"}]
    with pytest.raises(InputError, match="no column 'prompt'"):
        Judgements.from_rows(one, schema=THUMBS)
    declared = Schema("thumbs", no_prompt=True)
    assert [*Judgements.from_rows(one, schema=declared).prompts] == [*[""] * 4, "Q"]
    with pytest.raises(InputError, match="no column 'prompt'"):
        Judgements.from_rows([row | {"question": "Q"} for row in rows], schema=THUMBS)


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


def test_at_a_node_each_user_is_read_by_their_own_rows_or_by_what_is_declared():
    rows = rated([1] * 7, "ones") + rated([1, 5], "ratings") + rated([1, 0], "thumbs")
    rows += rated([True], "sure") + rated(["up"], "word")
    judgements = Judgements.from_rows(rows, schema=THUMBS, on_bad_rows="isolate")
    assert judgements.user_ids == ("ones", "ratings", "thumbs", "sure", "word")
    assert judgements.counts_U.tolist() == [0, 0, 2, 1, 1]
    assert judgements.left_out == 9
    for user in judgements.user_ids:
        mine = [row for row in rows if row["user_id"] == user]
        alone = Judgements.from_rows(mine, schema=THUMBS, on_bad_rows="isolate")
        assert alone.responses == judgements.select([judgements.user_ids.index(user)]).responses
    declared = Schema("thumbs", scale="0..1")
    judgements = Judgements.from_rows(rows, schema=declared, on_bad_rows="isolate")
    assert judgements.counts_U.tolist() == [7, 1, 2, 0, 0]


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


def written(tmp_path, rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


UNPROMPTED = {"user_id": "a", "chosen": "Cats sleep.", "rejected": "Dogs bark."}


@pytest.mark.parametrize("prompt", [{}, {"prompt": ""}, {"prompt": None}])
def test_pairs_without_a_prompt_where_no_row_has_one(tmp_path, prompt):
    alike = {"user_id": "b", "chosen": "The sun is up.", "rejected": "The sun is down."}
    judgements = load_judgements(written(tmp_path, [UNPROMPTED | prompt, alike | prompt]))
    assert judgements.prompts == ["", ""]
    assert judgements.responses[1] == ("The sun is up.", "The sun is down.")
    assert "no row has a prompt (2 rows)" in judgements.notes


def test_a_row_that_lacks_a_prompt_among_others_is_bad():
    with pytest.raises(InputError, match=r"^row:1: 'prompt' is empty"):
        Judgements.from_rows([UNPROMPTED | {"prompt": " "}, UNPROMPTED | {"prompt": "p"}])
    with pytest.raises(InputError, match=r"^row:1: no column 'prompt', and"):
        Judgements.from_rows([UNPROMPTED, UNPROMPTED | {"prompt": "p"}])


def test_a_node_reads_pairs_without_a_prompt_where_that_is_declared():
    assert len(Judgements.from_rows([UNPROMPTED], on_bad_rows="isolate")) == 0
    declared = Schema(no_prompt=True)
    judgements = Judgements.from_rows([UNPROMPTED], on_bad_rows="isolate", schema=declared)
    assert (judgements.prompts, judgements.responses) == ([""], [("Cats sleep.", "Dogs bark.")])
