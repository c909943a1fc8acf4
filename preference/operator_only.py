"""What only the operator of a run may see, because it depends on private data exactly.

Values of a run are of three kinds. Public ones follow from settings; released ones were charged;
all others are of this kind, such as how many rows were set aside. They may stand on the operator's
terminal and in a node's own log, where the label says so, and nowhere else: JSON refuses them, and
so do metrics.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class OperatorOnly:
    """A line for the operator's eyes; wherever it is shown, so is what it is."""

    text: str

    def __str__(self) -> str:
        return f"operator only: {self.text}"
