from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.schema import Schema

RANDOMIZED = Schema(labels="randomized")


def row(user="a", chosen="yes", rejected="no", **more):
    return {"user_id": user, "prompt": "p", "chosen": chosen, "rejected": rejected, **more}


def test_groups_by_user_in_order_of_first_appearance():
    judgements = Judgements.from_rows(
        [row("b", "1"), row("a", "2"), row("b", "3"), row("c", "4"), row("a", "5", tie=True)]
    )
    assert judgements.user_ids == ("b", "a", "c")
    assert judgements.start_U.tolist() == [0, 2, 4, 5]
    assert judgements.start_U.dtype == np.int64
    assert [pair[0] for pair in judgements.responses] == ["1", "3", "2", "5", "4"]
    assert judgements.y_R.tolist() == [1, 1, 1, 0.5, 1]
    assert judgements.y_R.dtype == np.float32
    assert judgements.counts_U.tolist() == [2, 2, 1]
    assert (len(judgements), judgements.decided) == (5, 4)
    assert not judgements.randomized


def test_rows_that_say_the_same_keep_their_files_and_their_order():
    """Each is read once for a file, and kept once; which file a row stands in is not lost."""
    yes, no = row(), row(chosen="no", rejected="yes")
    files = {"1.csv": [yes, no, yes], "2.csv": [no, yes], "3.csv": [yes]}
    placed = [(file, line, each) for file, rows in files.items() for line, each in enumerate(rows)]
    judgements = Judgements.from_placed_rows([*placed, ("1.csv", 9, no)])
    assert judgements.files == ("1.csv", "2.csv", "3.csv")
    assert judgements.file_R.tolist() == [0, 0, 0, 1, 1, 2, 0]
    says_yes = [first == "yes" for first, _ in judgements.responses]
    assert says_yes == [True, False, True, False, True, True, False]
    assert judgements.keep(np.arange(7) % 2 == 1).file_R.tolist() == [0, 1, 2]
    places = ["1.csv:0", "1.csv:1", "1.csv:2", "2.csv:0", "2.csv:1", "3.csv:0", "1.csv:9"]
    assert [judgements.place(row) for row in range(7)] == places
    assert judgements.keep(np.arange(7) % 2 == 1).place(1) == places[3]


def test_a_row_is_found_again_whoever_is_selected():
    rows = [row(user_id=user, prompt=str(n)) for n, user in enumerate("abcab", start=1)]
    judgements = Judgements.from_rows(rows).select([1, 0])
    assert judgements.prompts == ["2", "5", "1", "4"]
    assert [judgements.place(n) for n in range(4)] == ["row:2", "row:5", "row:1", "row:4"]
    assert replace(judgements, line_R=None).place(2) == "judgement 3"


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_select_gives_each_chosen_user_their_own_rows(users, random):
    judgements = Judgements.from_rows(row(f"u{u}", f"text {i}") for i, u in enumerate(users))
    indices = random.sample(range(len(judgements.user_ids)), random.randint(1, len(set(users))))
    selected = judgements.select(indices)
    assert selected.user_ids == tuple(judgements.user_ids[i] for i in indices)
    for k, user in enumerate(selected.user_ids):
        rows = slice(selected.start_U[k], selected.start_U[k + 1])
        expected = [f"text {i}" for i, u in enumerate(users) if f"u{u}" == user]
        assert [pair[0] for pair in selected.responses[rows]] == expected


def test_select_nobody_and_nonsense():
    judgements = Judgements.from_rows([row("a"), row("b")])
    assert len(judgements.select([])) == 0
    with pytest.raises(IndexError):
        judgements.select([-1])
    with pytest.raises(IndexError):
        judgements.select([2])
    with pytest.raises(InputError, match="distinct"):
        judgements.select([1, 1])


@pytest.mark.parametrize(
    "faulty",
    [
        {"user_ids": ("a", "a")},
        {"start_U": np.array([0, 1, 3])},
        {"start_U": np.array([0, 3, 2])},
        {"most_responses": 3},
        {"kind": "top-1", "responses": [("x", "y"), ("x", "y", "z")]},
        {"start_U": np.array([0, 2])},
        {"responses": [("x", "y")]},
        {"y_R": np.array([1, np.nan], np.float32)},
        {"y_R": np.array([1, 2], np.float32)},
        {"responses": [("x", "y"), ("x",)]},
        {"responses": [("x", "y"), ("x", "y", "z")]},
        {"flip_R": np.full(2, 0.5)},
        {"flip_R": np.array([0.1, -0.1])},
        {"flip_R": np.array([0.1, np.nan])},
        {"flip_R": np.zeros(3)},
    ],
)
def test_inconsistent_columns_are_refused(faulty):
    good = {
        "user_ids": ("a", "b"),
        "start_U": np.array([0, 1, 2]),
        "prompts": ["p", "p"],
        "responses": [("x", "y"), ("x", "y")],
        "y_R": np.ones(2, np.float32),
    }
    Judgements(**good)
    with pytest.raises(InputError):
        Judgements(**(good | faulty))


