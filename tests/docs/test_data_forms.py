"""The pages on data: every name of a column that is known is named."""

from pathlib import Path

import pytest

from murmuration.preference.data.columns import RANKING_COLUMNS, USER_COLUMNS

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    next(ROOT.glob(f"docs/**/{name}.md")).read_text(encoding="utf-8")
    for name in ("data", "judgements")
)


@pytest.mark.parametrize("column", [*USER_COLUMNS, *RANKING_COLUMNS])
def test_every_known_name_of_a_column_is_on_the_page(column):
    assert f"`{column}`" in PAGE
