"""CHANGELOG.md: what is not released yet, then versions with their dates, newest first."""

import re
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_versions_stand_in_order():
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert headings[0] == "Unreleased"
    versions = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) - (\d{4}-\d\d-\d\d)", h) for h in headings[1:]]
    assert versions and all(versions)
    parts = [(tuple(map(int, v.groups()[:3])), date.fromisoformat(v[4])) for v in versions if v]
    assert parts == sorted(parts, reverse=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == ".".join(map(str, parts[0][0]))


def test_every_line_says_what_kind_of_change_it_is():
    for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]:
        before, *kinds = re.split(r"^### ", part, flags=re.MULTILINE)
        assert not re.search(r"^- ", before, re.MULTILINE), before
        names = [kind.split("\n")[0] for kind in kinds]
        assert set(names) <= KINDS and len(names) == len(set(names)), names
