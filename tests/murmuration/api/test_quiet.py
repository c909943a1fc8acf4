import os
from urllib.request import proxy_bypass

import pytest

from murmuration.api.quiet import quiet_libraries


@pytest.mark.parametrize("before", [{}, {"NO_PROXY": "example.org"}, {"no_proxy": "*"}])
def test_what_is_for_this_machine_never_goes_through_a_proxy(before, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, before.get(name, ""))
    monkeypatch.setenv("http_proxy", "http://192.0.2.9:3128")
    quiet_libraries()
    once = dict(os.environ)
    quiet_libraries()
    assert once == dict(os.environ)
    assert proxy_bypass("127.0.0.1")
    assert proxy_bypass("localhost:80")
    for name, value in before.items():
        assert os.environ[name].startswith(value)
    assert proxy_bypass("elsewhere.example") == (before == {"no_proxy": "*"})
