"""What can be reproduced: a line about each, and the papers' tables. All of it: test_rerun.py."""

import pytest

from murmuration.research.reproductions.registry import ENTRIES


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_said_of_an_entry_is_a_line(name):
    assert len(ENTRIES[name].about) <= 100
    assert not ENTRIES[name].about.endswith(".")


def test_no_entry_has_the_name_of_all():
    assert "all" not in ENTRIES
