"""Which texts may be a user's id: spellings that look the same must not be several users.

Whoever writes a file could otherwise count one person as many by characters that nobody sees. So an
id is taken only if PRECIS (RFC 8264), by its profile for nicknames (RFC 8266, case preserved),
leaves it as it is: no controls, no invisible or unassigned characters, no marks of direction, no
compatibility forms, no blanks but single spaces inside. The profile lets pass what fonts show as
nothing; `_BLANK` lists it. Latin letters beside Cyrillic or Greek ones are refused, too. Not
caught: upper and lower case, which may be two people, and ids that are of another script as a
whole.
"""

import math
import re
import unicodedata
from functools import lru_cache
from numbers import Integral, Real

import numpy as np
from precis_i18n import get_profile

from murmuration.preference.data.cells import BadRow, found_kind, shortened, text_cell

#: Characters of an id.
MOST_CHARACTERS = 1_000
_ASCII = re.compile(r"[!-~]+(?: [!-~]+)*")
_NICKNAME = get_profile("NicknameCasePreserved")
#: Symbols that are drawn as nothing: braille blank, a note without a head, a filler, an object;
#: blanks and a mirror of hieroglyphs, which are assigned since Unicode 15 (Python 3.12).
_BLANK = frozenset("\u2800\U0001d159\U00016fe4\ufffc\U00013440\U00013441\U00013442")
#: Of these at most one in an id: many of their letters look alike.
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK")


def user_cell(value: object, column: str) -> str:
    """Return a user's id as text, without blanks around it and in composed form (NFC).

    Numbers become ids by their value: 7 and 7.0 are the user `7`.

    Raises:
        BadRow: it is none, or may look like another.
    """
    if isinstance(value, Integral) and not isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, (bool, np.bool_)):
        number = float(value)
        if not math.isfinite(number):
            raise BadRow(f"{column!r} is {number}, which is no user id")
        return str(int(number)) if number.is_integer() else repr(number)
    name = text_cell(value, column).strip()
    if _ASCII.fullmatch(name) and len(name) <= MOST_CHARACTERS:
        return name
    if len(name) > MOST_CHARACTERS:
        raise BadRow(f"{column!r} is longer than {MOST_CHARACTERS:,} characters")
    name = unicodedata.normalize("NFC", name)
    if reason := _refused(name):
        raise BadRow(f"{column!r} is no user id: {reason}; found {found_kind(value)}")
    return name


@lru_cache(maxsize=2**16)
def _refused(name: str) -> str:
    """Return why an id is refused; empty where it is not."""
    for letter in name:
        if not letter.isprintable() or letter in _BLANK:
            return f"it holds U+{ord(letter):04X}, which cannot be seen"
    try:
        plain = _NICKNAME.enforce(name)
    except UnicodeEncodeError as error:
        return f"PRECIS does not allow it ({error.reason})"
    if plain != name:
        return f"it may be taken for {shortened(repr(plain), 40)}"
    letters = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    mixed = [script.capitalize() for script in _SCRIPTS if script in letters]
    return f"it mixes {' and '.join(mixed)} letters" if len(mixed) > 1 else ""
