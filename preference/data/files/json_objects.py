"""Rows of a JSON file that is one object: columns as pandas writes them by default, or a row.

Which of these it is follows from the object's own shape, and from no row in it.
"""

from collections.abc import Mapping, Set

_WRITE = (
    "write an array of rows, or one row a line, as pandas does with "
    "to_json(FILE, orient='records', lines=True)"
)


def rows_of_object(whole: Mapping[str, object], columns: Set[str]) -> list[object]:
    """The rows of a file that is one JSON object.

    Those of columns are by their numbers, `{"user_id": {"0": cell, …}, …}`; any other object is a
    row.

    Args:
        whole: the object.
        columns: names that columns may have.

    Raises:
        ValueError: it holds a list, and has none of these names; or its columns have no numbers.
    """
    cells_of = {name: cells for name, cells in whole.items() if isinstance(cells, Mapping)}
    if len(cells_of) < len(whole):
        if columns.isdisjoint(whole) and any(isinstance(cell, list) for cell in whole.values()):
            raise ValueError(f"it is one object with a list, and no row: {_WRITE}")
        return [whole]
    numbers = dict.fromkeys(number for cells in cells_of.values() for number in cells)
    if not all(map(str.isdecimal, numbers)):
        raise ValueError(f"it is one object of objects without numbers for rows: {_WRITE}")
    return [
        {name: cells[number] for name, cells in cells_of.items() if number in cells}
        for number in numbers
    ]
