"""A reader: files whose first line names the columns, all separated by tabs."""

from collections.abc import Iterator
from typing import IO

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.sources import Reader


def rows(file: IO[bytes]) -> Iterator[tuple[int, dict[str, object] | BadRow]]:
    """Yield each row with its line; a line with another number of cells is a bad row."""
    header = file.readline().decode().rstrip("\r\n").split("\t")
    for number, line in enumerate(file, start=2):
        cells = line.decode(errors="surrogateescape").rstrip("\r\n").split("\t")
        if len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True))
        else:
            yield number, BadRow(f"{len(cells)} cells under a header of {len(header)}")


# A row is a line, whatever is in it: nodes may read such files.
TSV = Reader("tsv", rows, isolates=True)
