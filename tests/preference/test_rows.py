import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preference.rows import REQUIRED, BadRow, parse_row

NAMES = {field: field for field in REQUIRED}
GOOD = {"user_id": "u", "prompt": "p", "chosen": "x", "rejected": "y"}


def parse(**changes):
    return parse_row(GOOD | changes, NAMES)


def test_a_good_row():
    assert parse(other=3) == ("u", "p", "x", "y", False)


@pytest.mark.parametrize(
    ("given_id", "expected"),
    [
        (7, "7"),
        (7.0, "7"),
        (np.int64(7), "7"),
        (7.5, "7.5"),
        (" u ", "u"),
        ("007", "007"),
        (0, "0"),
    ],
)
def test_user_ids_become_text(given_id, expected):
    assert parse(user_id=given_id)[0] == expected


@pytest.mark.parametrize("user_id", ["", " \t", None, True, float("nan"), float("inf"), [1], b"u"])
def test_bad_user_ids(user_id):
    with pytest.raises(BadRow, match="'user_id'"):
        parse(user_id=user_id)


@pytest.mark.parametrize("field", ["prompt", "chosen", "rejected"])
@pytest.mark.parametrize("text", ["", "  \n", None, 3, ["x"], {"role": "user"}, "half \ud800"])
def test_bad_texts(field, text):
    with pytest.raises(BadRow, match=f"'{field}'"):
        parse(**{field: text})


@pytest.mark.parametrize(
    "value", [True, 1, 1.0, np.True_, np.int64(1), "true", "True", " TRUE ", "1"]
)
def test_ties(value):
    assert parse(tie=value)[-1] is True


@pytest.mark.parametrize("value", [False, 0, 0.0, np.False_, "false", "FALSE", "0", "", None])
def test_no_ties(value):
    assert parse(tie=value)[-1] is False


@pytest.mark.parametrize("value", ["yes", 2, -1, 0.5, float("nan"), [], "tie"])
def test_not_a_tie_nor_none(value):
    with pytest.raises(BadRow, match="'tie' must be true or false"):
        parse(tie=value)


def test_a_text_against_itself_is_a_tie():
    assert parse(rejected="x")[-1] is True


def test_missing_columns_name_what_is_there_and_what_to_do():
    with pytest.raises(BadRow) as caught:
        parse_row({"annotator": "u", "prompt": "p", "chosen": "x", "worse": "y"}, NAMES)
    assert str(caught.value) == (
        "no column 'user_id', 'rejected'; the columns are: annotator, prompt, chosen, worse. "
        "Name yours with --columns user_id=NAME,rejected=NAME"
    )


@pytest.mark.parametrize("thing", [[1, 2], "text", 3, None])
def test_what_is_no_row(thing):
    with pytest.raises(BadRow, match="expected an object"):
        parse_row(thing, NAMES)


def test_long_texts_are_not_quoted_whole():
    with pytest.raises(BadRow) as caught:
        parse(chosen=["secret " * 100])
    assert len(str(caught.value)) < 100


texts = st.text("a \n1\u00e9\ud800", max_size=4)
json_values = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(), texts, st.lists(texts, max_size=2)
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys((*NAMES, "tie"), json_values)))
def test_any_row_is_parsed_or_refused(row):
    try:
        user, prompt, chosen, rejected, tie = parse_row(row, NAMES)
    except BadRow as reason:
        assert "\n" not in str(reason)
    else:
        assert all(text.strip() for text in (user, prompt, chosen, rejected))
        assert isinstance(tie, bool)
