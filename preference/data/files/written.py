"""Values that a text writes down, as JSON, Python and numpy print them.

A cell of CSV holds a list as whatever wrote the file printed it. What Python and numpy print is
read here by its few forms, and not by Python's own parser: what a text means must follow from the
text alone, and that parser's depth, memory and warnings differ with the version and the machine.
"""

import json
import re
from collections.abc import Mapping

#: Lists, mappings and what is in them, of a text of any form.
MOST_PARTS = 10**6
#: Characters of a text that Python or numpy printed, and lists in lists.
MOST_CHARACTERS = 2**18
DEEPEST = 20
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<open>[\[({]|(?:(?:np|numpy)\.)?(?:array|float\d+|u?int\d+|str_|bool_?)\()
    |(?P<close>[\])}])
    |(?P<mark>[,:])
    |(?P<text>'[^'\\\n]*(?:\\.[^'\\\n]*)*'|"[^"\\\n]*(?:\\.[^"\\\n]*)*")
    |(?P<type>dtype=[\w.<>'"]+)
    |(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?(?![\w.]))
    |(?P<name>None|True|False|nan)\b
    |(?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_CLOSES = {"[": "]", "{": "}"}
_NAMES = {"None": None, "True": True, "False": False, "nan": float("nan")}
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


def written_value(text: str) -> object:
    """The value that a text writes as JSON or as Python and numpy print it; None if it writes none,
    or one that is too large.

    Numpy's lists need no commas. Numbers, texts and names are read by themselves too.
    """
    if sum(map(text.count, "[{,")) > MOST_PARTS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        return _Printed(text).whole()
    except (ValueError, KeyError, TypeError):
        return None


class _Printed:
    """Reads a value that Python or numpy printed.

    Raises ValueError, KeyError or TypeError where a text is none.
    """

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self) -> object:
        value = self._value(*self._next(), DEEPEST)
        if self._next()[0] != "end":
            raise ValueError
        return value

    def _next(self) -> tuple[str | None, str]:
        token = _TOKEN.match(self._text, self._at)
        if token is None:
            raise ValueError
        self._at = token.end()
        return token.lastgroup, token[0].strip()

    def _value(self, kind: str | None, token: str, depth: int) -> object:
        if kind == "text":
            return _ESCAPE.sub(_unescaped, token[1:-1])
        if kind == "name":
            return _NAMES[token]
        if kind == "number":
            return int(token) if token.lstrip("+-").isdecimal() else float(token)
        if kind != "open" or not depth:
            raise ValueError
        if token == "{":
            return self._mapping(depth - 1)
        items = self._items(_CLOSES.get(token, ")"), depth - 1)
        if token in ("[", "("):
            return items
        (only,) = items  # of `array(…)`, `np.float64(…)`
        return only

    def _items(self, closing: str, depth: int) -> list[object]:
        items: list[object] = []
        comma = True  # where none may follow
        while (follows := self._next())[1] != closing:
            if follows == ("mark", ","):
                if comma:
                    raise ValueError
                comma = True
            elif follows[0] == "type" and closing == ")":
                comma = False
            else:
                items.append(self._value(*follows, depth))
                comma = False
        return items

    def _mapping(self, depth: int) -> Mapping[object, object]:
        items: dict[object, object] = {}
        follows = self._next()
        while follows[1] != "}":
            name = self._value(*follows, 0)
            if self._next()[1] != ":":
                raise ValueError
            items[name] = self._value(*self._next(), depth)
            follows = self._next()
            if follows == ("mark", ","):
                follows = self._next()
            elif follows[1] != "}":
                raise ValueError
        return items


def _unescaped(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2] or escape[3]
    return chr(int(digits, 16)) if digits else _LETTERS[escape[4]]
