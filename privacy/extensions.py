"""Extensions of other packages by entry points: all names are read, only code in use is imported.

A package declares an entry point of one of our groups, and its object can be used by its name. To
list names imports nothing, so a package that is broken stops only those who ask for its object. A
name of ours is never another package's, and a name that two packages bring is neither's.

An owner's agent, to which others say what to compute, works within ``only``: whatever its policy
does not name is then as if it was not installed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from murmuration.privacy.plugins import brought

_ALLOWED: ContextVar[frozenset[str] | None] = ContextVar("allowed extensions", default=None)
#: The same of the whole process, its later threads too, which begin without a context.
_of_process: frozenset[str] | None = None


class ExtensionError(ValueError):
    """An entry point cannot be used; one line, with the package and the name."""


@contextmanager
def only(names: Iterable[str]) -> Iterator[None]:
    """Import nothing but what these entry points name, of any group, inside the ``with`` block."""
    before = _ALLOWED.set(frozenset(names))
    try:
        yield
    finally:
        _ALLOWED.reset(before)


def restrict(names: Iterable[str]) -> None:
    """Import nothing but what these entry points name, as long as this process lives.

    A later call can take names away, and give none back.
    """
    global _of_process
    _of_process = frozenset(names) & (frozenset(names) if _of_process is None else _of_process)


def allowed() -> frozenset[str] | None:
    """Return the names that may be imported here, by ``only`` and ``restrict``; None: all."""
    within = _ALLOWED.get()
    if within is None or _of_process is None:
        return _of_process if within is None else within
    return within & _of_process


class Group:
    """The entry points of one group, and what rooms of ours bring of it.

    Args:
        name: of the group, as packages declare it.
        check: why a loaded object is not what the group is for, or "" if it is.
        ours: names that are not to be had.
    """

    def __init__(
        self, name: str, check: Callable[[str, Any], str], ours: Collection[str] = ()
    ) -> None:
        self.name, self.check, self._ours = name, check, ours

    def names(self) -> tuple[str, ...]:
        """Return the names that can be asked for, in their order; nothing is imported."""
        within = allowed()
        names = {point.name for point in _points(self.name)} - {*self._ours}
        return tuple(
            sorted(brought(self.name).keys() | (names if within is None else names & within))
        )

    def load(self, name: str) -> Any:
        """Return the object of one of ``names``.

        Raises:
            ExtensionError: there is none of that name, or it cannot be imported, or is no such
                object.
        """
        if name not in self.names():
            raise ExtensionError(f"no package that may be used here brings {name!r} ({self.name})")
        if ours := brought(self.name).get(name):
            return ours.load()
        return _loaded(self, name)


@cache
def _points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, point.value)))


@cache
def _loaded(group: Group, name: str) -> Any:
    points = [point for point in _points(group.name) if point.name == name]
    whose = " and ".join(sorted({_package(point) for point in points}))
    message = f"{name!r} of {whose} ({group.name} = {points[0].value}) cannot be used"
    if len(points) > 1:
        raise ExtensionError(f"{message}: the name is brought {len(points)} times")
    try:
        loaded = points[0].load()
    except (Exception, SystemExit) as error:  # whatever somebody else's code does
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise ExtensionError(f"{message}: {why}") from None
    if why := group.check(name, loaded):
        raise ExtensionError(f"{message}: {why}")
    return loaded


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name} {point.dist.version}" if point.dist else "a package"
