"""Marks of values by audience: everybody, or only the operator of a run.

Values of a run are of three kinds, and whatever shows or writes one takes it with its mark alone.
``Public`` ones follow from settings, or from what was declared public. ``Released`` ones were
charged, or are computed from such: ``Ledger.released`` marks them. All others depend on private
data exactly and are ``OperatorOnly``: the terminal and a node's own log show them with these words.
What everybody may see (``Disclosure``: metrics, which trackers read, the JSON files and the card of
a run) refuses them.

Marks are for mistakes: who would publish private data can call them public. That the model itself
moves by released values alone is checked by ``strategies.steps.charged_moves``.
"""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Value = TypeVar("Value", covariant=True)
Result = TypeVar("Result")

_ADVICE = (
    "mark it as Public(...) if it follows from settings or from what was declared public, by "
    "ledger.released(...) if it was charged or is computed from what was, and as OperatorOnly(...) "
    "for the terminal alone if it depends on private data otherwise"
)


class Unmarked(TypeError):
    """A value came without its mark, or for the operator's eyes to where everybody looks."""


@dataclass(frozen=True)
class Public(Generic[Value]):
    """A value that follows from settings, or from what was declared public."""

    value: Value


@dataclass(frozen=True)
class Released(Generic[Value]):
    """A value that was charged, or is computed from such; made by ``Ledger.released`` alone."""

    value: Value

    def then(self, function: Callable[[Value], Result]) -> "Released[Result]":
        """Compute a value from it: post-processing costs nothing."""
        return Released(function(self.value))


@dataclass(frozen=True)
class OperatorOnly:
    """A line for the operator's eyes; wherever it is shown, so is what it is."""

    text: str

    def __str__(self) -> str:
        return f"operator only: {self.text}"


#: What everybody may see.
Shown = Public[Value] | Released[Value]


def on_terminal(line: Shown[str] | OperatorOnly) -> str:
    """Return a line as the operator's terminal shows it.

    Raises:
        Unmarked: it has no mark.
    """
    if isinstance(line, OperatorOnly):
        return str(line)
    if isinstance(line, Public | Released):
        return line.value
    raise Unmarked(f"a line for the terminal is not marked: {_ADVICE}")


class Disclosure(MutableMapping[str, Any]):
    """Values that everybody may see, by name: takes marked ones and holds what they mark.

    Raises:
        Unmarked: a value has no mark, or is for the operator only.
    """

    def __init__(self, values: Mapping[str, Shown[object]] | None = None) -> None:
        self._values: dict[str, Any] = {}
        self.update(values or {})

    @classmethod
    def public(cls, values: Mapping[str, object]) -> "Disclosure":
        """Return values that all follow from settings, or from what was declared public."""
        return cls({name: Public(value) for name, value in values.items()})

    @classmethod
    def read(cls, values: Mapping[str, object]) -> "Disclosure":
        """Return values that were disclosed before, as a file of the run has them."""
        return cls.public(values)

    def __setitem__(self, name: str, value: Shown[object]) -> None:
        if isinstance(value, OperatorOnly):
            raise Unmarked(f"{name!r} is for the operator only, and this is for everybody")
        if not isinstance(value, Public | Released):
            raise Unmarked(f"{name!r} is not marked: {_ADVICE}")
        self._values[name] = value.value

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def disclosed(values: Disclosure) -> dict[str, Any]:
    """The values that may be written for everybody to read.

    Raises:
        Unmarked: these are values that nobody marked.
    """
    if not isinstance(values, Disclosure):
        raise Unmarked(f"values for everybody are not marked, each in a Disclosure: {_ADVICE}")
    return dict(values)
