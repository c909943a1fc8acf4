r"""User ids as text, and reasons to refuse one.

Spellings that look the same must not be several users. The author of a file could otherwise count
one person as many by invisible characters. So an id is taken only if PRECIS (RFC 8264), by its
profile for nicknames (RFC 8266, case preserved), leaves it as it is: no controls, no invisible or
unassigned characters, no marks of direction, no compatibility forms, no blanks but single spaces
inside. The profile lets pass what fonts show as nothing; `_BLANK` lists it. Latin letters beside
Cyrillic or Greek ones are refused, too, and so is what programs write in the place of an id, or
make of one: `nan`, `True`, 1.23E+09, a date, a text in quotes. Not caught: upper and lower case,
which may be two people, and ids that are of another script as a whole.
"""

import math
import re
import unicodedata
from functools import lru_cache
from numbers import Integral, Real

import numpy as np
from precis_i18n import get_profile

from murmuration.preference.data.cells import found_kind, text_cell
from murmuration.preference.data.errors import BadRow

#: Characters of an id.
MOST_CHARACTERS = 1_000
#: A whole number, perhaps one that stood among others that were none.
_WHOLE = re.compile(r"(-?[0-9]+)(?:\.0*)?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
#: What programs write where an id was, or was none, by what it is.
_NO_IDS = {
    "nothing, as programs write it": (
        "nan|NaN|NAN|NaT|NA|N/A|n/a|#N/A|<NA>|None|none|null|NULL|nil|undefined|[+-]?inf"
    ),
    "a truth value": "true|false|True|False|TRUE|FALSE",
    "a number by powers of ten, which may have lost digits": (
        "[+-]?[0-9]+(?:[.,][0-9]*)?[eE][+-][0-9]+"
    ),
    "a date": (
        "[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9:.Z+-]+)?"
        "|[0-9]{1,2}/[0-9]{1,2}/[0-9]+"
        rf"|[0-9]{{1,2}}-(?:{_MONTH})(?:-[0-9]+)?|(?:{_MONTH})-[0-9]{{2}}"
    ),
    "a text in quotes, or a list": (
        r"""=?(?:[\w.]*\()?b?(['"]).*\1,?\)?|'[0-9]+|[\[({]['"0-9].*[\])}]"""
    ),
}
_NO_ID = {reason: re.compile(pattern) for reason, pattern in _NO_IDS.items()}
_ASCII = re.compile(r"[!-~]+(?: [!-~]+)*")
_NICKNAME = get_profile("NicknameCasePreserved")
#: Symbols that are drawn as nothing: braille blank, a note without a head, a filler, an object;
#: blanks and a mirror of hieroglyphs, which are assigned since Unicode 15 (Python 3.12).
_BLANK = frozenset("\u2800\U0001d159\U00016fe4\ufffc\U00013440\U00013441\U00013442")
#: Of these at most one in an id: many of their letters look alike.
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK")


def user_cell(value: object, column: str) -> str:
    """A user's id as text, without blanks around it and in composed form (NFC).

    Numbers become ids by their value, also those that text spells so: 7, 7.0, "7.0" and "007" are
    the user `7`; a UUID is one in small letters. Of a number with more digits than a float holds,
    the last are lost: it names nobody.

    Raises:
        BadRow: it is none, may look like another, or is what a program made of one.
    """
    if isinstance(value, str):
        return _id_of_text(value, column)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise BadRow(f"{column!r} must be text, found {found_kind(value)}")
    if isinstance(value, Integral):
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        raise BadRow(f"{column!r} is {number}, which is no user id")
    if abs(number) >= 2.0**53:
        raise BadRow(
            f"{column!r} is {number:g}, a number so large that it has lost its last digits: "
            "write ids as text"
        )
    return str(int(number)) if number.is_integer() else repr(number)


@lru_cache(maxsize=2**16)
def _id_of_text(value: str, column: str) -> str:
    name = text_cell(value, column).strip()
    if len(name) > MOST_CHARACTERS:
        raise BadRow(f"{column!r} is longer than {MOST_CHARACTERS:,} characters")
    if whole := _WHOLE.fullmatch(name):
        return user_cell(float(name) if "." in name[17:] else int(whole[1]), column)
    for reason, pattern in _NO_ID.items():
        if pattern.fullmatch(name):
            raise BadRow(f"{column!r} is no user id: it is {reason}; write ids as plain text")
    if _ASCII.fullmatch(name):
        return name.lower() if _UUID.fullmatch(name) else name
    name = unicodedata.normalize("NFC", name)
    if reason := _refused(name):
        raise BadRow(f"{column!r} is no user id: {reason}; found {found_kind(value)}")
    return name


def _refused(name: str) -> str:
    """The reason why an id is refused; empty if it is not."""
    for letter in name:
        if not letter.isprintable() or letter in _BLANK:
            return f"it holds U+{ord(letter):04X}, which cannot be seen"
    try:
        plain = _NICKNAME.enforce(name)
    except UnicodeEncodeError as error:
        return f"PRECIS does not allow it ({error.reason})"
    if plain != name:
        return "it is written as another may be, and would be taken for that one"
    letters = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    mixed = [script.capitalize() for script in _SCRIPTS if script in letters]
    return f"it mixes {' and '.join(mixed)} letters" if len(mixed) > 1 else ""
