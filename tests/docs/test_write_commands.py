"""docs/reference/commands.md has what the commands say of themselves."""

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


def test_the_page_is_up_to_date(write_commands):
    written = write_commands.PAGE.read_text(encoding="utf-8")
    assert written == write_commands.page(), "run python docs/write_commands.py"


def test_every_option_of_every_command_is_told(write_commands):
    sections = {}
    for part in write_commands.page().split("\n## ")[1:]:
        sections[part.split("\n")[0].removeprefix("murmuration ")] = part
    assert list(sections) == list(COMMANDS)
    for name, part in sections.items():
        command = imported(name)
        below = command.commands.values() if isinstance(command, click.Group) else [command]
        for each in below:
            for parameter in each.params:
                if isinstance(parameter, click.Option) and not parameter.hidden:
                    assert f"`{parameter.opts[0]}`" in part, f"{name} {parameter.opts}"


def test_help_texts_are_no_markup(write_commands):
    assert write_commands._cell("a | b_c `d_e`  <f> \\[g]") == r"a \| b\_c `d_e` \<f> \[g\]"
    assert write_commands._prose("Say.\n\n    a [b]\n    c") == "Say.\n\n```text\na [b]\nc\n```"
