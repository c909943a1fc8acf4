"""Advice on features and a start for a number of users, and accuracies measured elsewhere.

Which features: on crowd workers' judgements of arguments nothing was above SmolLM2's states by
user, with 1,056 and 2,616 users; it was above hashing at epsilon 1, and above both over 16 topics
that were left out in turn (docs/research/real-people.md). Where they take too long: MiniLM against
hashing was measured with 100 to 2,700 users (docs/research/strategies.md). Of all judgements,
on topics that were trained on, it was better by 2 points or more where users times epsilon is below
8,000, and hashing was level or better above; on the 16 others, with 2,600 users at epsilon 3, it
was better by 4.3 points by user.

Accuracy: measured on two populations, with ``uls``, its defaults and hashed words. The file beside
this one has the figures and the commands that made them. Other judgements are harder or easier, so
this is no forecast.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from murmuration.preference.features.languages import NO_LETTERS
from murmuration.preference.features.words import WITHOUT_BLANKS
from murmuration.strategies.settings.run import Settings

#: Users times epsilon up to which minilm is better than hashing on topics that were trained on.
ENCODER_BELOW = 8_000
#: Users times epsilon below which a start often pays (``reproduce few-people``: most up to 100).
START_BELOW = 150
#: Delta is at most this part of 1 / users, and at most the default.
_DELTA_SHARE, _MOST_DELTA = 10, 5
#: Scripts, by Unicode's names, of which the vocabulary of minilm (bert-base-uncased) has the
#: letters. Of Chinese it has 244 characters, of Thai 15 letters, of kana half; a word with another
#: one is lost whole.
_OF_MINILM = frozenset(
    ("Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Greek", "Hangul", "Hebrew",
     "Latin", NO_LETTERS)
)  # fmt: skip
#: Scripts with vowel signs, which hashing takes for the end of a word.
_CUT_BY_HASHING = frozenset(
    ("Bengali", "Devanagari", "Gujarati", "Gurmukhi", "Kannada", "Malayalam", "Oriya", "Sinhala",
     "Tamil", "Telugu", "Tibetan")
)  # fmt: skip
_RARE = 0.05  # of texts, that are in a script: it is not named

#: What a number for each response on a public list brings (docs/research/real-people.md).
STRENGTHS = (
    "--features strengths gives each its own number; on arguments that many had judged it was "
    "level with hashing by user at epsilon 3 and 8, and below minilm at 1 and on those that nobody "
    "had judged"
)

#: How long they take (docs/research/speed.md).
TAKES = {
    "smollm2": "smollm2 first reads every response, a few per second and core; later runs find "
    "what it read",
    "minilm": "minilm first reads every response: about 17 min on one core for 50,000 of 60 words; "
    "later runs find what it read",
}


@dataclass(frozen=True)
class Features:
    """Advice: values of ``--features``, the best first, then what is faster; and why."""

    names: tuple[str, ...]
    why: str


def features_for(
    people: int, epsilon: float, scripts: Mapping[str, int] = MappingProxyType({})
) -> Features:
    """The features that suit a number of users (to train on) at a budget.

    ``scripts`` is the number of texts by script, if known.
    """
    unread = sum(count for script, count in scripts.items() if script not in _OF_MINILM)
    if 2 * unread > sum(scripts.values()):
        return Features(("hashing",), "others cannot read most texts; a multilingual encoder may")
    if people * epsilon < ENCODER_BELOW:
        return Features(("smollm2", "minilm", "hashing"), "best as measured; minilm is faster")
    return Features(
        ("smollm2", "hashing"), "best as measured; hashing is faster, for topics that users judged"
    )


def start_for(users: int, epsilon: float) -> str:
    """Where to begin with so few users (to train on), in a sentence; empty where they are more."""
    if users * epsilon >= START_BELOW:
        return ""
    return (
        f"With {users:,} users at ε = {epsilon:g}, --start length, or --start with the folder of a "
        "public reward, often pays and hardly ever costs accuracy"
    )


def reading(scripts: Mapping[str, int]) -> list[str]:
    """Notes on how hashing and minilm read texts in scripts other than Latin, one per line.

    ``scripts`` is the number of texts by script; rare ones have no note.
    """
    often = {script for script, count in scripts.items() if count > _RARE * sum(scripts.values())}
    encoder = "a multilingual encoder that was made for it, by --features PATH-OR-NAME"
    lines = {
        "hashing takes each letter of {} for a word": often & WITHOUT_BLANKS,
        f"hashing cuts words at the vowel signs of {{}}: take {encoder}": often & _CUT_BY_HASHING,
        f"minilm has few letters of {{}}, and loses words: take hashing, or {encoder}": often
        - _OF_MINILM,
        "of texts with {} hashing reads numbers and length alone": often & {NO_LETTERS},
    }
    return [line.format(", ".join(sorted(named))) for line, named in lines.items() if named]


def delta_for(users: int) -> float:
    """A power of ten, at most 1e-5 and at most a tenth of 1 / users."""
    exponent = _MOST_DELTA
    while _DELTA_SHARE * users > 10**exponent:
        exponent += 1
    return float(f"1e-{exponent}")


def users_to_train_on(people: float, heldout: float = Settings.heldout) -> int:
    """The number of users to train on when a share is held out, rounded: good enough to plan with,
    and revealing less than the exact one.

    Two digits; below 100 one digit; up to ten one of 1, 2, 5 and 10.
    """
    users = max(1, round((1.0 - heldout) * people))
    if users <= 10:
        return min((1, 2, 5, 10), key=lambda step: abs(step - users))
    return round(users, -max(1, len(str(users)) - 2))


@cache
def crowds() -> Sequence[Mapping[str, Any]]:
    """The measurements by population, as the file has them."""
    file = Path(__file__).with_name("accuracy_curves.json")
    return json.loads(file.read_text(encoding="utf-8"))["crowds"]


def accuracies() -> list[dict[str, str]]:
    """``accuracy_of`` for each number of users that was measured."""
    return [accuracy_of(size) for size in sorted({row["users"] for row in crowds()[0]["rows"]})]


def accuracy_of(users: int) -> dict[str, str]:
    """In words: the nearest numbers of users that were measured and, by epsilon, the lowest and the
    highest accuracy of their populations.
    """
    sizes, by_epsilon = set[int](), dict[str, set[str]]()
    for crowd in crowds():
        near = min((row["users"] for row in crowd["rows"]), key=lambda size: abs(size - users))
        sizes.add(near)
        for row in crowd["rows"]:
            if row["users"] == near and row["epsilon"] is not None:
                share = f"{100 * row['accuracy_mean']:.0f}"
                by_epsilon.setdefault(f"{row['epsilon']:g}", set()).add(share)
    shown = {"users": "–".join(f"{size:,}" for size in sorted(sizes))}
    return shown | {each: "–".join(sorted(shares)) + " %" for each, shares in by_epsilon.items()}


def caveat() -> str:
    """The caveat to print with ``accuracies``."""
    longer = " and ".join(f"{100 * crowd['length_baseline']:.0f} %" for crowd in crowds())
    return (
        "Accuracy on others measured on two other crowds, as means of three or five seeds "
        "(murmuration.planning.advice): uls with hashed words, 200 rounds, δ = 1e-5. Guessing is "
        f"right in 50 %, the longer response in {longer}. Yours will differ."
    )
