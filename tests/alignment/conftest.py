"""What tests with a stand-in for an endpoint need, and that tiny policies are trained quickly."""

import gc
import ssl

import pytest

from murmuration.alignment.endpoints.client import JUDGE, WRITER


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Nothing of the environment is between a test and its own server, and there is no key.

    Without TLS: nobody's certificates are read.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for role in (JUDGE, WRITER):
        monkeypatch.delenv(role.key, raising=False)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)


@pytest.fixture(autouse=True)
def no_search_for_garbage(monkeypatch):
    """Where transformers asks for it, before and after each training: Python does so by itself."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
