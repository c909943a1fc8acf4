"""Text of others, before it is seen: nothing in it moves a cursor or makes a line."""

import logging

import pytest

from murmuration.preference.escaping import escaped, get_logger, visible

#: What does something to a terminal, or to what a reader believes to see.
HARMFUL = {
    "escape": "\x1b",
    "colours": "\x1b[31m",
    "cursor": "\x1b[2J\x1b[H",
    "title": "\x1b]0;title\x07",
    "link (OSC 8)": "\x1b]8;;http://x.example\x1b\\here\x1b]8;;\x1b\\",
    "clipboard (OSC 52)": "\x1b]52;c;ZWNobyBoaQ==\x07",
    "CSI in one character": "\x9b31m",
    "carriage return": "\r",
    "backspace": "\b\b\b",
    "null": "\0",
    "bidi override": "\u202egnp.exe\u202c",
    "bidi isolate": "\u2066x\u2069",
    "line separator": "\u2028",
    "next line": "\x85",
    "zero-width space": "\u200b",
    "byte order mark": "\ufeff",
    "half of a character": "\ud800",
    "private use": "\ue000",
    "tags": "\U000e0041",
}


@pytest.mark.parametrize("harm", HARMFUL.values(), ids=HARMFUL)
def test_nothing_harmful_passes(harm):
    for escape in (escaped, visible):
        found = escape(f"a{harm}b")
        assert found.isprintable() and found.startswith("a\\") and found.endswith("b")
        assert escape(found) == found


def test_what_people_write_passes():
    text = "naïve 語\u3000全角\n\t« Oui\u00a0! » می\u200cخواهم 👩\u200d💻 ❤\ufe0f é"
    assert visible(text) == text
    assert escaped("ünïcode 語 'stays' [bold]") == "ünïcode 語 'stays' [bold]"
    assert escaped("a\nb\tc") == r"a\nb\tc"


def test_a_log_has_one_line_for_each_message(caplog):
    log = get_logger("murmuration.test")
    assert get_logger("murmuration.test") is log
    with caplog.at_level(logging.WARNING, "murmuration.test"):
        log.warning("%d rows, the first: %s", 2, "f:1\x1b[2J\n2026 INFO all is well")
    assert caplog.messages == [r"2 rows, the first: f:1\x1b[2J\n2026 INFO all is well"]
