"""Conversations with several models at once, as PRISM publishes them (`conversations.jsonl`).

Each turn with more than one reply is a judgement by the replies' scores. What was said before, with
the reply that the person went on with, is the prompt.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.formats.format import Cells, Format, OwnRows


def rows(row: Mapping[str, Any]) -> Iterator[Cells | BadRow]:
    """Yield the scores of each turn."""
    before: list[dict[str, object]] = []
    history = row["conversation_history"]
    for turn in sorted({part["turn"] for part in history}):
        parts = [part for part in history if part["turn"] == turn]
        before += [_message("user", part) for part in parts if part["role"] == "user"]
        replies = [part for part in parts if part["role"] == "model" and part["content"]]
        chosen = [part for part in replies if part["if_chosen"]]
        if len(replies) > 1:
            best = max(part["score"] for part in replies)
            if chosen and all(part["score"] != best for part in chosen):
                yield BadRow("the reply that was chosen does not have the highest score")
            else:
                yield {
                    "prompt": list(before),
                    "responses": [part["content"] for part in replies],
                    "scores": [part["score"] for part in replies],
                }
        before += [_message("assistant", part) for part in chosen[:1]]


def _message(role: str, part: Mapping[str, object]) -> dict[str, object]:
    return {"role": role, "content": part["content"]}


PRISM = Format(
    "prism",
    forms=(("user_id", "conversation_history"),),
    reads=OwnRows(rows),
)
