"""Versions that a result tells."""

from murmuration.server.versions import DISTRIBUTIONS, versions
from murmuration.version import DISTRIBUTION


def test_versions():
    found = versions()
    assert set(found) == {"murmuration", "python", "torch", "flwr"} and all(found.values())
    assert DISTRIBUTIONS["murmuration"] == DISTRIBUTION
