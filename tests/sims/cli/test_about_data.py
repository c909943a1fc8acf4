"""Options by which judgements are declared."""

from murmuration.preference.data.schema import Schema
from murmuration.sims.cli.about_data import schema


def test_what_is_not_given_is_as_by_default():
    assert schema(None, None, None, None) == Schema()
    assert schema("top-1", 3, 7, None, "randomized") == Schema("top-1", 3, "randomized", 7)
