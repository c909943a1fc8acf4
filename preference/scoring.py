"""The interface of scoring for all saved models: strings or chat messages, one text or many.

A prompt of messages is written down as in a file of judgements (`preference.data.conversations`).
Of a response in messages the last one counts: what came before it, thoughts or calls of tools, is
not what people judged.

Shape suffix: R texts.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from murmuration.preference.data.conversations import prompt_cell
from murmuration.preference.data.errors import BadRow, InputError

#: A prompt or a response as people have it: a string, or chat messages.
Text = str | Sequence[Mapping[str, Any]]


def scores_of(
    score_batch: Callable[[Sequence[Text], Sequence[Text]], np.ndarray],
    prompt: Text | Sequence[Text],
    response: Text | Sequence[Text],
) -> Any:
    """The result of a model's `score`: a float for one prompt and one response, else (R,) float64.

    Raises:
        InputError: one of them is one text and the other is many, or what is no text.
    """
    if is_one(prompt) and is_one(response):
        return float(score_batch([prompt], [response])[0])  # type: ignore[list-item]
    return score_batch(prompt, response)  # type: ignore[arg-type]


def strings_of(prompts: Sequence[Text], responses: Sequence[Text]) -> tuple[list[str], list[str]]:
    """R prompts and R responses as strings.

    Raises:
        InputError: they are not equally many, or one of them has no text.
    """
    if is_one(prompts) or is_one(responses) or len(prompts) != len(responses):
        raise InputError("score takes one prompt and one response, or equally many of both")
    return _each(prompt_text, prompts, "prompt"), _each(response_text, responses, "response")


def _each(text_of: Callable[[Text], str], texts: Sequence[Text], name: str) -> list[str]:
    """Texts as strings; InputError says which one is not a text."""
    result: list[str] = []
    for text in texts:
        try:
            result.append(text_of(text))
        except InputError as error:
            raise InputError(f"{name} {len(result) + 1}: {error}") from None
    return result


def prompt_text(prompt: Text) -> str:
    """A prompt as one string; InputError for messages without text, or of an unknown role."""
    if isinstance(prompt, str):
        return prompt
    try:
        return prompt_cell(_messages(prompt), "prompt")
    except BadRow as error:
        raise InputError(f"a message without text, or none that is known: {error}") from None


def response_text(response: Text) -> str:
    """A response as one string: of messages the last one's text, of its parts those that are text.

    Raises:
        InputError: there is no text in it.
    """
    if isinstance(response, str):
        return response
    messages = _messages(response)
    if not messages:
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    raise InputError(f"a message without text: its content is a {type(content).__name__}")


def _messages(text: object) -> list[Mapping[str, Any]]:
    """Chat messages; InputError for anything else, such as an empty cell."""
    if _is_collection(text) and all(isinstance(message, Mapping) for message in text):
        return list(text)
    raise _no_text(text)


def is_one(text: object) -> bool:
    """True if this is a string or a conversation, False if it is several; InputError for anything
    else.
    """
    if isinstance(text, str):
        return True
    if not _is_collection(text):
        raise _no_text(text)
    return isinstance(next(iter(text), None), Mapping)


def _is_collection(text: object) -> TypeGuard[Collection[Any]]:
    """True if this can be a list: that of a data frame or an array can, bytes cannot."""
    return isinstance(text, Collection) and not isinstance(text, bytes | Mapping)


def _no_text(value: object) -> InputError:
    empty = " (an empty cell?)" if value is None or isinstance(value, float) else ""
    return InputError(f"neither text nor chat messages, but {type(value).__name__}{empty}")
