r"""Conversations: prompts and responses of one or several turns, from cells and inside of here.

Messages are mappings of `role` and `content`, or of `from` and `value`; a list of them, one alone,
or a mapping that holds the list; also as text that writes these down
(`preference.data.files.written`). Tools that a turn calls are not read.

Inside, a prompt is always one string. A conversation of several turns is written with a name before
each, as in hh-rlhf (`\n\nHuman: …\n\nAssistant: …\n\nHuman: …`), and `messages_of` gives the
messages back exactly: where a message itself holds what looks like the beginning of a turn, that is
written with one blank more. So features, hashes, caches, written files and what goes over the
network need nothing but strings, and a chat template still gets the turns. A single message of a
user is just its text: the same prompt, whether it came as a string or as a list. Where no prompt is
given, it is what `chosen` and `rejected` share in front, as in TRL.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import cast

from murmuration.preference.data.cells import found_kind, list_cell, text_cell
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.files.written import written_value

Message = dict[str, str]

_NAMES = {"system": "System", "user": "Human", "assistant": "Assistant", "tool": "Tool"}
_ROLES = {name: role for role, name in _NAMES.items()}
#: Whose a turn is, by the words of others.
_ROLE_OF = {role: role for role in _NAMES} | {
    "developer": "system",
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "function": "tool",
    "observation": "tool",
}
#: Under which names a message keeps whose it is, and what it says.
_OF_MESSAGES = (("role", "content"), ("from", "value"), ("role", "parts"))
_CALLS = ("tool_calls", "function_call")
#: Where a mapping keeps a list of messages.
_OF_LISTS = ("messages", "conversations", "conversation")
_OPENS = ("[", "{", "(", "array(")
#: How messages begin that a program printed, and what stands in them; of others than Python, too.
_PRINTED = re.compile(r"""(?:array\()?[\[(]*\s*(?:\w{1,40}\(|\{\s*['":]?\w)""")
_PRINTED_ROLE = re.compile(r"""\b(?:role|from)['"]?\s*[:=]""")
_PRINTED_CONTENT = re.compile(r"""\b(?:content|value|parts)['"]?\s*[:=]""")
_OF_JAVASCRIPT = "[object Object]"
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


def asked_turns(prompt: str) -> list[Message]:
    """The messages that a response follows: without an empty one of the assistant at the end, which
    only invites it."""
    turns = messages_of(prompt)
    if len(turns) > 1 and turns[-1] == {"role": "assistant", "content": ""}:
        return turns[:-1]
    return turns


def system_turn(turns: Sequence[Message], system: str) -> list[Message]:
    """The system prompt as a message to go before a prompt's turns; none if it is empty or the
    turns have their own.
    """
    own = any(turn["role"] == "system" for turn in turns)
    return [{"role": "system", "content": system}] if system and not own else []


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
    row: Mapping[str, object], pair: tuple[str, str], prompt: str | None
) -> tuple[str, str, str]:
    """Prompt and two responses from a row's columns, in any of the forms in which pairs are kept.

    Both responses may hold the whole conversation, as messages or as text with names before the
    turns: its shared turns are then the prompt, whatever else is given as one. The prompt of texts
    without a column of theirs is empty.

    Raises:
        BadRow: there is nothing that could be the prompt, or a cell is none of this.
    """
    whole = [_conversation(row[column], column) for column in pair]
    if whole[0] is not None and whole[1] is not None:
        turns = _shared_turns(whole[0], whole[1], pair)
        shared = text_cell(text_of(whole[0][:turns]), prompt or "prompt")
        first, second = (
            text_cell(_response(messages[turns:], column), column)
            for messages, column in zip(whole, pair, strict=True)
            if messages is not None
        )
        return shared, first, second
    words = "" if prompt is None else prompt_cell(row[prompt], prompt)
    first, second = (response_cell(row[column], column) for column in pair)
    return words, first, second


def rated_exchange(row: Mapping[str, object], column: str, prompt: str | None) -> tuple[str, str]:
    """Prompt and response of a rating, whose column may hold the whole conversation: then the last
    turn is the response, the assistant's, and those before it are the prompt.

    Raises:
        BadRow: there is nothing that could be the prompt, or a cell is none of this.
    """
    whole = _conversation(row[column], column)
    if whole is not None:
        *before, last = whole
        if last["role"] != "assistant" or not before:
            raise BadRow(
                f"{column!r} ends with a turn of the {last['role']}, where the assistant's "
                "response is expected"
            )
        return text_cell(text_of(before), column), text_cell(last["content"], column)
    if prompt is None:
        raise BadRow(
            f"no column 'prompt', and {column!r} is no conversation that holds the prompt. Name a "
            "column with --columns prompt=NAME, or pass --no-prompt where rows have none"
        )
    return prompt_cell(row[prompt], prompt), response_cell(row[column], column)


def is_plain_text(value: object, column: str) -> bool:
    """True if a response is plain text and not a conversation. BadRow for a broken conversation."""
    named = isinstance(value, str) and value.lstrip().startswith("Human:")
    return isinstance(value, str) and not named and _messages(value, column) is None


def _shared_turns(
    chosen: Sequence[Message], rejected: Sequence[Message], pair: tuple[str, str]
) -> int:
    """The number of leading turns that are the prompt: those that both share, up to an
    assistant's.
    """
    most = min(len(chosen), len(rejected)) - 1
    shared = 0
    while shared < most and chosen[shared] == rejected[shared]:
        shared += 1
    while shared and not chosen[shared]["role"] == rejected[shared]["role"] == "assistant":
        shared -= 1
    if not shared:
        raise BadRow(
            f"{pair[0]!r} and {pair[1]!r} do not answer the same prompt: "
            "they share no turn that comes before an assistant's"
        )
    return shared


def shared_words(chosen: str, rejected: str, pair: tuple[str, str]) -> tuple[str, str, str]:
    """Split two texts into the beginning that they share, up to its last whole word, and what
    follows in each.

    Raises:
        BadRow: there is no such word.
    """
    shared = os.path.commonprefix([chosen, rejected])  # noqa: RUF071 (no paths)
    cut = next((at for at in range(len(shared), 0, -1) if shared[at - 1].isspace()), 0)
    if chosen == rejected or not shared[:cut].strip():
        raise BadRow(
            f"no column 'prompt', and {pair[0]!r} and {pair[1]!r} do not begin with a text that "
            "both share and that could be the prompt. Name a column with --columns prompt=NAME, or "
            "pass --no-prompt where rows have none"
        )
    first, second = (
        text_cell(text[cut:], column) for text, column in zip((chosen, rejected), pair, strict=True)
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
    """The messages of a cell, also of one that writes them down; None for anything else.

    BadRow for a list in which something is no message that can be read, and for a text that may be
    one of messages and cannot be read.
    """
    if not isinstance(value, str):
        listed = _listed(value)
        return [_message(item, column) for item in listed] if listed else None
    if not value.lstrip().startswith(_OPENS):
        return None
    listed = _listed(written_value(value))
    several = value.lstrip().startswith("[")
    if listed and (_is_message(listed[0]) or (several and "role" in listed[0])):
        return [_message(item, column) for item in listed]
    if value.lstrip().startswith(_OF_JAVASCRIPT) or (listed is None and _may_be_messages(value)):
        raise BadRow(
            f"{column!r} looks like messages that Python or another program printed, and cannot be "
            "read: write the file as JSON, in Python with to_json"
        )
    return None  # a text that happens to be JSON


def _may_be_messages(text: str) -> bool:
    """True if a text looks like messages printed by a program."""
    parts = _PRINTED_ROLE, _PRINTED_CONTENT
    return bool(_PRINTED.match(text.lstrip())) and all(part.search(text) for part in parts)


def _listed(value: object) -> Sequence[Mapping[str, object]] | None:
    """A list of mappings, one alone, or what a mapping holds as messages; None for anything
    else."""
    if isinstance(value, Mapping):
        held = next((value[name] for name in _OF_LISTS if name in value), None)
        value = [value] if held is None or _is_message(value) else held
    listed = None if isinstance(value, str) else list_cell(value)
    there = listed and isinstance(listed[0], Mapping)
    return cast(Sequence[Mapping[str, object]], listed) if there else None


def _is_message(item: Mapping[str, object]) -> bool:
    """True if a mapping is a chat message, and not another object with a "from"."""
    if "from" in item and "value" in item:
        return str(item["from"]).lower() in (*_ROLE_OF, *_CALLS)
    return "role" in item and any(name in item for name in ("content", "parts", *_CALLS))


def _message(item: object, column: str) -> Message:
    mapping = item if isinstance(item, Mapping) else {}
    if any(mapping.get(name) for name in _CALLS) or mapping.get("from") in _CALLS:
        raise BadRow(
            f"{column!r}: a turn calls tools, of which nothing is read: write what was called as "
            "its content, or leave the row out"
        )
    there = [
        (mapping[who], mapping[what]) for who, what in _OF_MESSAGES if {who, what} <= {*mapping}
    ]
    speaker = next((each for each in there if each[1] is not None), there[0] if there else None)
    if speaker is None:
        raise BadRow(
            f"{column!r} must be text, or a list of messages with 'role' and 'content' (or 'from' "
            f"and 'value'); a message is {found_kind(item)}"
        )
    role = _ROLE_OF.get(speaker[0].lower()) if isinstance(speaker[0], str) else None
    if role is None:
        raise BadRow(
            f"{column!r}: a message's role must be one of {', '.join(_ROLE_OF)}; found "
            f"{found_kind(speaker[0])}"
        )
    return {"role": role, "content": _content(speaker[1], column)}


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
