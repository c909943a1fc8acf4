"""What nodes say: unwrapped, cut, escaped, wherever it comes in."""

import time

import numpy as np
import pytest

from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.node_texts import LONGEST, escaped, said, shortened


@pytest.mark.parametrize(
    "error",
    [
        "MemoryError: ",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8 bytes. Error code 12 (Cannot allocate memory)",
        "_ArrayMemoryError: Unable to allocate 74.5 GiB for an array",
        "OutOfMemoryError: Task was killed due to the node running low on memory.",
    ],
)
def test_running_out_of_memory_is_named(error):
    text = said(error)
    assert text.startswith("it ran out of memory (")
    assert error.split()[0].removesuffix(":") in text


@pytest.mark.parametrize(
    ("error", "message", "told"),
    [
        ("KeyError: 'grads'", "'grads'", "KeyError: 'grads'"),
        ("preference.rows.InputError: row 2: it isn't short", "row 2: it isn't short",
         "row 2: it isn't short"),
        ("strategies.x.Odd: two\nlines", "two\nlines", "Odd: two lines"),
        ("RuntimeError", "", "RuntimeError"),
    ],
)  # fmt: skip
def test_flowers_wrapping_is_taken_off(error, message, told):
    wrapped = (
        "<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'ray::ClientAppActor.run()\n"
        f'  File "client_app.py", line 161, in __call__\n    ^^^^\n{error}\n\nThe above exception '
        "was the direct cause of the following exception:\n\nray::ClientAppActor.run()\n"
        "    raise ClientAppException(str(ex)) from ex\n"
        "flwr.clientapp.client_app.ClientAppException: \n"
        f"Exception ClientAppException occurred. Message: {message}'>"
    )
    assert said(wrapped) == told
    assert said(error) == " ".join(error.split())


def test_memory_that_flower_wraps_is_named_in_a_line():
    wrapped = "<class 'x'>:<'File 1\nMemoryError\n\nThe above …\nException "
    wrapped += "ClientAppException occurred. Message:'>"
    assert said(wrapped).startswith("it ran out of memory (MemoryError): ")


NASTY = "\x1b[2J\x1b]0;you\x07 \r\u202eleft\u2028line\ud800\x00 \u009b31m"


def printable(text):
    return text.isprintable() and len(text) <= LONGEST


def test_no_control_character_is_left():
    text = shortened(f"bad {NASTY} end")
    assert printable(text)
    assert text.startswith(r"bad \x1b[2J\x1b]0;you\x07 \u202eleft")
    assert text.endswith("end")
    assert escaped("ünïcode 語 'stays'") == "ünïcode 語 'stays'"
    text.encode()  # no half of a surrogate pair, which no file takes


@pytest.mark.parametrize("part", ["A", "\x1b[31m", " ", "\n", "A " * 30, "MemoryError\n", "a.b."])
@pytest.mark.parametrize("wrap", ["{}", "ClientAppException occurred. Message: {}'>"])
def test_a_long_text_is_cut_and_read_in_no_time(part, wrap):
    """Also one made to keep a regular expression busy."""
    text = wrap.format(part * (50_000_000 // len(part)))
    started = time.monotonic()
    assert printable(said(text))
    assert printable(shortened(text))
    assert time.monotonic() - started < 20


def test_what_was_cut_says_so():
    assert said("x" * 999) == "x" * 999
    assert said("x" * 5_000).endswith("x … (cut)")
    assert shortened("x" * 100_000).endswith("x … (cut)")


def test_a_reply_that_cannot_be_read_is_told_in_a_short_line():
    with pytest.raises(messages.MalformedReply) as caught:
        messages.read_sums(messages.sums_reply({NASTY * 100_000: np.zeros(1)}), {"sum": (1,)})
    assert printable(str(caught.value))
