r"""Single cells of a row: numbers, places, user ids, texts and conversations, and why one cannot be
used.

User ids: spellings that look the same must not be several users. Whoever writes a file could
otherwise count one person as many by characters that nobody sees. So an id is taken only if PRECIS
(RFC 8264), by its profile for nicknames (RFC 8266, case preserved), leaves it as it is: no
controls, no invisible or unassigned characters, no marks of direction, no compatibility forms, no
blanks but single spaces inside. The profile lets pass what fonts show as nothing; `_BLANK` lists
it. Latin letters beside Cyrillic or Greek ones are refused, too, and so is what programs write in
the place of an id, or make of one: `nan`, `True`, 1.23E+09, a date, a text in quotes. Not caught:
upper and lower case, which may be two people, and ids that are of another script as a whole.

Conversations: messages are mappings of `role` and `content`, or of `from` and `value`; a list of
them, one alone, or a mapping that holds the list; also as text that writes these down
(`preference.data.written`). Tools that a turn calls are not read.

Inside, a prompt is always one string. A conversation of several turns is written with a name before
each, as in hh-rlhf (`\n\nHuman: …\n\nAssistant: …\n\nHuman: …`), and `messages_of` gives the
messages back exactly: where a message itself holds what looks like the beginning of a turn, that is
written with one blank more. So features, hashes, caches, written files and what goes over the
network need nothing but strings, and a chat template still gets the turns. A single message of a
user is just its text: the same prompt, whether it came as a string or as a list. Where no prompt is
given, it is what `chosen` and `rejected` share in front, as in TRL.
"""

import math
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence, Sized
from functools import lru_cache
from numbers import Integral, Real
from typing import cast

import numpy as np
from precis_i18n import get_profile

from murmuration.preference.choices import MOST_RESPONSES
from murmuration.preference.data.errors import BadRow as BadRow
from murmuration.preference.data.files.columnar_child import NOT_OF_JSON
from murmuration.preference.data.written import written_value

