"""What the page says around its tables."""

import re
from pathlib import Path

from murmuration.audits.report import INTRODUCTION, READING
from murmuration.audits.targets import TARGETS


def test_lines_are_short_and_commands_exist():
    for line in (INTRODUCTION + "\n" + READING).splitlines():
        assert len(line) <= 100
        if line.startswith("    murmuration audit ") and "--all" not in line:
            assert line.split()[2] in TARGETS


def test_links_lead_somewhere():
    page = Path(__file__).parents[2] / "docs" / "explanation"
    links = re.findall(r"\]\(([^)]+)\)", READING)
    assert links
    assert [link for link in links if not (page / link).exists()] == []
