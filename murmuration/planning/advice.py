"""What suits a crowd of a given size, where nobody has chosen: features and delta.

Which features: measured with ``uls`` on crowd workers' judgements of arguments, accuracy on people
held out, hashing against a small pretrained encoder (MiniLM), 100 to 2,700 people at epsilon 1, 3
and 8 (docs/how-to/choosing.md has the table). About topics that people judged in training, noise
decides, which falls with people times epsilon: where that is below 2,000 the encoder was better by
3 to 6 points, below 8,000 by 2, at about 8,000 they were level, and at 21,600 hashing was better by
one. About topics that nobody had judged the encoder was better by 4 to 6 points at all sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from murmuration.preference.data.rows import InputError
from murmuration.preference.features.languages import NO_LETTERS
from murmuration.preference.features.words import WITHOUT_BLANKS
from murmuration.strategies.settings.run import Settings

#: People times epsilon below which the encoder is much better, and up to which it is better at all,
#: about topics that people judged.
FEW, SOME = 2_000, 8_000
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


@dataclass(frozen=True)
class Features:
    """Advice: the value of ``--features``, and a sentence that says why."""

    name: str
    why: str


def features_for(
    people: int, epsilon: float, scripts: Mapping[str, int] = MappingProxyType({})
) -> Features:
    """Return which features suit so many people (the number to train on) at a budget.

    ``scripts`` says how many texts are in which script, where that is known.
    """
    unread = sum(count for script, count in scripts.items() if script not in _OF_MINILM)
    if 2 * unread > sum(scripts.values()):
        return Features("hashing", "minilm cannot read most texts; a multilingual encoder may")
    product = people * epsilon
    if product < FEW:
        return Features("minilm", "with so few people much better: 3 to 6 points as measured")
    if product < SOME:
        return Features("minilm", "a little better; about topics that nobody has judged, much")
    return Features("hashing", "as good about topics that people judged; minilm for others")


def reading(scripts: Mapping[str, int]) -> list[str]:
    """Return what hashing and minilm make of texts in other scripts than Latin, a line each.

    ``scripts`` says how many texts are in which script; of a few nothing is said.
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


def encoding_minutes(texts: int, words: float) -> float:
    """Return about how long `minilm` reads so many texts of so many words, on one core.

    2.5 ms and 0.3 ms per word for each: fitted to docs/research/benchmarks.md, section Encoders.
    """
    return texts * (2.5 + 0.3 * words) / 60_000.0


def works(features: str) -> bool:
    """Return whether a run could use such features here, now; loads what they need, if it is
    there."""
    from murmuration.preference.features.hashing import feature_map, parse_features
    from murmuration.preference.language.checkpoint import has_minilm

    if features == "minilm" and not has_minilm():
        return False
    try:
        feature_map(parse_features(features))
    except InputError:
        return False
    return True


def delta_for(users: int) -> float:
    """A power of ten, at most 1e-5 and at most a tenth of 1 / users."""
    exponent = _MOST_DELTA
    while _DELTA_SHARE * users > 10**exponent:
        exponent += 1
    return float(f"1e-{exponent}")


def users_to_train_on(people: int) -> int:
    """Return a round figure for the users who are trained on, others being held out."""
    return round_figure(max(1, round((1.0 - Settings.heldout) * people)))


def round_figure(users: int) -> int:
    """A number near enough to plan with that tells less than the exact one.

    Two digits; one below 100; and of those up to ten 1, 2, 5 or 10.
    """
    if users <= 10:
        return min((1, 2, 5, 10), key=lambda step: abs(step - users))
    return round(users, -max(1, len(str(users)) - 2))