#: What says that neither of two responses won.
TIES = ("tie", "tie (bothbad)", "both", "bothbad", "both_bad", "neither")
#: Characters of an id.
MOST_CHARACTERS = 1_000
#: A whole number, perhaps one that stood among others that were none.
_WHOLE = re.compile(r"(-?[0-9]+)(?:\.0*)?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
#: What programs write where an id was, or was none, by what it is.
_NO_IDS = {
    "nothing, as programs write it": (
        "nan|NaN|NAN|NaT|NA|N/A|n/a|#N/A|<NA>|None|none|null|NULL|nil|undefined|[+-]?inf"
    ),
    "a truth value": "true|false|True|False|TRUE|FALSE",
    "a number by powers of ten, which may have lost digits": (
        "[+-]?[0-9]+(?:[.,][0-9]*)?[eE][+-][0-9]+"
    ),
    "a date": (
        "[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9:.Z+-]+)?"
        "|[0-9]{1,2}/[0-9]{1,2}/[0-9]+"
        rf"|[0-9]{{1,2}}-(?:{_MONTH})(?:-[0-9]+)?|(?:{_MONTH})-[0-9]{{2}}"
    ),
    "a text in quotes, or a list": (
        r"""=?(?:[\w.]*\()?b?(['"]).*\1,?\)?|'[0-9]+|[\[({]['"0-9].*[\])}]"""
    ),
}
_NO_ID = {reason: re.compile(pattern) for reason, pattern in _NO_IDS.items()}
_ASCII = re.compile(r"[!-~]+(?: [!-~]+)*")
_NICKNAME = get_profile("NicknameCasePreserved")
#: Symbols that are drawn as nothing: braille blank, a note without a head, a filler, an object;
#: blanks and a mirror of hieroglyphs, which are assigned since Unicode 15 (Python 3.12).
_BLANK = frozenset("\u2800\U0001d159\U00016fe4\ufffc\U00013440\U00013441\U00013442")
#: Of these at most one in an id: many of their letters look alike.
_SCRIPTS = ("LATIN", "CYRILLIC", "GREEK")

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


def text_cell(value: object, column: str) -> str:
    """A cell's text, as it is; BadRow if it is empty or none."""
    if not isinstance(value, str):
        raise BadRow(f"{column!r} must be text, found {found_kind(value)}")
    if not value.strip():
        raise BadRow(f"{column!r} is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # Bytes that are not UTF-8 were decoded to halves from U+DC80 on (PEP 383).
        byte = "\udc80" <= value[error.start] <= "\udcff"
        utf_8 = "a byte that is not UTF-8: save the file as UTF-8"
        why = utf_8 if byte else "half of a surrogate pair"
        raise BadRow(f"{column!r} is not valid Unicode ({why})") from None
    return value


def number_cell(value: object) -> float:
    """A number, also one written as text; NaN for anything else, and for true and false."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, Real)):
        return math.nan
    try:
        return float(value)
    except (ValueError, OverflowError):
        return math.nan


def is_empty(value: object) -> bool:
    """Return whether a cell holds nothing, as CSV writes it too."""
    return value is None or (isinstance(value, str) and not value.strip())


def flag_cell(value: object, column: str, empty: bool | None = None) -> bool:
    """True or false, also as 1 and 0 and as text, or what an ``empty`` cell stands for; BadRow for
    anything else."""
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, Real) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    if empty is not None and is_empty(value):
        return empty
    raise BadRow(f"{column!r} must be true or false, found {found_kind(value)}")


def label_text(value: object) -> str:
    """Return a label in one spelling, however it is written: numbers by their value, words in small
    letters; empty for what is neither."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    number = number_cell(value)
    if math.isfinite(number):
        return f"{number:.12g}"
    return (
        " ".join(re.split(r"[\s_-]+", value.strip().casefold()))[:40]
        if isinstance(value, str)
        else ""
    )


def is_number(label: str) -> bool:
    """Return whether a label, in the spelling of ``label_text``, is a number."""
    return math.isfinite(number_cell(label))


def score_cell(value: object, column: str) -> float | None:
    """A finite number, also as text; None for an empty cell."""
    if is_empty(value):
        return None
    number = number_cell(value)
    if not math.isfinite(number):
        raise BadRow(f"{column!r} must hold finite numbers, found {found_kind(value)}")
    return number


def scores_cell(value: object, column: str, responses: int) -> list[float]:
    """The score of each response; BadRow if one has none."""
    scores = [score_cell(score, column) for score in list_cell(value) or ()]
    numbers = [score for score in scores if score is not None]
    if not len(numbers) == len(scores) == responses:
        raise BadRow(
            f"{column!r} must give a number for each of the {responses} responses; "
            f"found {found_kind(value)}"
        )
    return numbers


def flip_cell(value: object, column: str, responses: int) -> float | None:
    """The probability of a label to be false, among so many responses; None for an empty cell."""
    if is_empty(value):
        return None
    number, most = number_cell(value), 1.0 - 1.0 / responses
    if not 0.0 <= number < most:
        raise BadRow(
            f"{column!r} must be at least 0 and below {most:.3g}, which is pure chance among "
            f"{responses} responses; found {found_kind(value)}"
        )
    return number


def side_cell(value: object, column: str, pair: Sequence[str]) -> float:
    """Return which of a ``pair`` of columns won: 1 for the first, 0 for the second, 0.5 for a tie.

    It is named whole, or by the end of its name, perhaps behind a word.
    """
    if not isinstance(value, str) and (number := number_cell(value)).is_integer():
        value = str(int(number))
    named = value.strip().casefold() if isinstance(value, str) else ""
    if named in TIES:
        return 0.5
    ends = [name.rpartition("_")[2] for name in pair]
    won = [
        side
        for side, (name, end) in enumerate(zip(pair, ends, strict=True))
        if named == name.casefold()
        or label_text(value) == label_text(name)
        or re.fullmatch(rf"(?:[a-z]+[ _-])?{re.escape(end.casefold())}", named)
    ]
    if len(won) != 1:
        raise BadRow(
            f"{column!r} must name the side that won, {pair[0]!r} or {pair[1]!r} ({ends[0]!r} or "
            f"{ends[1]!r} will do), or be 'tie'; found {found_kind(value)}"
        )
    return 1.0 - won[0]


def responses_cell(value: object, column: str) -> list[str]:
    """The responses among which somebody chose; BadRow if they are too few or too many."""
    listed = list_cell(value)
    if listed is None or not 2 <= len(listed) <= MOST_RESPONSES:
        raise BadRow(
            f"{column!r} must be a list of 2 to {MOST_RESPONSES} texts, found {found_kind(value)}"
        )
    return [response_cell(response, column) for response in listed]


def list_cell(value: object) -> list[object] | None:
    """A list, also one that a text writes down (`preference.data.written`); None if it is none."""
    if isinstance(value, str):
        value = written_value(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None


def found_kind(value: object) -> str:
    """Return what was found: numbers as they are, and of anything else, which may be somebody's
    words, no more than what it is and how much."""
    if value is None:
        return "nothing"
    kind = type(value).__name__
    if isinstance(value, Mapping) and [*value] == [NOT_OF_JSON]:
        kind = str(value[NOT_OF_JSON])
        return kind if kind.isidentifier() and len(kind) < 40 else "a value of another type"
    if isinstance(value, Sized):
        return f"{kind} of length {len(value)}"
    return f"{kind} {shortened(repr(value), 40)}" if isinstance(value, Real) else kind


def shortened(text: str, most: int = 400) -> str:
    """A text of at most so many characters: a reason is kept, and what it quotes may be huge."""
    return text if len(text) <= most else text[: most - 1] + "…"


def places_cell(value: object, column: str, responses: int) -> list[int]:
    """The places that are best, from one number or a list of them."""
    listed = list_cell(value)
    places = [_whole(place) for place in ([value] if listed is None else listed)]
    known = [place for place in places if place is not None and 0 <= place < responses]
    if not places or len(set(known)) < len(places):
        raise BadRow(
            f"{column!r} must be the place of a response, counted from 0 to {responses - 1}, or a "
            f"list of those that tie; found {found_kind(value)}"
        )
    return known


def ranks_cell(value: object, column: str, responses: int) -> list[float]:
    """The rank of each response, 1 for the best; those that tie share one.

    Shared ranks are counted in any of the usual ways: 1, 2, 2, 4 or 1, 3, 3, 4 or 1, 2, 2, 3, or as
    means, 1, 2.5, 2.5, 4.
    """
    ranks = [number_cell(rank) for rank in list_cell(value) or ()]
    ordered = sorted(rank for rank in ranks if math.isfinite(rank))
    lowest = [ordered.index(rank) + 1 for rank in ordered]
    highest = [low + ordered.count(rank) - 1 for low, rank in zip(lowest, ordered, strict=True)]
    dense = [len({*ordered[: low - 1]}) + 1 for low in lowest]
    mean = [(low + high) / 2 for low, high in zip(lowest, highest, strict=True)]
    usual = ordered in (lowest, highest, dense, mean)
    if not usual or not len(ordered) == len(ranks) == responses:
        raise BadRow(
            f"{column!r} must give each of the {responses} responses a rank, 1 for the best, and "
            f"those that tie the same one; found {found_kind(value)}"
        )
    return ranks


def _whole(value: object) -> int | None:
    """A whole number, also as text; None if it is none."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    number = float(value)
    return int(number) if number.is_integer() else None


def user_cell(value: object, column: str) -> str:
    """Return a user's id as text, without blanks around it and in composed form (NFC).

    Numbers become ids by their value, also those that text spells so: 7, 7.0, "7.0" and "007" are
    the user `7`; a UUID is one in small letters. Of a number with more digits than a float holds,
    the last are lost: it names nobody.

    Raises:
        BadRow: it is none, may look like another, or is what a program made of one.
    """
    if isinstance(value, Integral) and not isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, Real) and not isinstance(value, (bool, np.bool_)):
        number = float(value)
        if not math.isfinite(number):
            raise BadRow(f"{column!r} is {number}, which is no user id")
        if abs(number) >= 2.0**53:
            raise BadRow(
                f"{column!r} is {number:g}, a number so large that it has lost its last digits: "
                "write ids as text"
            )
        return str(int(number)) if number.is_integer() else repr(number)
    name = text_cell(value, column).strip()
    if len(name) > MOST_CHARACTERS:
        raise BadRow(f"{column!r} is longer than {MOST_CHARACTERS:,} characters")
    if whole := _WHOLE.fullmatch(name):
        return user_cell(float(name) if "." in name[17:] else int(whole[1]), column)
    for reason, pattern in _NO_ID.items():
        if pattern.fullmatch(name):
            raise BadRow(f"{column!r} is no user id: it is {reason}; write ids as plain text")
    if _ASCII.fullmatch(name):
        return name.lower() if _UUID.fullmatch(name) else name
    name = unicodedata.normalize("NFC", name)
    if reason := _refused(name):
        raise BadRow(f"{column!r} is no user id: {reason}; found {found_kind(value)}")
    return name


@lru_cache(maxsize=2**16)
def _refused(name: str) -> str:
    """Return why an id is refused; empty where it is not."""
    for letter in name:
        if not letter.isprintable() or letter in _BLANK:
            return f"it holds U+{ord(letter):04X}, which cannot be seen"
    try:
        plain = _NICKNAME.enforce(name)
    except UnicodeEncodeError as error:
        return f"PRECIS does not allow it ({error.reason})"
    if plain != name:
        return "it is written as another may be, and would be taken for that one"
    letters = {unicodedata.name(letter, "").split(" ")[0] for letter in name if letter.isalpha()}
    mixed = [script.capitalize() for script in _SCRIPTS if script in letters]
    return f"it mixes {' and '.join(mixed)} letters" if len(mixed) > 1 else ""


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
    """Return the message of a system prompt that goes before a prompt's turns; none where it is
    empty, or where they have one of their own."""
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
    asked = "" if prompt is None else prompt_cell(row[prompt], prompt)
    first, second = (response_cell(row[column], column) for column in pair)
    return asked, first, second


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
    """Return whether a response is plain text, and no conversation; BadRow for a broken one."""
    named = isinstance(value, str) and value.lstrip().startswith("Human:")
    return isinstance(value, str) and not named and _messages(value, column) is None


def _shared_turns(
    chosen: Sequence[Message], rejected: Sequence[Message], pair: tuple[str, str]
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
            f"{pair[0]!r} and {pair[1]!r} do not answer the same prompt: "
            "they share no turn that comes before an assistant's"
        )
    return shared


def shared_words(chosen: str, rejected: str, pair: tuple[str, str]) -> tuple[str, str, str]:
    """Return what two texts begin with, up to the last whole word, and what follows in each.

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
    """Return whether a text may be messages that a program printed."""
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
    """Return whether a mapping is a message, and no other thing that is from somebody."""
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
    said = next((each for each in there if each[1] is not None), there[0] if there else None)
    if said is None:
        raise BadRow(
            f"{column!r} must be text, or a list of messages with 'role' and 'content' (or 'from' "
            f"and 'value'); a message is {found_kind(item)}"
        )
    role = _ROLE_OF.get(said[0].lower()) if isinstance(said[0], str) else None
    if role is None:
        raise BadRow(
            f"{column!r}: a message's role must be one of {', '.join(_ROLE_OF)}; found "
            f"{found_kind(said[0])}"
        )
    return {"role": role, "content": _content(said[1], column)}


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
