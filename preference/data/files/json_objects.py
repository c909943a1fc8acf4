"""Rows of a JSON file that is one object: a list under a name, columns, or what pandas writes.

Which of these it is follows from the object's own shape, and from no row in it.
"""

from collections.abc import Collection, Mapping

_WRITE = (
    "write an array of rows, or one row a line, as pandas does with "
    "to_json(FILE, orient='records', lines=True)"
)


def rows_of_object(whole: Mapping[str, object], columns: Collection[str]) -> list[object]:
    """Return the rows of a file that is one object.

    - `{"data": [row, …]}`: the list, beside anything that is none;
    - `{"user_id": [cell, …], …}`: the columns;
    - as pandas writes by default, `{"user_id": {"0": cell, …}, …}`, and with ``orient`` as `index`,
      `split` or `table`;
    - any other object is a row.

    Args:
        whole: the object.
        columns: names that lists have which are cells, and not rows.

    Raises:
        ValueError: it may be several of these.
    """
    if whole.keys() == {"columns", "index", "data"}:
        return _split(whole["columns"], whole["data"])
    cells = [*whole.values()]
    if all(map(str.isdecimal, whole)):
        return cells
    labelled = {name: cell for name, cell in whole.items() if isinstance(cell, Mapping)}
    if len(labelled) == len(cells):
        return _by_label(labelled)
    lists = {name: cell for name, cell in whole.items() if isinstance(cell, list)}
    rows = [name for name in lists if name not in columns]
    if len(rows) == 1 == len(lists):
        return lists[rows[0]]
    if len(lists) == len(cells) > 0 and len({*map(len, lists.values())}) == 1:
        return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    if rows and not any(name in columns for name in whole):
        shown = ", ".join(repr(name[:40]) for name in rows[:4])
        raise ValueError(f"it is one object with several lists ({shown}): {_WRITE}")
    return [whole]


def _split(names: object, rows: object) -> list[object]:
    if not isinstance(names, list) or not isinstance(rows, list):
        raise ValueError(f"it is one object of columns, an index and no data: {_WRITE}")
    return [
        dict(zip(map(str, names), row, strict=True))
        if isinstance(row, list) and len(row) == len(names)
        else row
        for row in rows
    ]


def _by_label(columns: Mapping[str, Mapping[str, object]]) -> list[object]:
    """Return the rows of columns whose cells have the rows' numbers."""
    numbers = dict.fromkeys(number for cells in columns.values() for number in cells)
    if not all(map(str.isdecimal, numbers)):
        raise ValueError(f"it is one object of objects without numbers for rows: {_WRITE}")
    return [
        {name: cells[number] for name, cells in columns.items() if number in cells}
        for number in numbers
    ]
