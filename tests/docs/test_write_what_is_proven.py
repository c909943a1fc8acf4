"""docs/explanation/what-is-proven.md is the table."""

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def write_what_is_proven(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import write_what_is_proven

    yield write_what_is_proven
    sys.modules.pop("write_what_is_proven")


def test_the_page_is_up_to_date(write_what_is_proven):
    written = write_what_is_proven.PAGE.read_text(encoding="utf-8")
    assert written == write_what_is_proven.page(), "run python docs/write_what_is_proven.py"
