"""Rows with the n-th judgement of a user, as each format's export has them.

By it a format is in the tests of what others' rows can change: of records one with that user's
answer alone, whose texts depend on n and on no user; of public texts theirs, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from zlib import crc32

Cells = Mapping[str, object]


@dataclass(frozen=True)
class Judged:
    """Which of two responses somebody prefers."""

    user: str
    prompt: str
    first: str
    second: str
    first_wins: bool
    number: int = 1

    @property
    def replies(self) -> tuple[str, str]:
        return self.first, self.second

    def says(self, first: Any, second: Any) -> Any:
        """Return what an export has where the first response is preferred, or the second."""
        return first if self.first_wins else second


def chat(prompt: str, *replies: str) -> list[Cells]:
    """Return the messages of a conversation, the user's first."""
    roles = ("user", "assistant") * (len(replies) + 1)
    texts = (prompt, *replies)
    return [{"role": r, "content": text} for r, text in zip(roles, texts, strict=False)]


def arena(judged: Judged) -> Sequence[Cells]:
    first, second = (chat(judged.prompt, text) for text in judged.replies)
    row = {"judge": judged.user, "model_a": "m1", "model_b": "m2"}
    row |= {"winner": judged.says("model_a", "model_b")}
    return [{**row, "conversation_a": first, "conversation_b": second}]


def arena_models(judged: Judged) -> Sequence[Cells]:
    row = {"judge": judged.user, "model_a": judged.first, "model_b": judged.second}
    return [row | {"winner": judged.says("model_a", "model_b")}]


def argilla(judged: Judged) -> Sequence[Cells]:
    fields = {"prompt": judged.prompt, "response_a": judged.first, "response_b": judged.second}
    answer = {"user_id": judged.user, "value": judged.says("response_a", "response_b")}
    return [{"fields": fields, "responses": {"better": [answer]}}]


def community_alignment(judged: Judged) -> Sequence[Cells]:
    row = {"annotator_id": judged.user, "prompt": judged.prompt}
    texts = zip("abcd", judged.replies * 2, strict=True)
    row |= {f"response_{letter}": f"{text} ({letter})" for letter, text in texts}
    return [row | {"preferred_response": judged.says("response_a", "response_d")}]


def helpsteer(judged: Judged) -> Sequence[Cells]:
    """A column of users is there, which the publishers do not have."""
    row = {"prompt": judged.prompt, "response_1": judged.first, "response_2": judged.second}
    return [{"annotator": judged.user, **row, "preference_strength": judged.says(-2, 3)}]


def label_studio(judged: Judged) -> Sequence[Cells]:
    result = [{"type": "pairwise", "value": {"selected": judged.says("left", "right")}}]
    data = {"prompt": judged.prompt, "answer1": judged.first, "answer2": judged.second}
    annotation = {"completed_by": judged.user, "result": result}
    return [{"id": judged.number, "data": data, "annotations": [annotation]}]


def likert(judged: Judged) -> Sequence[Cells]:
    row = {"user_id": judged.user, "prompt": judged.prompt}
    rated = zip(judged.replies, judged.says((5, 2), (1, 4)), strict=True)
    return [{**row, "response": text, "rating": rating} for text, rating in rated]


def multipref(judged: Judged) -> Sequence[Cells]:
    best = judged.says("A-is-slightly-better", "B-is-clearly-better")
    entry = {"evaluator": judged.user, "overall_pref": best}
    row = {"text": judged.prompt, "completion_a": judged.first, "completion_b": judged.second}
    return [row | {"normal_worker_annotations": [entry]}]


def oasst(judged: Judged) -> Sequence[Cells]:
    own = f"{judged.user} {judged.number}"
    question = {"message_id": own, "parent_id": None, "user_id": judged.user}
    question |= {"role": "prompter", "text": judged.prompt, "rank": None}
    reply = {"parent_id": own, "role": "assistant", "user_id": "another"}
    ranked = zip(judged.replies, judged.says((0, 1), (1, 0)), strict=True)
    return [question] + [
        {**reply, "message_id": f"{own} {rank}", "text": text, "rank": rank}
        for text, rank in ranked
    ]


def openwebui(judged: Judged) -> Sequence[Cells]:
    messages = {"q": {"id": "q", "parentId": None, "role": "user", "content": judged.prompt}}
    for place, text in zip("ab", judged.replies, strict=True):
        reply = {"parentId": "q", "role": "assistant", "content": text}
        messages[place] = {"id": place, **reply}
    snapshot = {"chat": {"chat": {"history": {"messages": messages}}}}
    row = {"user_id": judged.user, "snapshot": snapshot}
    return [
        {**row, "data": {"rating": rating}, "meta": {"message_id": place}}
        for place, rating in zip(judged.says("ab", "ba"), (1, -1), strict=True)
    ]


def polis(judged: Judged) -> Sequence[Cells]:
    places = (2 * judged.number, 2 * judged.number + 1)
    texts = zip(places, judged.replies, strict=True)
    row = {"voter-id": judged.user, "timestamp": 1_000 + judged.number}
    votes = zip(places, judged.says((1, -1), (-1, 1)), strict=True)
    return [{"comment-id": place, "comment-body": text} for place, text in texts] + [
        {"comment-id": place, **row, "vote": vote} for place, vote in votes
    ]


def prism(judged: Judged) -> Sequence[Cells]:
    best = judged.says(*judged.replies)
    history: list[object] = [{"turn": 0, "role": "user", "content": judged.prompt}]
    for text in judged.replies:
        reply = {"turn": 0, "role": "model", "content": text, "if_chosen": text == best}
        history.append({**reply, "score": 90 if text == best else 10})
    return [{"user_id": judged.user, "conversation_history": history}]


def tldr(judged: Judged) -> Sequence[Cells]:
    summaries = [{"text": text} for text in judged.replies]
    row = {"info": {"post": judged.prompt}, "summaries": summaries}
    return [{"worker": judged.user, **row, "choice": judged.says(0, 1)}]


#: By the names of formats.
ROWS_OF: dict[str, Callable[[Judged], Sequence[Cells]]] = {
    "arena": arena,
    "arena-models": arena_models,
    "argilla": argilla,
    "community-alignment": community_alignment,
    "helpsteer": helpsteer,
    "label-studio": label_studio,
    "likert": likert,
    "multipref": multipref,
    "oasst": oasst,
    "openwebui": openwebui,
    "polis": polis,
    "prism": prism,
    "tldr": tldr,
}


def example(name: str, user: str, number: int) -> Sequence[Cells]:
    """Return rows with the n-th judgement of a user."""
    texts = (f"A merry reply {number}.", f"A sober, longer one {number}.")
    if name == "arena-models":
        texts = ("m1", f"m{2 + number % 3}")
    first_wins = crc32(f"{user} {number}".encode()) % 2 == 0
    return ROWS_OF[name](Judged(user, f"What of number {number}?", *texts, first_wins, number))


EXAMPLES = {name: partial(example, name) for name in ROWS_OF}
