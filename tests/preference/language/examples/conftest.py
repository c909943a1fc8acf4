"""What tests of examples in tokens share."""

import pytest

from murmuration.preference.language.machine import MOST_ROW_BYTES


@pytest.fixture
def one_mebibyte(monkeypatch):
    """For the gradients of several users."""
    monkeypatch.setitem(MOST_ROW_BYTES, "cpu", 2**20)
