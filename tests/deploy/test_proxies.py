import pytest

from murmuration.deploy.proxies import proxy_for, way_around

PROXY = "http://192.0.2.9:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment(name, monkeypatch):
    assert proxy_for("server.example:9092") == ""
    monkeypatch.setenv(name, PROXY)
    assert proxy_for("server.example:9092") == PROXY
    assert "NO_PROXY=server.example" in way_around("server.example:9092")


@pytest.mark.parametrize("address", ["server.example:9092", "10.0.0.5:9092", "[fd00::1]:9092"])
def test_none_where_the_host_is_excepted(address, monkeypatch):
    monkeypatch.setenv("https_proxy", PROXY)
    assert proxy_for(address)
    monkeypatch.setenv("no_proxy", "server.example,10.0.0.5,fd00::1")
    assert way_around(address) == ""


def test_what_is_for_the_web_only_is_not_in_the_way(monkeypatch):
    monkeypatch.setenv("http_proxy", PROXY)
    assert proxy_for("server.example:9092") == ""
