"""The page of commands, from the commands themselves: the site has it (``conf.py``)."""

import re
from collections.abc import Iterator
from functools import cache

import click

from murmuration.cli.commands import COMMANDS, GROUPS, imported

#: So many options that a command has as ``run`` has them are written out again.
_FEW = 3


def page() -> str:
    """Return the page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "Every command with its arguments and options, as `murmuration COMMAND --help` has them"
    yield "(of `run`: `--help-all`)."
    yield ""
    yield "| group | command | what it does |"
    yield "|---|---|---|"
    for group, commands in GROUPS.items():
        for name, about in commands.items():
            yield f"| {group} | [`{name}`](#murmuration-{name}) | {_cell(about)} |"
    yield ""
    yield "`murmuration --version` tells the version."
    for name in COMMANDS:
        yield from _command(f"murmuration {name}", imported(name), "##")


def _command(called: str, command: click.Command, mark: str) -> Iterator[str]:
    yield ""
    yield f"{mark} {called}"
    yield ""
    yield _prose(command.help or "")
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _command(f"{called} {name}", below, f"{mark}#")
        return
    if called == "murmuration run":
        yield ""
        yield "Its settings are in [tables of their own](settings.md), by panel and strategy."
    yield ""
    rows = [_row(parameter) for parameter in command.params]
    of_run = [] if called == "murmuration run" else _rows_of_run()
    shared = [row for row in of_run if row in rows]
    shared = shared if len(shared) > _FEW else []
    own = [row for row in rows if row not in shared]
    if own:
        yield "| argument or option | takes | default | what it is |"
        yield "|---|---|---|---|"
        yield from (f"| {' | '.join(row)} |" for row in own)
    if shared:
        yield from ("", _as_of_run(shared, [row for row in of_run if row not in rows]))


@cache
def _rows_of_run() -> list[tuple[str, str, str, str]]:
    return [_row(parameter) for parameter in imported("run").params]


def _as_of_run(
    shared: list[tuple[str, str, str, str]], others: list[tuple[str, str, str, str]]
) -> str:
    """What options have one description with ``run``, named by whichever are fewer."""
    run = "[`murmuration run`](#murmuration-run)"
    if len(others) < len(shared):
        return f"And as {run} has them: all but {', '.join(row[0] for row in others)}."
    return f"And as {run} has them: {', '.join(row[0] for row in shared)}."


def _row(parameter: click.Parameter) -> tuple[str, str, str, str]:
    argument = parameter.param_type_name == "argument"
    names = [(parameter.name or "").upper()] if argument else parameter.opts
    names = [*names, *parameter.secondary_opts]
    flag = getattr(parameter, "is_flag", False)
    kind = parameter.type
    takes = " / ".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name
    takes = "text" if isinstance(kind, click.types.FuncParamType) else takes
    takes = "nothing" if flag else takes
    takes += ", several times" if getattr(parameter, "multiple", False) else ""
    takes += ", any number" if parameter.nargs == -1 else ""
    default = "required" if parameter.required else ""
    none = parameter.default is None or parameter.default is False
    if not parameter.required and not none and parameter.default not in ("", [], ()):
        given = parameter.default
        default = "as computed" if callable(given) else f"`{getattr(given, 'value', given)}`"
    told = getattr(parameter, "help", None) or ""
    return ", ".join(f"`{name}`" for name in names), _cell(takes), default, _cell(told)


def _prose(text: str) -> str:
    """A help text as Markdown: indented lines stay as they are written."""
    parts = []
    for part in text.replace("\b\n", "").replace("\\[", "[").strip().split("\n\n"):
        lines = part.split("\n")
        if all(line.startswith("    ") for line in lines):
            parts.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            parts.append("\n".join(map(_plain, lines)))
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return _plain(" ".join(text.replace("\\[", "[").split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Without what Markdown would take for markup: `code` stays."""
    parts = text.split("`")
    marked = re.compile(r"([*_<\[\]])")
    return "`".join(p if n % 2 else marked.sub(r"\\\1", p) for n, p in enumerate(parts))
