"""What tests with a stand-in for an endpoint need."""

import pytest

from murmuration.alignment.endpoints.client import JUDGE, WRITER


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Nothing of the environment is between a test and its own server, and there is no key."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for role in (JUDGE, WRITER):
        monkeypatch.delenv(role.key, raising=False)
