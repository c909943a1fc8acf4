"""Writes what is derived: docs/reference/settings.md, the run config in pyproject.toml, and the
types of settings in murmuration/api/settings.py.

    python docs/write_settings.py

A test compares them with what would be written.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import Field
from pathlib import Path
from typing import Any

import tomli_w

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.plugins import brought
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS, RunConfig
from murmuration.strategies.settings.catalogue import panel_of
from murmuration.strategies.settings.declaration import ENTRY_POINTS, PANELS, about, option
from murmuration.strategies.settings.from_python import USER_COLUMN

ROOT = Path(__file__).resolve().parents[1]
PAGE, PYPROJECT = ROOT / "docs" / "reference" / "settings.md", ROOT / "pyproject.toml"
TYPES = ROOT / "murmuration" / "api" / "settings.py"
#: Settings that ``train`` and ``compare`` name in their signatures.
IN_SIGNATURES = ("categories", "data", "items", "test", "topics", "out", "resume")
_SECTION, _NEXT = "[tool.flwr.app.config]\n", "\n[tool.ruff]"


def page() -> str:
    """docs/reference/settings.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Strategies and settings"
    yield ""
    yield "Written by `python docs/write_settings.py` from the declarations in `strategies/`."
    yield ""
    yield "## Strategies"
    yield ""
    yield "| `--strategy` | what it does | guarantee under | rounds | masks | noise on a grid |"
    yield "|---|---|---|---|---|---|"
    for strategy in registry.OURS:
        rounds = " or ".join(map(str, strategy.rounds)) or "any"
        own = RunConfig(strategy=strategy.name, adjacency=min(strategy.adjacencies).value)
        masks, grid = ("no" if why(own) else "yes" for why in (strategy.masks, strategy.discrete))
        under = ", ".join(a.value for a in Adjacency if a in strategy.adjacencies)
        under = under if strategy.name != "nonprivate" else "none"
        where = " (in a checkout)" if strategy.name in brought(ENTRY_POINTS) else ""
        cells = (f"`{strategy.name}`{where}", strategy.help, under, rounds, masks, grid)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "For `aup` this is said of its centred variant, the default. The published variant's"
    yield "guarantee is not proven ([the page on AUP](../research/aup.md))."
    settings = list(SETTINGS.values())
    panels = dict.fromkeys([*PANELS, *map(panel_of, settings)])
    for panel in panels:
        yield ""
        yield f"## {panel}"
        yield ""
        yield "| option | type | default | what it is |"
        yield "|---|---|---|---|"
        for field in (f for f in settings if panel_of(f) == panel):
            told = about(field)
            kind = " / ".join(told.choices) or type(field.default).__name__
            help_ = told.help.replace("|", "\\|")
            place = " (deployments)" if told.deployed else ""
            default = f"`{field.default!r}`"
            yield f"| `{option(field.name)}`{place} | {kind} | {default} | {help_} |"


def pyproject(text: str) -> str:
    """pyproject.toml with those settings as its run config that people change."""
    start = text.index(_SECTION) + len(_SECTION)
    return text[:start] + tomli_w.dumps(_defaults()) + text[text.index(_NEXT, start) :]


def _defaults() -> dict[str, Any]:
    plain = (field for field in SETTINGS.values() if about(field).common)
    return {field.name.replace("_", "-"): field.default for field in plain} | {"settings": ""}


def types() -> str:
    """Return murmuration/api/settings.py: a ``TypedDict`` for each panel, and one of them all."""
    lines = [
        '"""The settings of a run by concern, with their types: keywords of ``train``.',
        "",
        "Written by `python docs/write_settings.py` from the declarations in `strategies/`.",
        '"""',
        "",
        "import os",
        "from collections.abc import Mapping",
        "from typing import Literal, TypedDict",
        "",
        "from murmuration.privacy.adjacency import Adjacency",
    ]
    settings = [
        field
        for field in SETTINGS.values()
        if not about(field).deployed and field.name not in IN_SIGNATURES
    ]
    by_class: dict[str, list[Field[Any]]] = {}
    for panel in PANELS:
        by_class[f"{panel}Settings"] = [field for field in settings if panel_of(field) == panel]
    by_class["StrategySettings"] = [field for field in settings if panel_of(field) not in PANELS]
    for name, declared in by_class.items():
        what = f"Of a run: {name.removesuffix('Settings').lower()}."
        lines += ["", "", f"class {name}(TypedDict, total=False):", f'    """{what}"""']
        for field in declared:
            lines += ["", f"    {field.name}: {_type(field)}", *_docstring(field)]
            if field.name == "columns":
                lines += ["", "    user_column: str", f'    """{USER_COLUMN}"""']
    lines += ["", "", "class RunSettings(", *(f"    {name}," for name in by_class)]
    lines += ["    total=False,", "):", '    """All of them."""']
    return "\n".join(lines) + "\n"


def _type(field: Field[Any]) -> str:
    """Return the annotation of a setting, as programs may give it."""
    if field.name == "columns":
        return "str | Mapping[str, str]"
    if field.name == "adjacency":
        return "Adjacency | str"
    if field.name == "delta":
        return "float | str"
    if field.name == "base" or about(field).pinned:  # a folder, or a file
        return "str | os.PathLike[str]"
    if choices := about(field).choices:
        names = dict.fromkeys([*choices, *([field.default] if field.default else [])])
        return f"Literal[{', '.join(map(json.dumps, names))}]"
    return type(field.default).__name__


def _docstring(field: Field[Any]) -> list[str]:
    panel = panel_of(field)
    of_whom = "" if panel in PANELS else f"{panel}. "
    text = f"{of_whom}{about(field).help}".replace("\\", "\\\\")
    return [f"    {line}" for line in textwrap.wrap(f'"""{text}"""', 92)]


if __name__ == "__main__":
    TYPES.write_text(types(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    PYPROJECT.write_text(pyproject(PYPROJECT.read_text(encoding="utf-8")), encoding="utf-8")
