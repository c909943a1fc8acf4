"""Options by which judgements are declared, and where they are."""

import pytest

from murmuration.cli.about_data import located, renamed, schema
from murmuration.preference.data.rows import InputError
from murmuration.preference.data.schema import Schema


def test_what_is_not_given_is_as_by_default():
    assert schema(None, None, None, None) == Schema()
    assert schema("top-1", 3, 7, None, "randomized") == Schema("top-1", 3, "randomized", 7)
    assert schema(None, None, None, None, None, True) == Schema(one_user_per_row=True)
    assert schema(*[None] * 9, "arena") == Schema(format="arena")
    assert Schema.of({"format": "arena"}) == Schema(format="arena")  # as a node declares it


def test_the_users_column_is_one_of_the_columns():
    assert renamed(None, None) == ""
    assert renamed("chosen=a", None) == "chosen=a"
    assert renamed(None, "who") == "user_id=who"
    assert renamed("chosen=a", "who") == "chosen=a,user_id=who"
    assert renamed("user_id=who,chosen=a", "who") == "user_id=who,chosen=a"


@pytest.mark.parametrize(
    ("columns", "user"), [("user_id=a", "b"), ("", ""), ("", "a,b"), ("", "a=b")]
)
def test_a_users_column_that_cannot_be(columns, user):
    with pytest.raises(InputError, match="--user-column"):
        renamed(columns, user)


def test_split_and_configuration_go_with_the_source():
    assert located(None, None, None) is None
    assert located("o/n", None, None) == "o/n"
    assert located("o/n", "train_prefs", None) == "o/n#train_prefs"
    assert located("o/n", "s", "c") == "o/n#c/s"
    with pytest.raises(InputError, match="--split and --data-config are about --data"):
        located(None, "s", None)
