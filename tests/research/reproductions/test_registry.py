"""What can be reproduced: a line about each, and the papers' tables. All of it: test_rerun.py."""

import pytest

from murmuration.research.reproductions.registry import ENTRIES


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_said_of_an_entry_is_a_line(name):
    assert len(ENTRIES[name].about) <= 100
    assert not ENTRIES[name].about.endswith(".")


def test_no_entry_has_the_name_of_all():
    assert "all" not in ENTRIES


@pytest.mark.slow
def test_the_papers_tables():
    for row in ENTRIES["aup-tables"].compute(True).rows:
        assert row["table_1_recomputed"] == pytest.approx(row["table_1"], rel=0.025)
        assert row["table_2_recomputed"] == pytest.approx(row["table_2"], rel=0.008)
        assert row["epsilon_under_replace"] > 0.9 * row["epsilon"]
