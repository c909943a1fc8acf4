"""How far long work is: said now and then, and nothing of it changes the work."""

from murmuration.preference.data.files import progress
from murmuration.preference.data.files.progress import counted_aloud


def test_the_log_is_told_now_and_then(caplog, monkeypatch):
    seconds = iter(range(0, 100, 3))
    monkeypatch.setattr(progress, "_EACH", 2)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(seconds))
    with caplog.at_level("INFO", logger="murmuration.progress"):
        assert [*counted_aloud("abcdefghi", "reading", 1_009)] == [*"abcdefghi"]
    # Looks after 2, 4, 6 and 8 letters, at 3, 6, 9 and 12 seconds.
    assert caplog.messages == [
        "operator only: reading: 4 of 1,009, 1 per second",
        "operator only: reading: 8 of 1,009, 1 per second",
    ]


def test_of_unknown_many(caplog, monkeypatch):
    monkeypatch.setattr(progress, "_EACH", 1)
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    with caplog.at_level("INFO", logger="murmuration.progress"):
        assert [*counted_aloud(range(2), "reading rows")] == [0, 1]
    assert caplog.messages[1].startswith("operator only: reading rows: 2, ")