def test_a_bad_row_is_refused_with_its_place():
    with pytest.raises(InputError, match=r"^survey:2: 'user_id' is empty$"):
        Judgements.from_rows([row(), row("  ")], name="survey")


def test_bad_rows_are_set_aside_when_asked():
    rows = [row(""), row("a"), row("b", chosen=None), row("c")]
    judgements = Judgements.from_rows(rows, on_bad_rows="skip")
    assert judgements.user_ids == ("a", "b", "c")
    assert judgements.counts_U.tolist() == [1, 0, 1]
    assert judgements.select([1, 2]).counts_U.tolist() == [0, 1]
    assert judgements.left_out == 2
    assert judgements.set_aside == (
        "row:1: 'user_id' is empty",
        "row:3: 'chosen' must be text, found nothing",
    )


def test_nothing_left_is_an_error():
    with pytest.raises(InputError, match="survey: no judgements"):
        Judgements.from_rows([], name="survey")
    with pytest.raises(InputError, match=r"all 2 rows are bad, the first: row:1: 'user_id'"):
        Judgements.from_rows([row(""), row("")], on_bad_rows="skip")
    assert Judgements.from_rows([], on_bad_rows="isolate").user_ids == ()
    nothing = Judgements.from_rows([row("a", prompt="")], on_bad_rows="isolate")
    assert (nothing.user_ids, len(nothing)) == (("a",), 0)


def test_reasons_are_kept_up_to_a_number():
    judgements = Judgements.from_rows([row("a"), *[row("")] * 500], on_bad_rows="skip")
    assert (len(judgements.set_aside), judgements.left_out) == (100, 500)


@pytest.mark.parametrize(
    "columns", [{"label": "x"}, {"chosen": ""}, {"chosen": "rejected"}, {"chosen": "prompt"}]
)
def test_columns_that_make_no_sense(columns):
    with pytest.raises(InputError, match="--columns"):
        Judgements.from_rows([row()], columns=columns)


def best_of(user="a", responses=("x", "y", "z"), **more):
    return {"user_id": user, "prompt": "p", "responses": list(responses), **more}


def test_the_best_of_several():
    judgements = Judgements.from_rows(
        [best_of("a", best=2), best_of("b", best=[1, 2]), best_of("a", "st", best=0)],
        schema=Schema("top-1", 4),
    )
    assert judgements.kind == "top-1"
    assert judgements.responses == [("z", "x", "y"), ("s", "t"), ("y", "z", "x")]
    assert judgements.y_R.tolist() == [1, 1, 0.5]
    assert (judgements.most_responses, judgements.decided) == (4, 2)
    assert judgements.select([1]).kind == "top-1"
    assert judgements.select([]).most_responses == 4


def test_a_best_of_two_that_tie_is_not_decided():
    rows = [best_of(responses="xy", best=[0, 1])]
    assert Judgements.from_rows(rows, schema=Schema("top-1", 2)).decided == 0


def test_rankings_with_ties():
    rows = [best_of(ranking=[1, 2, 2]), best_of("b", ranking=[3, 1, 2]), best_of(ranking=[1, 1, 1])]
    found = Judgements.from_rows(rows, schema=Schema("ranking", 3))
    assert list(found.groups_R) == [(1, 2), (3,), ()]
    np.testing.assert_allclose(found.y_R, [1.0, 1 / 3, 1.0])
    assert found.decided == 2
    assert list(found.select([1, 0]).groups_R) == [(), (1, 2), (3,)]
    assert list(found.keep(np.array([False, True, True])).groups_R) == [(3,), ()]
    with pytest.raises(InputError, match="ties do not fit"):
        replace(found, groups_R=[(1, 1), (3,), ()])


@pytest.mark.parametrize(
    ("rows", "declared", "right"),
    [
        ([row(), best_of(best=0)], Schema(), "pairs are declared: pass --kind top-1 --responses 3"),
        ([best_of(best=0), row()], Schema("top-1", 3), "top-1 are declared: pass --kind pairs"),
    ],
)
def test_a_row_of_another_kind_than_declared_is_bad(rows, declared, right):
    """What the first row is decides nothing."""
    with pytest.raises(InputError, match=f"^row:2: .*{right}"):
        Judgements.from_rows(rows, schema=declared)
    found = Judgements.from_rows(rows[::-1], schema=declared, on_bad_rows="skip")
    assert (found.kind, len(found), found.left_out) == (declared.kind, 1, len(rows) - 1)


