"""The live view on terminals and elsewhere, and the summary at the end."""

import contextlib
import io
import json
import os
import re
import signal
import sys
import threading
import time

import cards
import pytest
from rich.console import Console

from murmuration.privacy.disclosure import Public
from murmuration.reporting.live import live_view
from murmuration.reporting.live.live_view import LiveView, summary
from murmuration.reporting.live.progress import RoundProgress

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

RESULT = cards.RESULT | {
    "strategy": "uls",
    "adjacency": "zero-out",
    "epsilon": 2.9914,
    "epsilon_target": 3.0,
    "delta": 1e-5,
    "rounds": 200,
    "rounds_planned": 200,
    "users": 2717,
    "cohort": 540,
    "heldout_accuracy": 0.743123,
    "heldout_accuracy_by_user": 0.738712,
    "heldout_users": 330,
    "heldout_error": 0.0242,
    "test_is_public": True,
    "users_per_second": 43219.4,
    "seconds_training": 2.49812,
    "out": "/runs/r r",
    "private": True,
    "stopped": None,
    "warnings": [],
}


def line(t, **more):
    return json.dumps({"round": t, "epsilon": t / 10, "heldout_accuracy": 0.7, **more}) + "\n"


def append(folder, text):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(text)


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


@pytest.fixture
def plain(monkeypatch):
    """A stream that is no terminal."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return io.StringIO()


class Terminal:
    """A pseudo-terminal; ``text`` is everything that was written to it."""

    def __init__(self):
        self._reader, writer = os.openpty()
        self.stream = os.fdopen(writer, "w", encoding="utf-8")
        self._data = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            while data := os.read(self._reader, 65536):
                self._data += data
        except OSError:  # how Linux tells that the other end is closed
            pass

    @property
    def text(self):
        return self._data.decode(errors="replace")

    @property
    def words(self):
        return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.text)

    def close(self):
        if not self.stream.closed:
            self.stream.close()
        self._thread.join(5)
        os.close(self._reader)


@pytest.fixture
def terminal(monkeypatch):
    found = Terminal()
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    yield found
    found.close()


@contextlib.contextmanager
def view(folder, stream, rounds=20):
    """A live view on ``stream``, which must be standard error again when it has ended."""
    with contextlib.redirect_stderr(stream):
        try:
            with LiveView(folder, RoundProgress(rounds, 3.0, "uls [b]")) as shown:
                yield shown
        finally:
            assert sys.stderr is stream


def test_plain_lines(tmp_path, plain):
    with view(tmp_path, plain) as shown:
        shown.stage(Public("loading judgements"))
        until(lambda: "loading" in plain.getvalue())
        append(tmp_path, line(1))
        append(tmp_path, line(2) + '{"round": 3, ')
        until(lambda: "round 2 of 20" in plain.getvalue())
        append(tmp_path, '"epsilon": 0.3}\n')
        for t in range(4, 21):
            append(tmp_path, line(t))
    text = plain.getvalue().splitlines()
    assert text[0] == "uls [b]: loading judgements"
    assert text[-1].startswith("uls [b]: round 20 of 20, ε 2.00 of 3, held-out 70.0 %")
    assert "left" not in text[-1]
    assert "\x1b" not in plain.getvalue() and len(text) <= 12


def test_plain_lines_are_few(tmp_path, plain, monkeypatch):
    monkeypatch.setattr(live_view, "LOOKS_PER_SECOND", 1000)
    with view(tmp_path, plain, rounds=1000) as shown:
        for t in range(1, 300):
            append(tmp_path, line(t))
            if t % 25 == 0:
                until(lambda t=t: shown._progress.task.completed == t)
    # one at once, one for each of two tenths, one at the end
    assert len(plain.getvalue().splitlines()) <= 4


def test_a_line_when_nothing_was_said_for_long(tmp_path, plain, monkeypatch):
    monkeypatch.setattr(live_view, "SECONDS_BETWEEN_LINES", 0.0)
    with view(tmp_path, plain, rounds=1000):
        for t in (1, 2, 3):
            append(tmp_path, line(t))
            until(lambda t=t: f"round {t} of" in plain.getvalue())
        time.sleep(0.3)
    assert len(plain.getvalue().splitlines()) == 3  # none when nothing has happened


def test_continuous_integration_has_no_bar(tmp_path, terminal, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with view(tmp_path, terminal.stream):
        append(tmp_path, line(20))
    until(lambda: "round 20 of 20" in terminal.text)
    assert "\x1b" not in terminal.text


def test_forced_colour_does_not_make_a_bar(tmp_path, plain, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with view(tmp_path, plain):
        append(tmp_path, line(20))
    assert "\x1b" not in plain.getvalue()


def test_terminal(tmp_path, terminal):
    with view(tmp_path, terminal.stream) as shown:
        shown.stage(Public("starting Flower"))
        until(lambda: "starting Flower" in terminal.words)
        append(tmp_path, line(1))
        until(lambda: "round 1 of 20" in terminal.words)
        append(tmp_path, line(7))
        until(lambda: "left" in terminal.words)
        shown.note(Public("[b]3 rows[/b] skipped"))
        append(tmp_path, line(20))
        until(lambda: "round 20 of 20" in terminal.words)
        shown.stage(Public("writing the report"))
        until(lambda: "writing the report" in terminal.words)
    until(lambda: SHOW in terminal.text)
    words = terminal.words
    for expected in ("uls [b]", "━", "ε 2.00 of 3", "held-out 70.0 %", " s left", "[b]3 rows[/b]"):
        assert expected in words
    assert terminal.text.count(HIDE) == terminal.text.count(SHOW) == 1
    assert "starting" not in words[words.index("round 20 of") :]
    assert words.rindex("round 20 of") > words.rindex("writing")  # a spinner must not stay


def test_standard_output_stays_clean(tmp_path, terminal, capsys):
    with view(tmp_path, terminal.stream) as shown:
        append(tmp_path, line(20))
        until(lambda: "round 20 of 20" in terminal.words)
        shown.note(Public("a note"))
        print('{"epsilon": 3}')
    assert capsys.readouterr().out == '{"epsilon": 3}\n'


@pytest.mark.parametrize("how", ["error", "ctrl-c"])
def test_terminal_is_restored(tmp_path, terminal, how):
    threads = threading.active_count()
    expected = ZeroDivisionError if how == "error" else KeyboardInterrupt
    with pytest.raises(expected), view(tmp_path, terminal.stream):
        append(tmp_path, line(5))
        until(lambda: "round 5 of 20" in terminal.words)
        if how == "error":
            _ = 1 / 0
        signal.raise_signal(signal.SIGINT)
        time.sleep(5)
    until(lambda: terminal.text.count(SHOW) == 1)
    assert threading.active_count() == threads


def test_a_failed_start_restores_the_terminal(tmp_path, terminal, monkeypatch):
    def interrupt(thread):
        if thread.name == "live view":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    with pytest.raises(KeyboardInterrupt), view(tmp_path, terminal.stream):
        pass
    until(lambda: terminal.text.count(SHOW) == 1)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_closed_standard_error_does_not_stop_the_run(tmp_path, plain):
    done = False
    with view(tmp_path, plain):
        plain.close()
        append(tmp_path, line(10))
        time.sleep(0.3)
        append(tmp_path, line(20))
        done = True
    assert done


def test_rounds_that_come_at_once_count_as_new(tmp_path, plain):
    with view(tmp_path, plain) as shown:
        shown.stage(Public("loading judgements"))
        append(tmp_path, line(1))
        until(lambda: shown._stage == "")
        append(tmp_path, line(2))
        until(lambda: shown._progress.task.speed)


def test_a_resumed_run_is_shown_where_it_is(tmp_path, plain):
    append(tmp_path, "".join(line(t) for t in range(1, 11)))
    with view(tmp_path, plain) as shown:
        shown.stage(Public("starting Flower"))
        until(lambda: "round 10 of 20" in plain.getvalue())
        assert "left" not in plain.getvalue()
        (tmp_path / "new").write_text("".join(line(t) for t in range(1, 9)))
        (tmp_path / "new").replace(tmp_path / "metrics.jsonl")
        until(lambda: shown._progress.task.completed == 8)
        assert shown._stage == "starting Flower"
        append(tmp_path, line(9))
        until(lambda: shown._stage == "")


def printed(result, width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(summary(result))
    return console.file.getvalue()


def flat(result, width=100):
    return " ".join(re.sub("[│╭╮╰╯─]", " ", printed(result, width)).split())


def test_the_head_of_the_ledger_is_shown_in_one_piece():
    head = "203:" + "5f" * 32
    assert f"  {head}\n" in printed({**RESULT, "ledger_head": head})


def test_summary():
    text = flat(RESULT)
    for expected in (
        "murmuration · uls",
        "User-level DP: ε = 3.00, δ = 1e-5; budget ε = 3",
        "zero-out The list of users is public",
        "74.3 % of judgements, 73.9 % by user, ± 2.5 points (330 users tested on)",
        "2,717 users, 540 expected in a round; 200 rounds in 2.5 s (43,000 users/s)",
        "/runs/r r/report.html",
        "murmuration score '/runs/r r/model' --prompt",
    ):
        assert expected in text
    assert "!" not in text


def test_the_command_to_copy_asks_what_the_crowd_was_asked_about():
    embedded = flat({**RESULT, "test": "murmuration.population:test"})
    assert "Spend or save?" in embedded and "Spend or save?" not in flat(RESULT)


def test_summary_of_a_run_without_privacy():
    result = {**RESULT, "private": False, "epsilon": None, "epsilon_target": None}
    assert "privacy none" in flat(result) and "ε" not in flat(result)


def test_summary_warns():
    result = {**RESULT, "warnings": ["Mind [bold]this[/]."], "stopped": "Stopped.", "rounds": 150}
    text = flat(result)
    assert "! Stopped. ! Mind [bold]this[/]." in text and "150 of 200 rounds" in text


def test_summary_without_accuracy_or_speed():
    result = {**RESULT, "heldout_accuracy": None, "heldout_users": 0, "users_per_second": None}
    told = flat(result)
    assert "accuracy not measured. Nobody was held out." in told and "users/s" not in told
    drowned = flat({**result, "heldout_users": 9, "heldout_epsilon": 0.25})
    assert "not measured. Too few users" in drowned


def test_summary_shows_short_paths_and_fits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = printed({**RESULT, "out": str(tmp_path / "r"), "warnings": ["word " * 60]}, width=60)
    assert "r/model" in text and str(tmp_path) not in text
    assert max(map(len, text.splitlines())) <= 60


def test_summary_where_everybody_takes_part_once():
    result = {**RESULT, "cohort": 2717, "rounds": 1, "rounds_planned": 1}
    assert "2,717 users, all of them in a round; 1 round in 2.5 s" in flat(result)


def test_summary_says_why_fewer_users_were_tested_on_than_the_test_has():
    expected = "(330 of 341 test users; the judgements of the others are all ties)"
    assert expected in flat({**RESULT, "test_users": 341})
    assert "(330 users tested on)" in flat({**RESULT, "test_users": 330})
    assert "held out" in flat({**RESULT, "test_users": None, "test_is_public": False})


@pytest.mark.parametrize(("kind", "said"), [("hashing", True), ("encoder", False)])
def test_the_summary_says_what_ignores_the_prompt(kind, said):
    file = io.StringIO()
    Console(file=file, width=100).print(summary({**RESULT, "features": {"kind": kind}}))
    assert ("it ignores the prompt" in file.getvalue()) == said
