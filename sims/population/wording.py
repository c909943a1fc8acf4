"""Text of the embedded population: from uniform draws to a prompt and two answers of known value.

An answer's values are drawn first (strength, number of sentences, tone), then a wording that has
them. The two answers of a prompt draw independently, so that length and tone say nothing about
which of them is the daring one.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from murmuration.sims.population import phrases
from murmuration.sims.population.topics import Topic

AXES = ("daring", "detail", "technical")
"""daring: ±0.5, ±0.75 or ±1 (side · strength); detail: (sentences − 3) / 2; technical: 0 or 1."""

MAX_DRAWS = 80
"""No exchange, and whatever is decided about it, consumes more uniform draws than this."""

WORD = re.compile(r"\w+|[^\w\s]")
"""A word or a mark: what the small language model takes for tokens, and readers compare by."""

STRENGTHS = (
    (0.5, phrases.HEDGED_LEADS),
    (0.75, phrases.PLAIN_LEADS),
    (1.0, phrases.FIRM_LEADS),
)
GENERAL_REASONS = {
    # (daring, technical)
    (False, False): phrases.CAUTIOUS_PLAIN_REASONS,
    (False, True): phrases.CAUTIOUS_TECHNICAL_REASONS,
    (True, False): phrases.DARING_PLAIN_REASONS,
    (True, True): phrases.DARING_TECHNICAL_REASONS,
}
_TOPICAL_REASON = 0.6  # probability that a reason is about the topic while unused ones are left
_NEUTRAL_CLOSING = 0.6

T = TypeVar("T")
Axes = tuple[float, float, float]


class Draws:
    """Uniform draws from [0, 1), consumed one after the other."""

    def __init__(self, uniforms: Iterable[float]):
        self._uniforms = iter(uniforms)

    def below(self, probability: float) -> bool:
        """Heads of a coin with this probability."""
        return next(self._uniforms) < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(next(self._uniforms) * len(options))]


@dataclass(frozen=True, slots=True)
class Answer:
    """A text and its true value on each of `AXES`."""

    text: str
    axes: Axes


def exchange(topics: Sequence[Topic], draws: Draws) -> tuple[str, Answer, Answer]:
    """A prompt on one of the topics, its cautious answer and its daring answer."""
    topic = draws.pick(topics)
    return _prompt(topic, draws), _answer(topic, False, draws), _answer(topic, True, draws)


def _prompt(topic: Topic, draws: Draws) -> str:
    situation = draws.pick(topic.prompts)
    for slot, values in phrases.SLOTS.items():
        value = draws.pick(values)  # drawn whether used or not
        situation = situation.replace("{" + slot + "}", value)
    return f"{draws.pick(phrases.GREETINGS)} {situation} {draws.pick(phrases.ASKS)}".strip()


def _answer(topic: Topic, daring: bool, draws: Draws) -> Answer:
    side, other = (topic.daring, topic.cautious) if daring else (topic.cautious, topic.daring)
    strength, leads = draws.pick(STRENGTHS)
    layouts = draws.pick(phrases.LAYOUTS)
    technical = draws.below(0.5)
    used: list[str] = []

    def reason() -> str:
        topical = side.technical_reasons if technical else side.plain_reasons
        fresh = [text for text in topical if text not in used]
        if not (draws.below(_TOPICAL_REASON) and fresh):
            fresh = [text for text in GENERAL_REASONS[daring, technical] if text not in used]
        used.append(draws.pick(fresh))
        return used[-1]

    def lead() -> str:
        text = f"{draws.pick(leads)} {draws.pick(side.actions)}"
        opener = draws.pick(phrases.OPENERS)
        return f"{opener} {text}" if opener else text

    def sentence(kind: str) -> str:
        if kind == "lead":
            return lead() + "."
        if kind == "lead+reason":
            return f"{lead()}{draws.pick(phrases.BECAUSE)} {reason()}."
        if kind == "reason":
            return draws.pick(phrases.REASON_FRAMES).format(reason())
        if kind == "contrast":
            return draws.pick(phrases.CONTRASTS).format(draws.pick(other.actions))
        if kind == "aside":
            return draws.pick(phrases.ASIDES)
        return draws.pick(_closings(daring, draws))

    sentences = [sentence(kind) for kind in draws.pick(layouts)]
    text = " ".join(first[0].upper() + first[1:] for first in sentences)
    axes = (strength if daring else -strength, (len(sentences) - 3) / 2, float(technical))
    return Answer(text, axes)


def _closings(daring: bool, draws: Draws) -> Sequence[str]:
    if draws.below(_NEUTRAL_CLOSING):
        return phrases.NEUTRAL_CLOSINGS
    return phrases.DARING_CLOSINGS if daring else phrases.CAUTIOUS_CLOSINGS
