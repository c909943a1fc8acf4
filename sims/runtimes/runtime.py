"""Which runtimes of simulation there are: light to import, for whoever only offers them."""

from enum import StrEnum


class Runtime(StrEnum):
    """Where the ServerApp and ClientApp run."""

    LOCAL = "local"
    RAY = "ray"
