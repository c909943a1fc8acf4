"""Tasks of entries are computed in the tests' own process."""

import os

import pytest


@pytest.fixture(scope="module", autouse=True)
def _in_this_process():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "sched_getaffinity", lambda _: {0})
        yield
