"""The page on architecture: what it names is there, and what it says to edit is all to edit."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from rooms import ROOMS

ROOT = Path(__file__).parents[2]
PAGE_FOLDER = ROOT / "docs" / "reference"
PAGE = (PAGE_FOLDER / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_it_names_is_there():
    named = set(re.findall(rf"`((?:{'|'.join((*ROOMS, 'docs'))})/[\w/.]*)", PAGE))
    assert len(named) > 25
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    links = re.findall(r"\]\(([\w/.-]+)\)", PAGE)
    assert [link for link in links if not (PAGE_FOLDER / link).exists()] == []


def patched(code: str) -> str:
    """What a process prints whose declarations were changed before anything else was imported."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_setting_is_one_field():
    """Declared in one place: config, check, option, help and docs have it."""
    said = patched(
        """
import dataclasses, inspect
from murmuration.strategies.settings import declaration, run as settings
added = declaration.setting(7, "How often.", panel=declaration.TRAINING, good=lambda v: v > 0,
                            expected="above 0")
real = settings.Settings
settings.Settings = dataclasses.make_dataclass(
    "Settings", [("often", int, added)], bases=(real,), frozen=True)
import sys
sys.path.insert(0, "docs")
from murmuration.strategies.config import RunConfig
from murmuration.cli import run
import write_settings
print(RunConfig(often=3).to_run_config()["often"])
try:
    RunConfig(often=0)
except ValueError as error:
    print(error)
print("often" in inspect.signature(run.run).parameters)
print("| `--often` | int | `7` | How often. |" in write_settings.page())
print(RunConfig.from_run_config({"often": 4}).often)
"""
    )
    assert said.splitlines() == [
        "3",
        "--often must be above 0; got 0",
        "True",
        "True",
        "4",
    ]


def test_what_is_written_from_declarations_is_up_to_date():
    said = patched(
        """
import sys
sys.path.insert(0, "docs")
import write_settings as w
text = w.PYPROJECT.read_text(encoding="utf-8")
print(text == w.pyproject(text))
"""
    )
    assert said.splitlines() == ["True"], "run python docs/write_settings.py"


@pytest.mark.parametrize(
    ("module", "listed"),
    [
        ("murmuration.audits.targets", "TARGETS"),
        ("murmuration.research.reproductions.registry", "ENTRIES"),
        ("murmuration.cli.commands", "COMMANDS"),
        ("murmuration.preference.models", "_OURS"),
        ("murmuration.privacy.accounting.events", "_KINDS"),
        ("murmuration.strategies.registry", "OURS"),
    ],
)
def test_lists_of_what_there_is(module, listed):
    found = __import__(module, fromlist=[listed])
    assert len(getattr(found, listed)) > 2
    path = module.removeprefix("murmuration.").replace(".", "/")
    assert f"`{path}.py`" in PAGE.split("## To add")[1]


def test_settings_are_declared_with_all_that_is_said_of_them():
    from murmuration.strategies.config import SETTINGS
    from murmuration.strategies.settings.declaration import OF_STRATEGY, PANELS, about

    for field in SETTINGS.values():
        told = about(field)
        assert told.help.strip()
        assert told.panel in (*PANELS, OF_STRATEGY)
