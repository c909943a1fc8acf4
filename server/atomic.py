"""Files that are there whole or not at all."""

import os
import secrets
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of ``path``; on disk when this returns, or nothing has changed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
