"""Read the true axes from an answer's words, for text that the population did not generate.

`wording` draws values and finds words for them; this goes the way back, by the same phrases, and
learns nothing. Case and spaces do not count, so an answer is read in the same way as it was written
and as the small language model spells it, in lower-case words and marks with spaces between.

An answer is read only if every sentence of it is one that the population says, and all agree: one
piece of advice, on what the prompt asks, with reasons that speak for it and are of one tone; no
contrast rejects that very action, and nothing is said twice. The order of sentences is free, and a
contrast may be with another action of the same side: that is clear, if nothing the population says.
Anything else has no truth here, and why is told: to be counted, never to be guessed.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import product

from murmuration.sims.population import phrases
from murmuration.sims.population.topics import LIVING_TOPICS, MONEY_TOPICS, UNSEEN_TOPICS, Topic
from murmuration.sims.population.wording import GENERAL_REASONS, STRENGTHS, WORD, Axes

WHY_NOT = {
    "breaks off": "it is empty, or its last sentence has no end",
    "unknown sentence": "the population never says one of its sentences",
    "too long": "it has more sentences than any answer of the population",
    "no advice": "no sentence advises anything",
    "advice twice": "more than one sentence advises something",
    "another topic": "an action or a reason is of another topic than the prompt",
    "no reason": "it gives no reason",
    "two tones": "some of its reasons are plain and some technical",
    "two sides": "a reason or a closing is the other side's",
    "contradiction": "a contrast rejects what is advised",
    "repeats itself": "a sentence or a reason stands there twice",
}
"""Why an answer cannot be read, and what that means. Of several the first is told."""

_TOPICS = (*MONEY_TOPICS, *LIVING_TOPICS, *UNSEEN_TOPICS)
_ANY_TOPIC = ""
_MOST_SENTENCES = max(len(layout) for layouts in phrases.LAYOUTS for layout in layouts)


@dataclass(frozen=True, slots=True)
class Reading:
    """The axes of an answer (`wording.AXES`), or None and why not, of `WHY_NOT`."""

    axes: Axes | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class _Claim:
    """The content of a phrase: its kind (advice, contrast, reason or closing), topic and side; the
    strength of an advice, and True for a technical reason."""

    kind: str
    topic: str
    daring: bool
    phrase: str
    _: KW_ONLY
    technical: bool = False
    strength: float = 0.0


def topic_of(prompt: str) -> Topic | None:
    """The topic of a prompt; None if the population has no such prompt."""
    result = _prompts().fullmatch(_spelt(prompt))
    return _TOPICS[int(str(result.lastgroup).removeprefix("topic"))] if result else None


def read(topic: Topic, answer: str) -> Reading:
    """Read an answer to a prompt on this topic."""
    *sentences, rest = [part.strip() for part in _spelt(answer).split(".")]
    if rest or not sentences:
        return Reading(None, "breaks off")
    claims: list[_Claim] = []
    for sentence in sentences:
        if (said := _said(sentence)) is None:
            return Reading(None, "unknown sentence")
        claims += said
    advice = [claim for claim in claims if claim.kind == "advice"]
    reasons = [claim for claim in claims if claim.kind == "reason"]
    rejected = {claim.phrase for claim in claims if claim.kind == "contrast"}
    wrong = {
        "too long": len(sentences) > _MOST_SENTENCES,
        "no advice": not advice,
        "advice twice": len(advice) > 1,
        "another topic": any(claim.topic not in (_ANY_TOPIC, topic.name) for claim in claims),
        "no reason": not reasons,
        "two tones": len({reason.technical for reason in reasons}) > 1,
        "two sides": len({claim.daring for claim in claims if claim.kind != "contrast"}) > 1,
        "contradiction": any(claim.phrase in rejected for claim in advice),
        "repeats itself": len({*sentences}) < len(sentences) or len({*reasons}) < len(reasons),
    }
    if why_not := next((why for why, holds in wrong.items() if holds), ""):
        return Reading(None, why_not)
    daring = advice[0].strength if advice[0].daring else -advice[0].strength
    return Reading((daring, (len(sentences) - 3) / 2, float(reasons[0].technical)))


def _said(sentence: str) -> tuple[_Claim, ...] | None:
    """The claims of a sentence without its full stop; None if the population has no such
    sentence."""
    if (said := _sentences().get(sentence)) is not None:
        return said
    if not (result := _advice().fullmatch(sentence)):
        return None
    action = _actions()[result["action"]]
    strength = next(s for s, leads in STRENGTHS if result["lead"] in map(_spelt, leads))
    advice = _Claim("advice", action.topic, action.daring, action.phrase, strength=strength)
    return (advice, _reasons()[result["reason"]]) if result["reason"] else (advice,)


@cache
def _actions() -> dict[str, _Claim]:
    """All actions, as a contrast names them."""
    claims = [
        _Claim("contrast", topic.name, daring, _spelt(action))
        for topic in _TOPICS
        for daring, side in ((False, topic.cautious), (True, topic.daring))
        for action in side.actions
    ]
    return {claim.phrase: claim for claim in claims}


@cache
def _reasons() -> dict[str, _Claim]:
    def given() -> Iterator[tuple[str, bool, bool, Iterable[str]]]:
        for (daring, technical), texts in GENERAL_REASONS.items():
            yield _ANY_TOPIC, daring, technical, texts
        for topic in _TOPICS:
            for daring, side in ((False, topic.cautious), (True, topic.daring)):
                yield topic.name, daring, False, side.plain_reasons
                yield topic.name, daring, True, side.technical_reasons

    claims = [
        _Claim("reason", name, daring, _spelt(text), technical=technical)
        for name, daring, technical, texts in given()
        for text in texts
    ]
    return {claim.phrase: claim for claim in claims}


@cache
def _sentences() -> dict[str, tuple[_Claim, ...]]:
    """All sentences but those that advise, without their full stops."""
    result: dict[str, tuple[_Claim, ...]] = {}
    for frames, claims in (
        (phrases.REASON_FRAMES, _reasons()),
        (phrases.CONTRASTS, _actions()),
    ):
        for frame, claim in product(frames, claims.values()):
            result[_ended(frame.format(claim.phrase))] = (claim,)
    for text in (*phrases.ASIDES, *phrases.NEUTRAL_CLOSINGS):
        result[_ended(text)] = ()
    for daring, closings in ((False, phrases.CAUTIOUS_CLOSINGS), (True, phrases.DARING_CLOSINGS)):
        for text in closings:
            result[_ended(text)] = (_Claim("closing", _ANY_TOPIC, daring, _ended(text)),)
    return result


@cache
def _advice() -> re.Pattern[str]:
    """A sentence that advises: perhaps an opener, a lead, an action, perhaps a reason."""
    openers = [opener for opener in phrases.OPENERS if opener]
    leads = [lead for _, leads in STRENGTHS for lead in leads]
    return re.compile(
        f"(?:{_any(openers)} )?(?P<lead>{_any(leads)}) (?P<action>{_any(_actions())})"
        f"(?: {_any(phrases.BECAUSE)} (?P<reason>{_any(_reasons())}))?"
    )


@cache
def _prompts() -> re.Pattern[str]:
    """All prompts, with the topic's number as the name of the group that is found."""

    def situation(prompt: str) -> str:
        parts = re.split(r"\{(\w+)\}", prompt)  # every second one names a slot
        texts = [
            _any(phrases.SLOTS[part]) if i % 2 else _quoted(part) for i, part in enumerate(parts)
        ]
        return " ".join(text for text in texts if text)

    topics = (
        f"(?P<topic{number}>{'|'.join(map(situation, topic.prompts))})"
        for number, topic in enumerate(_TOPICS)
    )
    greetings = [greeting for greeting in phrases.GREETINGS if greeting]
    return re.compile(f"(?:{_any(greetings)} )?(?:{'|'.join(topics)}) {_any(phrases.ASKS)}")


def _any(texts: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted({_quoted(text) for text in texts}))})"


def _quoted(text: str) -> str:
    return re.escape(_spelt(text))


def _ended(text: str) -> str:
    return _spelt(text).removesuffix(" .")


def _spelt(text: str) -> str:
    """Words and marks in lower case, with single spaces between."""
    return " ".join(WORD.findall(text.lower()))
