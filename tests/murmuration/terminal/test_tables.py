"""Cells, and tables whose numbers do not wrap."""

import pytest

from murmuration.terminal.tables import cell, console, table_of


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (0.123456, "0.1235"), (12345, "12345"), ("a b", "a b")]
)
def test_cells(value, shown):
    assert cell(value) == shown


def test_in_a_pipe_nothing_wraps_or_is_made_a_picture(capsys):
    rows = [{"name": "aup:smile:", "figure": 0.5, "left": 1}] * 2
    console(width=40).print(table_of(rows, {"name": "what it is", "figure": "x"}, "title"))
    shown = capsys.readouterr().out
    assert shown.count("aup:smile:") == shown.count("0.5") == 2
    assert "title" in shown
    assert "left" not in shown
    console(stderr=True).print("there")
    assert capsys.readouterr() == ("", "there\n")
