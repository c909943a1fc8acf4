"""What is derived from settings: the site's page of them (``conf.py``), and the run config in
pyproject.toml.

    python docs/write_settings.py

writes the latter; a test compares it with what would be written.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import Mechanism
from murmuration.research.plugin import BRINGS
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS
from murmuration.strategies.settings.catalogue import panel_of
from murmuration.strategies.settings.declaration import PANELS, about, option

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = ROOT / "pyproject.toml"
_SECTION, _NEXT = "[tool.flwr.app.config]\n", "\n[tool.ruff]"


def page() -> str:
    """Return the page in Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Strategies and settings"
    yield ""
    yield "From the declarations in `strategies/`."
    yield ""
    yield "## Strategies"
    yield ""
    yield "| `--strategy` | what it does | guarantee under | rounds | masks | noise on a grid |"
    yield "|---|---|---|---|---|---|"
    for strategy in registry.OURS:
        rounds = " or ".join(map(str, strategy.rounds)) or "any"
        own = strategy.settings()
        discrete = strategy.adds(Mechanism.DISCRETE_GAUSSIAN, own)
        masks, grid = ("yes" if can else "no" for can in (strategy.masks(own), discrete))
        under = ", ".join(a.value for a in Adjacency if a in strategy.adjacencies)
        under = under if strategy.name != "nonprivate" else "none"
        where = " (in a checkout)" if strategy.name in BRINGS["murmuration.strategies"] else ""
        cells = (f"`{strategy.name}`{where}", strategy.help, under, rounds, masks, grid)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "For `aup` this is said of its centred variant, the default. The guarantee of its"
    yield "published variants is not proven ([the page on AUP](../research/aup.md))."
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


if __name__ == "__main__":
    PYPROJECT.write_text(pyproject(PYPROJECT.read_text(encoding="utf-8")), encoding="utf-8")
