"""The version of this package, and the versions with which a run was made.

The distribution, which is what pip installs, has another name than the package that is imported.
"""

import platform
import tomllib
from importlib import metadata
from pathlib import Path

#: What pip installs.
DISTRIBUTION = "murmuration-rlhf"
UNKNOWN = "unknown"


def version() -> str:
    """The version; of a checkout or of an app that a server shipped, that of its pyproject.toml."""
    result = _installed(DISTRIBUTION)
    if result != UNKNOWN:
        return result
    for folder in Path(__file__).resolve().parents[1:3]:
        try:
            project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if (declared := project.get("project", {})).get("name") == DISTRIBUTION:
            return str(declared.get("version", UNKNOWN))
    return UNKNOWN


def versions() -> dict[str, str]:
    """Return the versions of Murmuration, of libraries that decide last digits, and of Python.

    Nothing is raised: a run has paid for its result when this is asked.
    """
    libraries = {name: _installed(name) for name in ("torch", "flwr")}
    return {"murmuration": version(), **libraries, "python": platform.python_version()}


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return UNKNOWN
