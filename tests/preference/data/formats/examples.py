"""Rows with the n-th judgement of a user, as each format's export has them.

By it a format is in the tests of what others' rows can change: of records one with that user's
answer alone, whose texts depend on n and on no user; of public texts theirs, too.
"""

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

Cells = Mapping[str, object]


def prefers_first(user: str, number: int) -> bool:
    """Return whether a user prefers the first response of their n-th judgement."""
    return crc32(f"{user} {number}".encode()) % 2 == 0


def texts(number: int) -> tuple[str, str, str]:
    """Return a prompt and two responses for the n-th judgement of anybody."""
    return f"What of number {number}?", f"A merry reply {number}.", f"A sober, longer one {number}."


def arena(user: str, number: int) -> Sequence[Cells]:
    prompt, *replies = texts(number)
    question = {"role": "user", "content": prompt}
    row = arena_models(user, number)[0]
    conversations = {
        f"conversation_{side}": [question, {"role": "assistant", "content": text}]
        for side, text in zip("ab", replies, strict=True)
    }
    return [{**row, **conversations}]


def arena_models(user: str, number: int) -> Sequence[Cells]:
    winner = "model_a" if prefers_first(user, number) else "model_b"
    return [{"judge": user, "model_a": "m1", "model_b": f"m{2 + number % 3}", "winner": winner}]


def argilla(user: str, number: int) -> Sequence[Cells]:
    prompt, first, second = texts(number)
    best = "response_a" if prefers_first(user, number) else "response_b"
    fields = {"prompt": prompt, "response_a": first, "response_b": second}
    return [{"fields": fields, "responses": {"better": [{"user_id": user, "value": best}]}}]


def community_alignment(user: str, number: int) -> Sequence[Cells]:
    prompt, *replies = texts(number)
    row = {"annotator_id": user, "prompt": prompt, "preferred_response": "response_d"}
    row |= {f"response_{x}": f"{text} ({x})" for x, text in zip("abcd", replies * 2, strict=True)}
    return [row | {"preferred_response": "response_a"} if prefers_first(user, number) else row]


def helpsteer(user: str, number: int) -> Sequence[Cells]:
    """A column of users is there, which the publishers do not have."""
    row = dict(zip(("prompt", "response_1", "response_2"), texts(number), strict=True))
    strength = -2 if prefers_first(user, number) else 3
    return [{"annotator": user, **row, "preference_strength": strength}]


def label_studio(user: str, number: int) -> Sequence[Cells]:
    prompt, first, second = texts(number)
    selected = "left" if prefers_first(user, number) else "right"
    result = [{"type": "pairwise", "value": {"selected": selected}}]
    data = {"prompt": prompt, "answer1": first, "answer2": second}
    return [{"id": number, "data": data, "annotations": [{"completed_by": user, "result": result}]}]


def likert(user: str, number: int) -> Sequence[Cells]:
    prompt, *replies = texts(number)
    ratings = (5, 2) if prefers_first(user, number) else (1, 4)
    return [
        {"user_id": user, "prompt": prompt, "response": text, "rating": rating}
        for text, rating in zip(replies, ratings, strict=True)
    ]


def multipref(user: str, number: int) -> Sequence[Cells]:
    prompt, first, second = texts(number)
    best = "A-is-slightly-better" if prefers_first(user, number) else "B-is-clearly-better"
    entry = {"evaluator": user, "overall_pref": best}
    row = {"text": prompt, "completion_a": first, "completion_b": second}
    return [row | {"normal_worker_annotations": [entry]}]


def oasst(user: str, number: int) -> Sequence[Cells]:
    prompt, *replies = texts(number)
    question = {"message_id": f"{user} {number}", "parent_id": None, "user_id": user}
    question |= {"role": "prompter", "text": prompt, "rank": None}
    ranks = (0, 1) if prefers_first(user, number) else (1, 0)
    reply = {"parent_id": question["message_id"], "role": "assistant", "user_id": "another"}
    return [question] + [
        {**reply, "message_id": f"{user} {number} {rank}", "text": text, "rank": rank}
        for text, rank in zip(replies, ranks, strict=True)
    ]


def openwebui(user: str, number: int) -> Sequence[Cells]:
    prompt, *replies = texts(number)
    messages = {"q": {"id": "q", "parentId": None, "role": "user", "content": prompt}}
    for place, text in zip("ab", replies, strict=True):
        reply = {"parentId": "q", "role": "assistant", "content": text}
        messages[place] = {"id": place, **reply}
    snapshot = {"chat": {"chat": {"history": {"messages": messages}}}}
    row = {"user_id": user, "snapshot": snapshot}
    up, down = ("a", "b") if prefers_first(user, number) else ("b", "a")
    return [
        {**row, "data": {"rating": rating}, "meta": {"message_id": place}}
        for place, rating in ((up, 1), (down, -1))
    ]


def polis(user: str, number: int) -> Sequence[Cells]:
    votes = (1, -1) if prefers_first(user, number) else (-1, 1)
    places = (2 * number, 2 * number + 1)
    return [{"comment-id": place, "comment-body": f"Statement {place}."} for place in places] + [
        {"comment-id": place, "voter-id": user, "vote": vote, "timestamp": 1_000 + number}
        for place, vote in zip(places, votes, strict=True)
    ]


def prism(user: str, number: int) -> Sequence[Cells]:
    prompt, *replies = texts(number)
    best = replies[not prefers_first(user, number)]
    history: list[object] = [{"turn": 0, "role": "user", "content": prompt}]
    for text in replies:
        reply = {"turn": 0, "role": "model", "content": text, "if_chosen": text == best}
        history.append({**reply, "score": 90 if text == best else 10})
    return [{"user_id": user, "conversation_history": history}]


def tldr(user: str, number: int) -> Sequence[Cells]:
    post, *replies = texts(number)
    row = {"info": {"post": post}, "summaries": [{"text": text} for text in replies]}
    return [{"worker": user, **row, "choice": int(not prefers_first(user, number))}]


EXAMPLES: dict[str, Callable[[str, int], Sequence[Cells]]] = {
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
