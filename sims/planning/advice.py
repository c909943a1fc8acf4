"""What suits a crowd of a given size, where nobody has chosen: features and delta.

Which features: measured on judgements of people who are not in this repository, accuracy on people
held out, hashing against a small pretrained encoder (MiniLM), with ``uls``. The encoder was better
with 210 people (.53 to .66 at epsilon 1, .60 to .71 at epsilon 3), a little with 705 people (.72 to
.74 at epsilon 1), and with 2,700 people only about topics that nobody had judged (.67 to .70 at
epsilon 3); about topics seen in training there was no difference. Noise falls with people times
epsilon, so the rule is about their product.
"""

from dataclasses import dataclass

from murmuration.preference.data.rows import InputError

#: People times epsilon below which the encoder is better, and up to which it is about new topics.
FEW, SOME = 1_000, 10_000
#: Delta is at most this part of 1 / users, and at most the default.
_DELTA_SHARE, _MOST_DELTA = 10, 5


@dataclass(frozen=True)
class Features:
    """Advice: the value of ``--features``, and a sentence that says why."""

    name: str
    why: str


def features_for(people: int, epsilon: float) -> Features:
    """Which features suit so many people (the number to train on) at a budget."""
    product = people * epsilon
    if product < FEW:
        return Features("minilm", "with so few people, hashed words learn much less")
    if product < SOME:
        return Features("minilm", "a little better, more so on topics that nobody judged")
    return Features("hashing", "as good as minilm, faster, and needs no download")


def works(features: str) -> bool:
    """Whether a run could use such features here, now; loads what they need, if it is there."""
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


def round_figure(users: int) -> int:
    """A number to two digits: near enough to plan with, and it tells less than the exact one."""
    digits = max(0, len(str(users)) - 2)
    return max(1, round(users, -digits))
