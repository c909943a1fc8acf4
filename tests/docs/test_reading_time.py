"""No page takes more than about five minutes to read; tables, blocks and the reference apart."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Looked things up in, not read.
REFERENCE = ROOT / "docs" / "reference"
#: Words of technical prose in five minutes.
MOST = 1300
_NOT_PROSE = re.compile(r"^```.*?^```|<!--.*?-->|^\|.*?$|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def words(text: str) -> int:
    """Count the words of a page's prose."""
    return len(_NOT_PROSE.sub(" ", text).split())


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if REFERENCE not in page.parents],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_is_read_in_five_minutes(page):
    assert words(page.read_text(encoding="utf-8")) <= MOST, "split the page, or say less"


def test_tables_and_blocks_are_not_counted():
    assert words("# A [b](c d)\n| x | y |\n```sh\na b c\n```\n<!-- no\nno -->\nlast") == 4
