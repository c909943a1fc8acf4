"""How every saved model is asked for scores: with strings or chat messages, one text or many.

A prompt of messages is written down as it is in a file of judgements (`preference.data.cells`).
Of a response in messages the last one counts: what came before it, thoughts or calls of tools, is
not what people judged.

Shape suffix: R texts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from murmuration.preference.data.cells import prompt_cell
from murmuration.preference.data.rows import BadRow, InputError

#: A prompt or a response as people have it: a string, or chat messages.
Text = str | Sequence[Mapping[str, Any]]


def scores_of(
    score_batch: Callable[[Sequence[Text], Sequence[Text]], np.ndarray],
    prompt: Text | Sequence[Text],
    response: Text | Sequence[Text],
) -> Any:
    """Return what a model's `score` gives: a float for one prompt and one response, else (R,)
    float64.

    Raises:
        InputError: one of them is one text and the other is many.
    """
    if _is_one(prompt) and _is_one(response):
        return float(score_batch([prompt], [response])[0])  # type: ignore[list-item]
    return score_batch(prompt, response)  # type: ignore[arg-type]


def strings_of(prompts: Sequence[Text], responses: Sequence[Text]) -> tuple[list[str], list[str]]:
    """R prompts and R responses as strings.

    Raises:
        InputError: they are not equally many, or one of them has no text.
    """
    if _is_one(prompts) or _is_one(responses) or len(prompts) != len(responses):
        raise InputError("score takes one prompt and one response, or equally many of both")
    return [prompt_text(text) for text in prompts], [response_text(text) for text in responses]


def prompt_text(prompt: Text) -> str:
    """A prompt as one string; InputError for messages without text, or of an unknown role."""
    if isinstance(prompt, str):
        return prompt
    try:
        return prompt_cell(list(prompt), "prompt")
    except BadRow as error:
        raise InputError(f"a message without text, or none that is known: {error}") from None


def response_text(response: Text) -> str:
    """A response as one string: of messages the last one's text, of its parts those that are text.

    Raises:
        InputError: there is no text in it.
    """
    if isinstance(response, str):
        return response
    if not response:
        return ""
    content = response[-1].get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    raise InputError(f"a message without text: its content is a {type(content).__name__}")


def _is_one(text: Text | Sequence[Text]) -> bool:
    """Return whether this is a string or a conversation, rather than several."""
    return isinstance(text, str) or (len(text) > 0 and isinstance(text[0], Mapping))
