"""Where a run runs: this process, or a Ray cluster; with a live view.

Light to import, for whoever only offers the runtimes that there are.
"""

from enum import StrEnum


class Runtime(StrEnum):
    """Where the ServerApp and ClientApp run."""

    LOCAL = "local"
    RAY = "ray"
