r"""Conversations: prompts and responses that come as chat messages, or with names before the turns.

Decision: inside, a prompt is always one string. A conversation of several turns is written with a
name before each, as in hh-rlhf (`\n\nHuman: …\n\nAssistant: …\n\nHuman: …`), and `messages_of`
gives the messages back exactly: where a message itself holds what looks like the beginning of a
turn, that is written with one blank more. So features, hashes, caches, written files and what goes
over the network need nothing but strings, and a chat template still gets the turns. A single
message of a user is just its text: the same prompt, whether it came as a string or as a list.

Where no prompt is given, it is what `chosen` and `rejected` share in front, as in TRL.
"""

import os
import re
from collections.abc import Mapping, Sequence

from murmuration.preference.data.cells import BadRow, found_kind, list_cell, text_cell

Message = dict[str, str]

_NAMES = {"system": "System", "user": "Human", "assistant": "Assistant", "tool": "Tool"}
_ROLES = {name: role for role, name in _NAMES.items()}
_NAME = "|".join(_NAMES.values())
_TURN = re.compile(rf"\n\n({_NAME}): ?")
_PLAIN = re.compile(rf"\n\n( *)(?=(?:{_NAME}):)")
_MARKED = re.compile(rf"\n\n ( *)(?=(?:{_NAME}):)")


def text_of(messages: Sequence[Message]) -> str:
    """Messages (`role`, `content`) as one string, which `messages_of` reads."""
    if len(messages) == 1 and messages[0]["role"] == "user":
        only = messages[0]["content"]
        if not _TURN.match(only):
            return only
    return "".join(map(_turn, messages))


def messages_of(text: str) -> list[Message]:
    """The messages of a prompt: of a text without names before its turns, one of the user."""
    if not _TURN.match(text):
        return [{"role": "user", "content": text}]
    _, *parts = _TURN.split(text)
    turns = zip(parts[::2], parts[1::2], strict=True)
    return [
        {"role": _ROLES[name], "content": _MARKED.sub(r"\n\n\1", content)}
        for name, content in turns
    ]


def prompt_cell(value: object, column: str) -> str:
    """A prompt from a cell: text, or a list of messages; BadRow if it is empty or neither."""
    result = _messages(value, column)
    if result is None:
        return text_cell(value, column)
    while len(result) > 1 and result[-1] == {"role": "assistant", "content": ""}:
        result.pop()  # which only invites a response
    return text_cell(text_of(result), column)


def response_cell(value: object, column: str) -> str:
    """A response from a cell: text, or a list of messages that begins with the assistant's."""
    result = _messages(value, column)
    return text_cell(value if result is None else _response(result, column), column)


def exchange(
    cells: Mapping[str, object], columns: Mapping[str, str], prompted: bool
) -> tuple[str, str, str]:
    """Prompt and two responses of a pair, in any of the forms in which pairs are kept.

    Both responses may hold the whole conversation, as messages or as text with names before the
    turns: its shared turns are then the prompt, whatever else is given as one. Texts that are not
    ``prompted``, which have no prompt of their own, are cut behind the last word that they share.

    Raises:
        BadRow: there is nothing that could be the prompt, or a cell is none of this.
    """
    sides = [(cells[side], columns[side]) for side in ("chosen", "rejected")]
    whole = [_conversation(cell, column) for cell, column in sides]
    if whole[0] is not None and whole[1] is not None:
        turns = _shared_turns(whole[0], whole[1], columns)
        shared = text_cell(text_of(whole[0][:turns]), columns["prompt"])
        first, second = (
            text_cell(_response(result[turns:], column), column)
            for result, column in zip(whole, (columns["chosen"], columns["rejected"]), strict=True)
            if result is not None
        )
        return shared, first, second
    prompt = prompt_cell(cells["prompt"], columns["prompt"]) if prompted else ""
    first, second = (response_cell(cell, column) for cell, column in sides)
    return (prompt, first, second) if prompted else _shared_words(first, second, columns)


