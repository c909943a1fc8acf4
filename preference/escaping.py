"""Escaping of text from files, models and other machines, before a terminal or a log shows it.

Such text may hold what moves a terminal's cursor, sets its clipboard, hides what stands before it,
or looks like another line of a log. `escaped` is for one line, `visible` for whole texts: what they
do not let pass is written as Python writes it. All that commands print goes through `visible`
(`murmuration.terminal`), and what is logged under our name through `escaped`.
"""

import logging
import re
import unicodedata

_ODD = re.compile(r"[^ -~]")
#: Of what cannot be seen by itself: line ends, tabs, and what joins letters of Persian and emoji.
_IN_TEXTS = frozenset("\n\t\u200c\u200d")


def escaped(text: str) -> str:
    """The text in one line: everything except visible characters and plain spaces is escaped."""
    return _ODD.sub(lambda found: _plain(found[0], False), text)


def visible(text: str) -> str:
    """A text of several lines with control characters, direction marks and lone surrogates escaped.

    Line ends, tabs, blanks of all kinds and joiners stay.
    """
    return _ODD.sub(lambda found: _plain(found[0], True), text)


def _plain(one: str, in_text: bool) -> str:
    if one.isprintable() or (in_text and (one in _IN_TEXTS or unicodedata.category(one) == "Zs")):
        return one
    return one.encode("unicode_escape").decode("ascii")


def get_logger(name: str) -> logging.Logger:
    """The logger of this name; each of its messages is logged in one line."""
    log = logging.getLogger(name)
    log.addFilter(_in_one_line)
    return log


def _in_one_line(record: logging.LogRecord) -> bool:
    """Let a record pass, ``escaped``."""
    record.msg, record.args = escaped(record.getMessage()), None
    return True
