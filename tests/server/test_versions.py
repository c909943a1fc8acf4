"""Versions that a result tells."""

from importlib import metadata

from murmuration.server.versions import version, versions


def test_versions():
    found = versions()
    assert set(found) == {"murmuration", "python", "torch", "flwr"} and all(found.values())
    assert (found["murmuration"], found["torch"]) == (version(), metadata.version("torch"))
