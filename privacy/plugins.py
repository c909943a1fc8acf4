"""Plug-ins of rooms for rooms that do not name them: strategies, audits, commands, public names.

A room's ``plugin.py`` holds ``BRINGS``: by group, names and where the object of each is, written as
entry points are. Rooms are found in the folder that holds them, so what they bring is there in an
installation, in a checkout, in an app bundle and in a working directory of Ray, of which the last
two have no metadata. It is ours: nobody has to allow it, and other packages cannot take its names.
Only ``plugin.py`` is imported before an object is asked for.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

_ROOMS = Path(__file__).parents[1]


@cache
def brought(group: str) -> dict[str, EntryPoint]:
    """The plug-ins of a group, by name."""
    rooms = sorted(file.parent.name for file in _ROOMS.glob("*/plugin.py"))
    brings = [import_module(f"murmuration.{room}.plugin").BRINGS for room in rooms]
    return {
        name: EntryPoint(name, place, group)
        for of_room in brings
        for name, place in of_room.get(group, {}).items()
    }


def more_elsewhere() -> str:
    """A hint for refusals of unknown names that a checkout may know; "" in a checkout."""
    if (_ROOMS / "research").exists():
        return ""
    return "; what research/ brings, only a checkout of the repository has"
