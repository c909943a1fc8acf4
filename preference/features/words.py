"""The words of a text, by the script that each part of it is written in.

Most scripts set words apart by blanks. Chinese, Japanese, Thai, Lao, Khmer and Burmese do not: of
their scripts each letter is a word, with the vowel signs and tones on it, so that pairs of words
are pairs of letters. Hangul has blanks. Which script a letter is of is looked up in a fixed list,
letter by letter: words depend on nothing but the text.

Digits and letters of other scripts beside such letters are words of their own ("2024年" is two).
Marks and emoji are no words beside such a letter: they belong to it ("好！" is one word). Between
blanks they are one, as everywhere ("fine !" is two).
"""

import re

#: What a saved model says of how words were told apart.
DEFINITION = "by-script"

#: Scripts without blanks between words, by Unicode's names.
WITHOUT_BLANKS = frozenset(
    ("Bopomofo", "Cjk", "Hiragana", "Katakana", "Khmer", "Lao", "Myanmar", "Thai")
)
#: Their letters.
_LETTERS = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46"  # Thai
    "\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0edc-\u0edf"  # Lao
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081"
    "\u108e\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a\uaa7e\uaa7f"  # Burmese
    "\u1780-\u17b3\u17d7\u17dc"  # Khmer
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"  # Chinese: repetitions, numerals
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3105-\u312f\u31a0-\u31bf"  # bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
#: Vowel signs, tones and joiners on such letters.
_SIGNS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u1056-\u1059"
    "\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u108f\u109a-\u109d\ua9e5"
    "\uaa7b-\uaa7d\u17b4-\u17d3\u17dd\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"
)
_LETTER = re.compile(f"[{_LETTERS}]")
#: Such a letter, with the marks and signs beside it.
_LETTER_AND_MARKS = re.compile(rf"(?:(?<![^\w\s])[^\w\s]+)?[{_LETTERS}][^\w\s]*")
_UNBROKEN = re.compile(rf"[{_LETTERS}][{_LETTERS}{_SIGNS}]*|[^\W{_LETTERS}]+")

#: Words without marks, as n-grams are made of them: such a letter with its signs, or two letters or
#: more, or digits, of others.
HASHED = rf"[{_LETTERS}][{_SIGNS}]*|[^\W{_LETTERS}]{{2,}}"


def words_of(text: str) -> list[str]:
    """The words of a text with the marks beside them, as lengths count them."""
    if has_no_blanks(text):
        text = _LETTER_AND_MARKS.sub(r" \g<0> ", text)
    return text.split()


def has_no_blanks(text: str) -> bool:
    """True if a text has letters of a script without blanks between words."""
    return not text.isascii() and _LETTER.search(text) is not None


def unbroken(text: str) -> list[str]:
    """The longest runs of letters and digits of one kind of script: words where blanks separate
    them, phrases where none do.
    """
    return _UNBROKEN.findall(text)
