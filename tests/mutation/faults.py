"""The faults of ``faults.toml``: slips of one line, each of which a test must catch."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fault:
    """A text that stands once in a file, and what a slip would make of it.

    Attributes:
        tests: that must catch it; by default those of the file.
        hangs: running out of time catches it, too.
    """

    name: str
    file: str
    text: str
    broken: str
    tests: tuple[str, ...] = ()
    hangs: bool = False

    @property
    def covering(self) -> tuple[str, ...]:
        """The test files to run."""
        path = Path(self.file)
        return self.tests or (f"tests/{path.parent}/test_{path.name}",)

    def applied(self, code: str) -> str:
        """Return a file's code with the fault in it.

        Raises:
            ValueError: the text does not stand there exactly once.
        """
        if (times := code.count(self.text)) != 1:
            raise ValueError(f"{self.name}: its text stands in {self.file} {times} times")
        return code.replace(self.text, self.broken)


def load() -> list[Fault]:
    """Return all faults, in the order of the file."""
    written = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return [
        Fault(name, **{**fault, "tests": tuple(fault.get("tests", ()))})
        for name, fault in written.items()
    ]
