"""The names of reproductions; that each can be computed is shown by test_rerun.py."""

from murmuration.research.reproductions.registry import ENTRIES


def test_no_entry_has_the_name_of_all():
    assert "all" not in ENTRIES
