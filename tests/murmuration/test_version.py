"""The distribution's name: what pip installs is not called as what is imported."""

import re
import tomllib
from pathlib import Path

import pytest
from rooms import ROOMS

from murmuration.server.versions import DISTRIBUTION

ROOT = Path(__file__).parents[2]
_OURS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "Makefile",
    "pyproject.toml",
)
#: The package of another author: `pip install murmuration`, `'murmuration[lm]'`, a pinned one.
WRONG = re.compile(
    r"(?:pip|uv)[^\n`]*\b(?:install|add)\b[^\n`]*[ '\"]murmuration(?![\w/.-])"
    r"|\bmurmuration\\?\[[a-z]|\bmurmuration[=~<>]=\s*\d"
)


def texts():
    """Everything of ours that somebody reads or copies from, beside the tests."""
    files = [ROOT / name for name in _OURS]
    for room in (*ROOMS, "docs", "examples"):
        found = (ROOT / room).rglob("*")
        files += [file for file in found if file.suffix in (".py", ".md", ".toml", ".sh", ".txt")]
    return files


def test_no_text_names_the_distribution_of_somebody_else():
    found = {
        str(file.relative_to(ROOT)): hit.group()
        for file in texts()
        if (hit := WRONG.search(file.read_text(encoding="utf-8")))
    }
    assert not found


@pytest.mark.parametrize(
    "text", ["pip install murmuration", "pip install -U 'murmuration[hub]'", "uv add murmuration",
             "uv pip install 'murmuration'", "needs `murmuration[lm]`", "murmuration==0.1"]
)  # fmt: skip
def test_such_a_name_would_be_found(text):
    assert WRONG.search(text)
    assert not WRONG.search(text.replace("murmuration", DISTRIBUTION))


def test_it_is_the_one_that_is_built():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert project["scripts"] == {"murmuration": "murmuration.cli.main:main"}  # as it is typed
