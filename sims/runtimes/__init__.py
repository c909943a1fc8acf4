"""Runtimes: this process, or a Ray cluster; with a live view.

Light to import, for whoever only offers the runtimes that there are.
"""

from enum import StrEnum


class Runtime(StrEnum):
    """A place for the ServerApp and ClientApp to run."""

    LOCAL = "local"
    RAY = "ray"
