"""Versions that a result tells."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from murmuration.server import versions as module
from murmuration.server.versions import DISTRIBUTION, UNKNOWN, version, versions

ROOT = Path(__file__).parents[2]


def test_versions():
    found = versions()
    assert set(found) == {"murmuration", "python", "torch", "flwr"} and all(found.values())
    assert (found["murmuration"], found["torch"]) == (version(), metadata.version("torch"))


def test_a_checkout_that_is_not_installed_has_a_version_too(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(module.metadata, "version", absent)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert versions() | {"python": ""} == {
        "murmuration": project["version"], "torch": UNKNOWN, "flwr": UNKNOWN, "python": "",
    }  # fmt: skip
    monkeypatch.setattr(module.metadata, "version", lambda name: "9.9")
    assert version() == "9.9"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (f'[project]\nname = "{DISTRIBUTION}"\nversion = "1.2"', "1.2"),
        ('[project]\nname = "another"\nversion = "1.2"', UNKNOWN),
        ("[project", UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_shipped_code_never_fails_for_its_version(tmp_path, written, told):
    """As a server ships it: below the app's pyproject.toml, where no distribution is installed."""
    place = tmp_path / "app" / "murmuration" / "server"
    place.mkdir(parents=True)
    (place / "versions.py").write_bytes((ROOT / "server" / "versions.py").read_bytes())
    if written is not None:
        (tmp_path / "app" / "pyproject.toml").write_text(written)
    said = "import versions; print(versions.versions()['murmuration'])"
    command = [sys.executable, "-S", "-c", said]  # -S: without what is installed
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == told
