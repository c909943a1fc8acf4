"""The questions of a survey, and how a judgement answers them.

Questions and their answers are public lists, fixed before any data are seen. To most questions each
judgement gives one answer, and a user's answer is their own distribution over the list: the share
of their judgements with each answer. So all users with judgements have the same weight, whatever
their number of rows. A question that compares users, as how often two agree on the same pair, is
none of these: one person who judges everything would move all users' parts of it.

A user's vector has V numbers: 1 if the user has judgements; then for each question one number per
answer, not negative and with sum 1. So its ℓ2 norm is at most √(1 + questions), attained by a user
who gives each question the same answer in every judgement; the vector of a user without judgements
is zero.

Legend: J judgements, Q questions that judgements answer, K answers, V coordinates of a vector.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.public_names import checked_names
from murmuration.preference.features.languages import (
    LANGUAGES,
    LATIN,
    NO_LETTERS,
    UNCLEAR,
    language_of,
    script_of,
)
from murmuration.preference.features.words import has_no_blanks, unbroken, words_of

KIND = "survey"
#: The question about users, and not about their judgements.
PER_USER = "judgements_per_user"
#: Largest numbers of bins, after what lies below the first; the last bin has none.
JUDGEMENTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
_WORDS = (-1, 0, 8, 16, 32, 64, 128, 256, 512)
#: Scripts that are told apart, by Unicode's names.
_SCRIPTS = (
    "Arabic", "Bengali", "Cjk", "Cyrillic", "Devanagari", "Greek", "Hangul", "Hebrew", "Hiragana",
    "Katakana", "Tamil", "Thai",
)  # fmt: skip
_LATIN_UNCLEAR, _OTHER_LETTERS = "Latin letters, unclear", "other letters"
_NO_TOPIC = "none of these"
#: Of a text, that are looked at for its topic.
_CHARACTERS = 4_000


@dataclass(frozen=True)
class Question:
    """A question, and the answers that it can have.

    Attributes:
        name: in files.
        text: for readers.
        answers: a public list.
    """

    name: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Questionnaire:
    """All questions of a survey.

    Attributes:
        topics: a public list, of lines ``name: word, word``; a name alone is its own words. A
            judgement is about the topic of which most words stand in its texts, of several the
            first; of scripts without blanks a word may stand anywhere. Empty: no question about
            topics.

    Raises:
        InputError: a topic has no name or no words, or two have one name.
    """

    topics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", tuple(self.topics))
        checked_names("topic", (str(line).partition(":")[0] for line in self.topics))
        for line, words in zip(self.topics, self._topic_words, strict=True):
            if not words:
                raise InputError(f"the topic {line!r} has no words by which to know it")

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions, in the order of a vector."""
        about_judgements = (
            Question("ties", "Ties", ("one was preferred", "a tie")),
            Question(
                "longer",
                "Was the longest response preferred?",
                ("the longest", "another", "no difference: a tie, or equally long"),
            ),
            Question("response_words", "Words of a response, on average", _bins(_WORDS)),
            Question("prompt_words", "Words of the prompt", _bins(_WORDS)),
            Question("language", "Language or script", _LANGUAGE_ANSWERS),
        )
        per_user = Question(PER_USER, "Judgements per user", _bins(JUDGEMENTS))
        names = tuple(line.partition(":")[0].strip() for line in self.topics)
        topic = Question("topic", "Topic", (*names, _NO_TOPIC))
        return (per_user, *about_judgements, *([topic] if names else []))

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """The slice of each question's answers in a vector; index 0 counts users with
        judgements.
        """
        ends = np.cumsum([1, *(len(question.answers) for question in self.questions)]).tolist()
        return tuple(slice(first, end) for first, end in pairwise(ends))

    @property
    def dimension(self) -> int:
        """V."""
        return self.places[-1].stop

    @property
    def longest(self) -> float:
        """The ℓ2 length of the longest vector."""
        return math.sqrt(1 + len(self.questions))

    def to_config(self) -> dict:
        """The config from which nodes make an equal one."""
        return {"kind": KIND, "topics": [*self.topics]}

    def per_user(self, judgements: int) -> int:
        """The index in a vector for a user with this number of judgements, not 0."""
        return self.places[0].start + _bin(JUDGEMENTS, judgements)

    def answers(self, judgements: Judgements) -> np.ndarray:
        """The index in a vector of each judgement's answer to each question, (J, Q) int32.

        Each row is a function of that judgement alone.
        """
        rows = zip(judgements.prompts, judgements.responses, judgements.y_R < 1.0, strict=True)
        result_JQ = np.array(
            [[*self._answers_of(prompt, shown, bool(tied))] for prompt, shown, tied in rows],
            dtype=np.int32,
        ).reshape(len(judgements), len(self.questions) - 1)
        return result_JQ + np.array([place.start for place in self.places[1:]], dtype=np.int32)

    def _answers_of(self, prompt: str, shown: Sequence[str], tied: bool) -> Iterator[int]:
        words = [len(words_of(response)) for response in shown]
        yield int(tied)
        alike = tied or (words[0] == max(words) and words.count(words[0]) > 1)
        yield 2 if alike else int(words[0] < max(words))
        yield _bin(_WORDS, sum(words) / len(words))
        yield _bin(_WORDS, len(words_of(prompt)))
        yield _LANGUAGE_ANSWERS.index(_written_in(" ".join((prompt, *shown))))
        if self.topics:
            yield self._topic_of((prompt, *shown))

    def _topic_of(self, texts: Sequence[str]) -> int:
        read = "\n".join(text[:_CHARACTERS].casefold() for text in texts)
        words = {*unbroken(read)}
        hits = [
            sum(word in read if has_no_blanks(word) else word in words for word in known)
            for known in self._topic_words
        ]
        return hits.index(max(hits)) if any(hits) else len(hits)

    @cached_property
    def _topic_words(self) -> tuple[frozenset[str], ...]:
        parts = (str(line).casefold().partition(":") for line in self.topics)
        return tuple(frozenset(unbroken(words if colon else name)) for name, colon, words in parts)


_LANGUAGE_ANSWERS = (
    *(language for language in LANGUAGES if language != UNCLEAR),
    _LATIN_UNCLEAR,
    *_SCRIPTS,
    _OTHER_LETTERS,
    NO_LETTERS,
)


def _written_in(text: str) -> str:
    """The answer for a text's language or script, by its first characters."""
    script = script_of(text)
    if script == LATIN:
        language = language_of(text)
        return _LATIN_UNCLEAR if language == UNCLEAR else language
    return script if script in _LANGUAGE_ANSWERS else _OTHER_LETTERS


def _bin(tops: Sequence[int], number: float) -> int:
    """The bin of a number above ``tops[0]``."""
    return bisect_left(tops, number) - 1


def _bins(tops: Sequence[int]) -> tuple[str, ...]:
    return (
        *(f"{top}" if top == below + 1 else f"{below + 1}–{top}" for below, top in pairwise(tops)),
        f"{tops[-1] + 1} or more",
    )
