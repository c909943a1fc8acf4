"""Texts from nodes, before they are printed or logged: one short line without control characters.

An error's text comes from another machine. It may be hundreds of megabytes long, and hold what
moves a terminal's cursor, hides what stands before it, or looks like another line of a log. So it
is cut before anything looks at it, and escaped, where it comes in: in ``exchange`` and in
``messages.MalformedReply``. No log, no file and no terminal sees anything else of it.
"""

import re

from murmuration.preference.escaping import escaped

#: Characters of a node's text that are kept.
LONGEST = 1_000
#: Characters of it that are looked at: enough for the traceback that Flower's simulation sends.
_LOOKED_AT = 20_000
_WRAPPED = "ClientAppException occurred. Message:"
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryError|allocate memory", re.IGNORECASE)


def shortened(text: str) -> str:
    """A text in one line, ``escaped``, of at most ``LONGEST`` characters."""
    line = escaped(" ".join(text[:_LOOKED_AT].split()))
    cut = " … (cut)" if len(text) > _LOOKED_AT or len(line) > LONGEST else ""
    return line[: LONGEST - len(cut)] + cut


def said(reason: str) -> str:
    """A node's own words, ``shortened``, without what Flower's simulation wraps around them.

    Running out of memory is named, whatever library it was.
    """
    if len(reason) > _LOOKED_AT:  # what was raised stands at the end
        reason = f"{reason[: _LOOKED_AT // 2]}\n…\n{reason[-_LOOKED_AT // 2 :]}"
    words = reason
    _, wrapped, last = reason.partition(_WRAPPED)
    if wrapped:
        words = last.rstrip().removesuffix(">").removesuffix("'").strip()
        text = f": {re.escape(words)}" if words else ""
        kind = re.search(rf"^(?:\w+\.)*(\w+){text}\s*$", reason, re.MULTILINE)
        if kind and kind[1] != "InputError":
            words = f"{kind[1]}{': ' if words else ''}{words}"
    words = shortened(words).removesuffix(":")
    if _OUT_OF_MEMORY.search(reason):
        words = f"it ran out of memory ({words}): ask for less at a time, or use a larger machine"
    return shortened(words)
