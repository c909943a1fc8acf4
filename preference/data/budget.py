"""How much a file may become while it is read: packed kilobytes can stand for terabytes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FileBudget:
    """Limits by the size of a file on disk.

    Attributes:
        expansion: bytes that each byte may become; what people write packs to a tenth at best.
        least_bytes: bytes that any file may become.
        row_bytes: what each row counts for, besides what it holds: so rows are limited, too.
        line_bytes: of one row; a judgement over 64 responses of 100,000 characters may have them.
        parts: numbers, texts and lists in one row.
        memory: of the process that decodes Parquet and Arrow, besides four times the file's size.
        seconds: of its processor, and two more for each million bytes.
    """

    expansion: int = 64
    least_bytes: int = 2**28
    row_bytes: int = 256
    line_bytes: int = 2**26
    parts: int = 10**6
    memory: int = 2**30
    seconds: int = 30

    def bytes(self, size: int) -> int:
        """Return how many bytes a file of a size may become."""
        return max(self.least_bytes, self.expansion * size)

    def decoding(self, size: int) -> dict[str, int]:
        """Return the limits of the process that decodes a file of a size, by their names."""
        return {
            "bytes": self.bytes(size),
            "rows": self.bytes(size) // self.row_bytes,
            "row": self.row_bytes,
            "line": self.line_bytes,
            "memory": self.memory + 4 * size,
            "seconds": self.seconds + 2 * size // 10**6,
        }
