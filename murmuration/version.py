"""Which version this is.

The distribution, which is what pip installs, has another name than the package that is imported.
"""

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
