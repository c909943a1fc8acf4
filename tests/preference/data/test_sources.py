import socket

import pytest

from murmuration.preference.data import sources
from murmuration.preference.data.errors import first_line
from murmuration.preference.data.sources import (
    hub_is_reachable,
    is_hub_name,
    looks_like_path,
)


@pytest.mark.parametrize(
    "source",
    [
        "./x",
        "../x",
        "~/x",
        "/x",
        "x/",
        "a/b/c",
        "a\\b",
        ".",
        "x.jsonl",
        "d/x.CSV",
        "x.json",
        "x.gz",
    ],
)
def test_paths(source):
    assert looks_like_path(source)


def test_a_slip_below_a_folder_of_this_machine_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not looks_like_path("bases/tinny")
    (tmp_path / "bases").mkdir()
    assert looks_like_path("bases/tinny")


@pytest.mark.parametrize("source", ["squad", "Anthropic/hh-rlhf", "org/model-v1.5", "bert_2"])
def test_hub_names(source):
    assert not looks_like_path(source)
    assert is_hub_name(source)


@pytest.mark.parametrize("source", ["a b", "a//b", "-x", "a/b/c", "", "owner/", "x:y"])
def test_no_hub_names(source):
    assert not is_hub_name(source)


@pytest.mark.parametrize(
    ("proxies", "answers", "reachable"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"https": "proxy"}, False, True),
        ({"no": "127.0.0.1"}, False, False),
    ],
)
def test_hub_is_reachable(monkeypatch, proxies, answers, reachable):
    asked = []

    def look_up(host, port):
        asked.append(host)
        if not answers:
            raise OSError("Name or service not known")

    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example:8443/api")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(sources, "getproxies", lambda: proxies)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert hub_is_reachable() is reachable
    assert asked == ([] if "https" in proxies else ["hub.example"])


def test_first_line():
    assert first_line(ValueError(" one \n two")) == "one"
    assert first_line(ValueError()) == "ValueError"
