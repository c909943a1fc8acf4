"""The site's page of commands has what they say of themselves."""

import sys
from pathlib import Path

import click
import pytest

from murmuration.cli.commands import COMMANDS, imported

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def write_commands(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import write_commands

    yield write_commands
    sys.modules.pop("write_commands")


def options(command):
    return {
        option.opts[0]
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    }


def test_every_option_of_every_command_is_told(write_commands):
    sections, options_of_run = {}, options(imported("run"))
    for part in write_commands.page().split("\n## ")[1:]:
        sections[part.split("\n")[0].removeprefix("murmuration ")] = part
    assert list(sections) == list(COMMANDS)
    for name, part in sections.items():
        command = imported(name)
        below = command.commands.values() if isinstance(command, click.Group) else [command]
        for each in below:
            for option in options(each):
                assert f"`{option}`" in part or ("all but" in part and option in options_of_run)


def test_what_is_said_of_another_command_holds(write_commands):
    """``tune`` has all of ``run``'s options but those that its section names."""
    rows = {row[0]: row for row in map(write_commands._row, imported("tune").params)}
    sentence = write_commands.page().split("## murmuration tune")[1].split("all but")[1]
    for row in write_commands._rows_of_run():
        assert (row == rows.get(row[0])) == (row[0] not in sentence.split(".\n")[0])


def test_help_texts_are_no_markup(write_commands):
    assert write_commands._cell("a | b_c `d_e`  <f> \\[g]") == r"a \| b\_c `d_e` \<f> \[g\]"
    assert write_commands._prose("Say.\n\n    a [b]\n    c") == "Say.\n\n```text\na [b]\nc\n```"
