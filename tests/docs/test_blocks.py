"""What pages print to be copied: commands are parsed, Python is compiled, its imports are there.

Nothing is run here: that each command, option and choice exists is checked in a moment for all of
them. Tutorials are walked by ``tests/docs/test_tutorials.py``, the page on deploying by
``tests/sims/test_documented_deployment.py``.
"""

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from murmuration.cli.commands import ALIASES, COMMANDS, imported

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
#: Languages of blocks; what else a block may be is shown and not to be copied into anything.
SHELL, PYTHON, SHOWN = {"sh", "bash"}, {"python"}, {"text", "json", "toml", "bibtex"}
#: Strategies and losses of packages in examples/, which are not installed here.
FROM_EXAMPLES = {"two-band", "sign-uls", "laplace-uls", "cauchy", "hinge"}
_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS = re.compile(r"[;|&<>()]+")
#: What stands for something, or for several things, in prose.
_ANY = re.compile(r"…|[A-Z][A-Z_\d]*$|.*\|")


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return [(language.strip(), body) for language, body in _BLOCK.findall(text)]


def commands(shell: str) -> Iterator[list[str]]:
    """The calls of ``murmuration`` in lines of a shell."""
    for line in shell.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        call: list[str] = []
        for word in [*words, ";"]:
            if not _ENDS.fullmatch(word):
                call.append(word)
                continue
            while call and re.match(r"\w+=", call[0]):
                call.pop(0)
            if call and call[0] == "murmuration":
                yield call[1:]
            call = []


def in_prose(text: str) -> Iterator[list[str]]:
    """The calls of ``murmuration`` between backticks."""
    for code in re.findall(r"`(murmuration [^`]+)`", _BLOCK.sub("", text)):
        yield code.replace("\\|", "|").split()[1:]


def refused(words: list[str], whole: bool = True) -> str:
    """Why a call could not be made; "" if it could. Files need not be there.

    ``whole`` is one to be typed as it stands. In another, words may stand for others.
    """
    words = [word for word in words if word not in ("…", "...")]
    if words[:1] in (["--version"], ["--help"]) or (words[:1] == ["COMMAND"] and not whole):
        return ""
    words = [ALIASES.get(name, name) for name in words[:1]] + words[1:]
    if not words or words[0] not in COMMANDS:
        return f"there is no command {words[:1]}"
    command, rest, path = imported(words[0]), words[1:], words[0]
    while isinstance(command, click.Group):
        if not rest or rest[0] not in command.commands:
            return "" if not whole and not rest else f"there is no {path} {rest[:1]}"
        command, path, rest = command.commands[rest[0]], f"{path} {rest[0]}", rest[1:]
    context = click.Context(command, info_name=path)
    try:
        given, _, _ = command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        # In prose an option may be named without its value.
        alone = not whole and "requires an argument" in error.format_message()
        return "" if alone else error.format_message()
    if "--help" in rest:
        return ""
    return _values(command, given, context, whole)


def _values(command: click.Command, given: dict, context: click.Context, whole: bool) -> str:
    for parameter in command.params:
        value = given.get(parameter.name)
        missing = value is None or value is getattr(click.core, "UNSET", None)
        if missing and parameter.required and whole:
            return f"{parameter.name} is missing"
        if missing or not isinstance(parameter.type, click.Choice | click.types.FloatParamType):
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            if not whole and _ANY.match(str(each)):
                continue
            if each in FROM_EXAMPLES:
                continue
            try:
                parameter.type.convert(each, parameter, context)
            except click.UsageError as error:
                return error.format_message()
    return ""


def named(pages):
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@named(PAGES)
def test_every_block_says_what_it_is(page):
    languages = {language for language, _ in blocks(page.read_text(encoding="utf-8"))}
    directives = {language for language in languages if language.startswith("{")}
    assert languages - directives <= SHELL | PYTHON | SHOWN


@named(PAGES)
def test_every_command_can_be_given(page):
    text = page.read_text(encoding="utf-8")
    shells = [body for language, body in blocks(text) if language in SHELL]
    shells += re.findall(r"^    (murmuration .*)$", _BLOCK.sub("", text), re.MULTILINE)
    wrong = [
        (" ".join(call), why)
        for shell in shells
        for call in commands(shell)
        if (why := refused(call))
    ]
    wrong += [(" ".join(c), why) for c in in_prose(text) if (why := refused(c, whole=False))]
    assert not wrong, "\n".join(f"murmuration {call}\n    {why}" for call, why in wrong)


def not_there(code: str) -> list[str]:
    """What a block imports of ours that is not there."""
    lost = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("murmuration"):
            module = importlib.import_module(node.module or "")
            lost += [f"{node.module}.{a.name}" for a in node.names if not hasattr(module, a.name)]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("murmuration"):
                    importlib.import_module(alias.name)
    return lost


@named(PAGES)
def test_python_can_be_compiled_and_its_names_are_there(page):
    for language, body in blocks(page.read_text(encoding="utf-8")):
        if language in PYTHON:
            compile(body, str(page), "exec")
            assert not_there(body) == []


def test_a_name_that_is_not_there_is_found():
    assert not_there("from murmuration import plan, nothing") == ["murmuration.nothing"]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("run --epsilon 3 --strategy uls", ""),
        ("run --epsilno 3", "No such option"),
        ("run --strategy ulls", "ulls"),
        ("run --epsilon three", "three"),
        ("run --epsilon", "requires an argument"),
        ("rum", "no command"),
        ("deploy innit", "no deploy"),
        ("score", "is missing"),
    ],
)
def test_what_is_refused(call, why):
    told = refused(call.split())
    assert (why in told) if why else not told
