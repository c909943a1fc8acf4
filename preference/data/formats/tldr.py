"""Two summaries of a post and which of them a worker chose, as OpenAI published with "Learning to
summarize from human feedback" (`comparisons`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.preference.data.cells import number_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows, first_of, pair


def rows(row: Mapping[str, Any]) -> Iterator[Cells]:
    """Yield the pair of a comparison."""
    choice = number_cell(row["choice"])
    if len(row["summaries"]) != 2 or choice not in (0.0, 1.0):
        raise BadRow("'summaries' are not two, or 'choice' is neither 0 nor 1")
    first, second = (summary["text"] for summary in row["summaries"])
    yield pair(first_of(row["info"], ("post", "article")), first, second, 1.0 - choice)


TLDR = Format(
    "tldr",
    forms=(("info", "summaries", "choice", "worker"),),
    reads=OwnRows(rows),
)
