"""Watched runs (see ``tests/shared/watch.py``)."""

import pytest
from watch import Watch


@pytest.fixture(scope="session")
def watch(tmp_path_factory):
    """A ``Watch`` in a folder of its own."""
    return Watch(tmp_path_factory.mktemp("watched"))