def rated_exchange(
    cells: Mapping[str, object], columns: Mapping[str, str], prompted: bool
) -> tuple[str, str]:
    """Prompt and response of a rating, whose `completion` may hold the whole conversation: then the
    last turn is the response, the assistant's, and those before it are the prompt.

    Raises:
        BadRow: there is nothing that could be the prompt, or a cell is none of this.
    """
    value, column = cells["completion"], columns["completion"]
    whole = _conversation(value, column)
    if whole is not None:
        *before, last = whole
        if last["role"] != "assistant" or not before:
            raise BadRow(
                f"{column!r} ends with a turn of the {last['role']}, where the assistant's "
                "response is expected"
            )
        return text_cell(text_of(before), column), text_cell(last["content"], column)
    if not prompted:
        raise BadRow(
            f"no column {columns['prompt']!r}, and {column!r} is no conversation that holds the "
            "prompt. Name a column with --columns prompt=NAME"
        )
    return prompt_cell(cells["prompt"], columns["prompt"]), response_cell(value, column)


def _shared_turns(
    chosen: Sequence[Message], rejected: Sequence[Message], columns: Mapping[str, str]
) -> int:
    """Return how many turns in front are the prompt: those that are shared, up to an
    assistant's."""
    most = min(len(chosen), len(rejected)) - 1
    shared = 0
    while shared < most and chosen[shared] == rejected[shared]:
        shared += 1
    while shared and not chosen[shared]["role"] == rejected[shared]["role"] == "assistant":
        shared -= 1
    if not shared:
        raise BadRow(
            f"{columns['chosen']!r} and {columns['rejected']!r} do not answer the same prompt: "
            "they share no turn that comes before an assistant's"
        )
    return shared


def _shared_words(chosen: str, rejected: str, columns: Mapping[str, str]) -> tuple[str, str, str]:
    """Two texts cut behind the last whole word that both begin with."""
    shared = os.path.commonprefix([chosen, rejected])  # noqa: RUF071 (no paths)
    cut = next((at for at in range(len(shared), 0, -1) if shared[at - 1].isspace()), 0)
    if chosen == rejected or not shared[:cut].strip():
        raise BadRow(
            f"no column {columns['prompt']!r}, and {columns['chosen']!r} and "
            f"{columns['rejected']!r} do not begin with a text that both share and that could be "
            "the prompt. Name a column with --columns prompt=NAME"
        )
    first, second = (
        text_cell(text[cut:], columns[side])
        for text, side in ((chosen, "chosen"), (rejected, "rejected"))
    )
    return shared[:cut].rstrip(), first, second


def _conversation(value: object, column: str) -> list[Message] | None:
    """The messages of a whole conversation; None for a response by itself."""
    result = _messages(value, column)
    if result is None and isinstance(value, str) and _TURN.match(value):
        result = messages_of(value)
    return None if result is None or result[0]["role"] == "assistant" else result


def _response(messages: Sequence[Message], column: str) -> str:
    """The assistant's text; with more turns behind it, they follow with names."""
    if messages[0]["role"] != "assistant":
        raise BadRow(
            f"{column!r} begins with a turn of the {messages[0]['role']}, where the assistant's "
            "response is expected"
        )
    return messages[0]["content"] + "".join(map(_turn, messages[1:]))


def _turn(message: Message) -> str:
    content = _PLAIN.sub(r"\n\n\1 ", message["content"])
    return f"\n\n{_NAMES[message['role']]}: {content}"


def _messages(value: object, column: str) -> list[Message] | None:
    """A list of messages, also one written as JSON; None for anything else.

    BadRow for a list in which something is no message that can be read.
    """
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return None
    result = list_cell(value)
    if not result or not isinstance(result[0], Mapping):
        return None
    if isinstance(value, str) and "role" not in result[0]:
        return None  # a text that happens to be JSON
    return [_message(item, column) for item in result]


def _message(item: object, column: str) -> Message:
    if not isinstance(item, Mapping) or "role" not in item or "content" not in item:
        raise BadRow(
            f"{column!r} must be text, or a list of messages with 'role' and 'content'; a message "
            f"is {found_kind(item)}"
        )
    role = "system" if item["role"] == "developer" else item["role"]
    if role not in _NAMES:
        raise BadRow(
            f"{column!r}: a message's role must be one of {', '.join(_NAMES)}; found "
            f"{found_kind(role)}"
        )
    return {"role": str(role), "content": _content(item["content"], column)}


def _content(value: object, column: str) -> str:
    """The text of a message, also where it comes in parts."""
    if isinstance(value, str):
        return value
    parts = list_cell(value) or []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    if not parts or not all(isinstance(text, str) for text in texts) or len(texts) < len(parts):
        raise BadRow(
            f"{column!r}: the content of a message must be text, found {found_kind(value)}"
        )
    return "".join(text for text in texts if isinstance(text, str))
