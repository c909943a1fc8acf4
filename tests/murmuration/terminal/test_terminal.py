"""What reaches a terminal: our own colours and bars, and nobody else's control characters."""

import io
import json
import os
import re
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from murmuration.terminal.terminal import Guarded, Terminal, print_notes

NASTY = "\x1b[2J\x1b]52;c;aGk=\x07\x1b]8;;http://x.example\x07\r\u202e[link=http://x.example]"
ESCAPED = r"\x1b[2J\x1b]52;c;aGk=\x07\x1b]8;;http://x.example\x07\r\u202e[link=http://x.example]"
_OWN = re.compile(r"\x1b\[[\d;]*m")  # colours


class Tty(io.StringIO):
    def isatty(self):
        return True


def harmless(text):
    return all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("wrap", [str, Text], ids=["str", "Text"])
def test_tables_and_lines_have_our_own_colours_alone(wrap):
    file = Tty()
    terminal = Terminal(file=file, force_terminal=True, width=400, color_system="truecolor")
    table = Table(NASTY, title=NASTY)
    table.add_row(wrap(NASTY), style="bold")
    terminal.print(wrap(f"a {NASTY}"), style="red")
    terminal.print(table)
    shown = file.getvalue()
    assert "\x1b[" in shown and "[link=http://x.example]" in shown
    assert harmless(_OWN.sub("", shown))


def test_a_console_writes_past_the_guard_also_while_a_bar_is_drawn(monkeypatch):
    file = Tty()
    monkeypatch.setattr(sys, "stdout", Guarded(file))
    terminal = Terminal(force_terminal=True, color_system="truecolor")
    with terminal.status("loading"):
        print(f"printed {NASTY}")
        sys.stdout.flush()
    terminal.print("done", style="bold")
    assert "\x1b[1mdone\x1b[0m" in file.getvalue()
    assert "\x1b]52" not in file.getvalue() and "\x1b]8" not in file.getvalue()


def test_streams_escape_what_is_written_to_them():
    file = Tty()
    stream = Guarded(file)
    assert not stream.isatty()
    print(NASTY, "plain", file=stream, flush=True)
    stream.writelines([NASTY, "\n"])
    assert file.getvalue() == f"{ESCAPED} plain\n{ESCAPED}\n"
    assert stream.encoding == file.encoding


ROW = {"prompt": "p", "chosen": "a b", "rejected": "c"}


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_data_prints_no_escape_of_a_column(cli, tmp_path, form):
    """It printed a raw one."""
    file, name = tmp_path / f"data.{form}", NASTY.replace("\r", "")
    rows = [{"user_id": f"u{i}", **ROW, name: "x"} for i in range(3)]
    if form == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [rows[0], *(row.values() for row in rows)]
        file.write_text("".join(",".join(line) + "\n" for line in lines))
    code, stdout, lines = cli("data", file)
    assert (code, lines) == (0, []) and harmless(stdout)
    assert r"\x1b]52;c;aGk=" in re.sub(r"\n *", "", stdout)


@pytest.mark.parametrize(
    "row",
    [
        {"user_id": f"u{NASTY}", **ROW},
        {NASTY: "u", **ROW},
        {"user_id": "u", "prompt": NASTY, "chosen": NASTY, NASTY: "c"},
        {"user_id": "u", "prompt": "p", "responses": [NASTY] * 2, "best": NASTY},
    ],
    ids=["user", "column", "prompt", "cell"],
)
def test_errors_print_no_escape_of_a_file(cli, tmp_path, row):
    file = tmp_path / f"{NASTY.replace('/', '')}.jsonl"
    file.write_text(json.dumps(row) + "\n")
    for command in ("data", "run --data"):
        code, stdout, (line,) = cli(*command.split(), file)
        assert (code, stdout) == (2, "")
        assert line.startswith("error: ") and line.isprintable()


def test_options_that_a_shell_filled_in_print_no_escape(cli):
    for argument in (f"--{NASTY}", NASTY):
        code, _, lines = cli("plan", argument)
        assert code == 2 and all(map(str.isprintable, lines))


def test_an_unforeseen_error_prints_no_escape():
    code = (
        "import sys\nfrom murmuration.cli import main\n"
        "def fail(): raise RuntimeError(sys.argv[1])\n"
        "main.app = fail\nmain.main()\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, NASTY], capture_output=True, text=True, timeout=120
    )
    assert "RuntimeError" in found.stderr and harmless(found.stderr)


def test_notes_are_printed_once_and_not_what_is_shown_otherwise(capsys):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for text in ("few voters", "few voters", "on the page"):
            warnings.warn(text, UserWarning, stacklevel=1)
        warnings.warn("of a library", DeprecationWarning, stacklevel=1)
    print_notes(caught, ["on the page"])
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "note: few voters\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_an_encoding_that_lacks_a_character_ends_nothing(encoding):
    code = (
        "from murmuration.terminal.terminal import Terminal, guard_streams\n"
        "guard_streams()\n"
        "print('plain \\u03b5')\n"
        "Terminal().print('drawn \\u03b5 \\u2588')\n"
        "Terminal(stderr=True).print('told \\u03b5')\n"
    )
    environment = {"PYTHONIOENCODING": encoding, "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"plain \\u03b5" in done.stdout and b"drawn \\u03b5 \\u2588" in done.stdout
    assert b"told \\u03b5" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_what_has_ended_has_ended_where_nothing_can_be_printed():
    code = (
        "from murmuration.terminal.terminal import guard_streams, print_finished\n"
        "guard_streams()\n"
        "print_finished('done')\n"
    )
    run = partial(subprocess.run, [sys.executable, "-c", code], text=True)
    for unbuffered in ("", "1"):
        run = partial(run, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
        with Path("/dev/full").open("w") as full:
            done = run(stdout=full, stderr=subprocess.PIPE)
            assert (done.returncode, done.stderr.count("\n")) == (0, 1)
            assert "No space left" in done.stderr
            assert run(stdout=full, stderr=full).returncode == 0
        assert run(capture_output=True).stdout == "done\n"
