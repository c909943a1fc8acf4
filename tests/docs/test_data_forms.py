"""The page on data: every name of a column that is known is named."""

from pathlib import Path

import pytest

from murmuration.preference.data.columns import RANKING_COLUMNS, USER_COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("column", [*USER_COLUMNS, *RANKING_COLUMNS])
def test_every_known_name_of_a_column_is_on_the_page(column):
    assert f"`{column}`" in PAGE
