"""What can be reproduced: the papers' tables, and that each entry gives rows, words and a plot."""

import pytest

from murmuration.research.reproductions.registry import ENTRIES

#: Minutes even if quick: what they find is tested in their own files, in small.
_LONG = ("aup-imdb", "aup-m", "aup-tldr", "btl-compare", "group-cohort", "hostile-users")


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_said_of_an_entry_is_a_line(name):
    assert len(ENTRIES[name].about) <= 100
    assert not ENTRIES[name].about.endswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in _LONG])
def test_an_entry_is_computed_told_and_drawn(name):
    found = ENTRIES[name].compute(True)
    assert found.rows and found.remarks
    assert (found.plot is None) == (name == "uls-conjecture")


@pytest.mark.slow
def test_the_papers_tables():
    for row in ENTRIES["aup-tables"].compute(True).rows:
        assert row["table_1_recomputed"] == pytest.approx(row["table_1"], rel=0.025)
        assert row["table_2_recomputed"] == pytest.approx(row["table_2"], rel=0.008)
        assert row["epsilon_under_replace"] > 0.9 * row["epsilon"]
