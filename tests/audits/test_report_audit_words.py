"""What the page says around its tables."""

import re
from pathlib import Path

from murmuration.audits.targets import TARGETS

TEMPLATE = Path(__file__).parents[2] / "audits" / "templates" / "audits.md"


def test_commands_exist():
    for line in TEMPLATE.read_text(encoding="utf-8").splitlines():
        if line.startswith("    murmuration audit ") and "--all" not in line:
            assert line.split()[2] in TARGETS


def test_links_lead_somewhere():
    page = Path(__file__).parents[2] / "docs" / "explanation"
    links = re.findall(r"\]\(([^)]+)\)", TEMPLATE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (page / link).exists()] == []
