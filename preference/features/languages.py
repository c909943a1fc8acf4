"""The language of a text, as far as letters and frequent words show it.

Both lists are short, public and fixed: for texts in Latin letters some languages are recognised by
frequent words, for others the script alone is reported.
"""

import unicodedata
from collections import Counter
from functools import cache

#: What is looked at of a text.
CHARACTERS = 400
#: Frequent words that are no words, or rare ones, of the others.
_WORDS = {
    "English": "the and is you that it for with are this have not to of my your should what can",
    "German": "der die und ist das nicht ich ein zu mit den auf",
    "French": "le les et est des une pour que dans pas vous du",
    "Spanish": "el los y es las una por que para con del se",
    "Portuguese": "o os e é uma para não com que são da em",
    "Italian": "il di che è la un per non con sono della gli",
    "Dutch": "de het en een van niet dat op te zijn voor met",
}
#: One such word alone may be a name, or a word of another language.
_LEAST_HITS = 2
_OF_LANGUAGE = {language: frozenset(words.split()) for language, words in _WORDS.items()}

LATIN, NO_LETTERS, UNCLEAR = "Latin", "no letters", "unclear"
#: Languages that are told apart, of texts in Latin letters.
LANGUAGES = (*_WORDS, UNCLEAR)


def script_of(text: str) -> str:
    """The script of most letters, by its Unicode name: ``Latin``, ``Cyrillic``, …"""
    names = Counter(_script(letter) for letter in text[:CHARACTERS] if letter.isalpha())
    return names.most_common(1)[0][0] if names else NO_LETTERS


def language_of(text: str) -> str:
    """The one of `LANGUAGES` that a text in Latin letters is in."""
    words = [word.strip(".,;:!?\"'()").lower() for word in text[:CHARACTERS].split()]
    hits = {
        language: sum(word in known for word in words) for language, known in _OF_LANGUAGE.items()
    }
    first, second = sorted(hits.values())[-1:-3:-1]
    if first == second or first < _LEAST_HITS:
        return UNCLEAR
    return max(hits, key=lambda language: hits[language])


@cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split()[0].capitalize()
