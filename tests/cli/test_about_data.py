"""Options by which judgements are declared, and where they are."""

import pytest

from murmuration.cli import main
from murmuration.cli.about_data import declared_rows, row_parameters
from murmuration.preference.data.schema import Schema

ROWS = [each.name for each in row_parameters()]


def test_what_is_not_given_is_as_by_default():
    nothing = dict.fromkeys(ROWS)
    assert declared_rows(nothing) == ("", Schema())
    of_three = {"kind": "top-1", "responses": 3, "max_judgements": 7, "labels": "randomized"}
    assert declared_rows(nothing | of_three) == (
        "",
        Schema("top-1", 3, labels="randomized", max_judgements=7),
    )
    named = {"columns": "chosen=a", "user_column": "who", "one_user_per_row": True}
    assert declared_rows(named) == ("chosen=a,user_id=who", Schema(one_user_per_row=True))
    assert declared_rows({"format": "arena"}) == ("", Schema(format="arena"))
    assert Schema.of({"format": "arena"}) == Schema(format="arena")  # as a node declares it


@pytest.mark.parametrize("command", ["agent", "deploy client", "data", "privatize", "compare"])
def test_rows_are_declared_alike_in_every_command(command):
    name, *below = command.split()
    imported = main.imported(name)
    for each in below:
        imported = imported.commands[each]
    options = {parameter.name: parameter for parameter in imported.params}
    names = ROWS if command in ("agent", "deploy client", "data") else ("kind", "responses")
    for each in names:
        assert options[each].opts == [f"--{each.replace('_', '-')}"]
        assert options[each].default is None
