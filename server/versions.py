"""Which version this is, and with which versions a run was made.

The distribution, which is what pip installs, has another name than the package that is imported.
"""

import platform
import tomllib
from importlib import metadata
from pathlib import Path

#: What pip installs.
DISTRIBUTION = "murmuration-rlhf"


def version() -> str:
    """The version, also of a checkout that is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        beside = Path(__file__).resolve().parents[1] / "pyproject.toml"
        return tomllib.loads(beside.read_text(encoding="utf-8"))["project"]["version"]


def versions() -> dict[str, str]:
    """Of Murmuration, of libraries that decide last digits, and of Python."""
    libraries = {name: metadata.version(name) for name in ("torch", "flwr")}
    return {"murmuration": version(), **libraries, "python": platform.python_version()}
