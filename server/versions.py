"""With which versions a run was made."""

import platform
from importlib import metadata

#: What is told of, by the name of its distribution.
DISTRIBUTIONS = {"murmuration": "murmuration-rlhf", "torch": "torch", "flwr": "flwr"}


def versions() -> dict[str, str]:
    """Of Murmuration, of libraries that decide last digits, and of Python."""
    found = {name: _installed(named) for name, named in DISTRIBUTIONS.items()}
    return found | {"python": platform.python_version()}


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed, from a checkout"