def test_flip_probabilities():
    rows = [row("a", flip_probability=0.1), row("b", flip_probability=0), row("a", "x")]
    rows[2]["flip_probability"] = "0.25"
    judgements = Judgements.from_rows(rows, schema=RANDOMIZED)
    assert judgements.randomized
    assert judgements.flip_R.tolist() == [0.1, 0.25, 0]
    alone = judgements.select([1])
    assert alone.flip_R.tolist() == [0]


def test_no_flip_probability_decides_how_others_are_read():
    rows = [row("a", flip_probability=0.1), row("b", flip_probability=0.49)]
    alone = Judgements.from_rows(rows[:1], schema=RANDOMIZED)
    beside = Judgements.from_rows(rows, schema=RANDOMIZED).select([0])
    assert beside.flip_R == alone.flip_R


@pytest.mark.parametrize(
    ("flips", "labels", "bad"), [((0.1, None), "true", 1), ((0.1, None), "randomized", 2)]
)
def test_whether_labels_are_randomized_is_declared(flips, labels, bad):
    rows = [row(**({} if flip is None else {"flip_probability": flip})) for flip in flips]
    with pytest.raises(InputError, match=rf"^row:{bad}: .*flip probability, and {labels} labels"):
        Judgements.from_rows(rows, schema=Schema(labels=labels))
    found = Judgements.from_rows(rows, schema=Schema(labels=labels), on_bad_rows="skip")
    assert (found.flip_R is None) == (labels == "true")
    assert len(found) == 1


def test_no_user_has_more_than_is_kept():
    """The first ones are, whoever else there is."""
    rows = [row(user, prompt=str(i)) for i in range(5) for user in "ab"]
    schema = Schema(max_judgements=3)
    with pytest.raises(InputError, match=r"^row:7: more than 3 rows of this user"):
        Judgements.from_rows(rows, schema=schema)
    found = Judgements.from_rows(rows, schema=schema, on_bad_rows="skip")
    assert (found.prompts, found.left_out) == (["0", "1", "2"] * 2, 4)
    long = [row("a"), row("a", chosen="x" * 11), row("b", prompt="y" * 11)]
    kept = Judgements.from_rows(long, schema=Schema(max_characters=10), on_bad_rows="skip")
    assert kept.counts_U.tolist() == [1, 0]


@pytest.mark.parametrize("column", ["user_id", "prompt", "chosen", "rejected", "tie", "best"])
def test_no_cell_stops_the_loading(column):
    deep = []
    for _ in range(10_000):
        deep = [deep]
    for cell in (deep, "9" * 5000, 10**5000, float("nan"), b"x", object(), {"a": 1}, "\udc80"):
        listed = column == "best"
        bad = (best_of(best=0) if listed else row()) | {column: cell}
        schema = Schema("top-1", 3) if listed else Schema()
        good = best_of("good", best=0) if listed else row("good")
        found = Judgements.from_rows([bad, good], on_bad_rows="skip", schema=schema)
        assert found.counts_U.tolist()[-1] == 1


def test_flips_up_to_chance_among_more_responses():
    schema = Schema("top-1", 3, labels="randomized")
    judgements = Judgements.from_rows([best_of(best=0, flip_probability=0.6)], schema=schema)
    assert judgements.flip_R.tolist() == [0.6]
    with pytest.raises(InputError, match=r"below 0\.667"):
        Judgements.from_rows([best_of(best=0, flip_probability=0.67)], schema=schema)


def test_columns_of_the_best_of_several():
    renamed = [{"who": 7, "prompt": "p", "options": ["x", "y"], "pick": 1, "chosen": "not this"}]
    columns = {"user_id": "who", "responses": "options", "best": "pick"}
    judgements = Judgements.from_rows(renamed, columns=columns, schema=Schema("top-1", 2))
    assert judgements.responses == [("y", "x")]


def test_equal_texts_are_one_object():
    a, b = "".join(["sa", "me"]), "".join(["sa", "me"])
    assert a is not b
    judgements = Judgements.from_rows([row(chosen=a), row(chosen=b)])
    assert judgements.responses[0][0] is judgements.responses[1][0]


@pytest.mark.parametrize("cell", [{"\udce1": 1}, {"tie": "\udce1"}])
def test_any_log_can_hold_why_a_row_is_left_out(cell):
    row = {"user_id": "u", "chosen": "a", "rejected": "b"} | cell  # has no prompt
    found = Judgements.from_rows([row], on_bad_rows="isolate")
    assert found.left_out == 1
    found.set_aside[0].encode()
