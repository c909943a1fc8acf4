"""A series of runs, as it is followed with and without a terminal."""

import io

from rich.console import Console

from murmuration.terminal.runs_progress import RunsProgress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def shown(terminal, names, total):
    clock, file = Clock(), io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100)
    with RunsProgress(console, clock) as progress:
        progress.begin(total)
        for name in names:
            clock.now += 30.0
            progress(name)
    return file.getvalue()


def test_lines_without_a_terminal_count_and_say_what_is_left():
    assert shown(False, ["uls-seed0", "aup[1]", "els"], 3).splitlines() == [
        "3 runs",
        "run 1 of 3 ended: uls-seed0, about 1 min 0 s left",
        "run 2 of 3 ended: aup[1], about 30 s left",
        "run 3 of 3 ended: els",
    ]
    assert shown(False, [], 1) == "1 run\n"


def test_runs_that_had_ended_are_counted_in_a_line():
    file = io.StringIO()
    with RunsProgress(Console(file=file, force_terminal=False, width=100)) as progress:
        progress.begin(1, 7)
        progress("els")
    assert file.getvalue().splitlines() == [
        "1 run, beside 7 that had ended",
        "run 1 of 1 ended: els",
    ]


def test_a_bar_at_a_terminal():
    text = shown(True, ["uls-seed0"], 2)
    assert "uls-seed0" in text and "1/2" in text and "ended" not in text
