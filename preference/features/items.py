"""One feature an item: for rewards of what is on a public list, and of nothing else.

The list is public, and fixed before anybody looks at votes: an item that only a vote knows would
give away that somebody voted for it. Two names that differ in case alone, in characters that look
the same or in some that cannot be seen are refused: a vote for one would be taken for a vote for
the other. So are characters that end or turn round what stands beside them.

Shape suffixes: R texts, D dimensions, B boards, K items.
"""

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from murmuration.preference.data.errors import InputError

KIND = "items"
#: Above it a fit, which compares each item with each other one, takes minutes and gigabytes.
MOST_ITEMS = 5_000
#: Of Unicode, those that turn the direction of what follows.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e")
#: A board that is the only one has no name.
ONE_BOARD = ("",)


@dataclass(frozen=True)
class ItemFeatures:
    """One-hot features of the response, which is an item's name, and of its board.

    Attributes:
        items: K names.
        boards: B categories, of which the prompt names one; `ONE_BOARD`: the prompt is not looked
            at.

    Raises:
        InputError: fewer than two items or more than `MOST_ITEMS`, or names that cannot be told
            apart.
    """

    items: tuple[str, ...]
    boards: tuple[str, ...] = ONE_BOARD

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", checked_names("item", self.items))
        if len(self.items) < 2:
            raise InputError(f"a board needs at least two items, and there are {len(self.items)}")
        if len(self.items) > MOST_ITEMS:
            raise InputError(
                f"a board has at most {MOST_ITEMS:,} items, and there are {len(self.items):,}: "
                "leave out those that few were shown, or make several boards"
            )
        if tuple(self.boards) != ONE_BOARD:
            object.__setattr__(self, "boards", checked_names("category", self.boards))
        object.__setattr__(self, "boards", tuple(self.boards) or ONE_BOARD)

    @property
    def dimension(self) -> int:
        """B·K."""
        return len(self.boards) * len(self.items)

    @property
    def uses_prompt(self) -> bool:
        """Return whether there are boards, of which the prompt names one."""
        return self.boards != ONE_BOARD

    @cached_property
    def item_places(self) -> "Places":
        """Return where items stand."""
        return Places(self.items)

    @cached_property
    def board_places(self) -> "Places":
        """Return where boards stand."""
        return Places(self.boards)

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R items: (R, D) float32.

        Raises:
            InputError: a response is no item, or a prompt no board.
        """
        phi_RD = np.zeros((len(responses), self.dimension), dtype=np.float32)
        for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            board = self.board_places[prompt] if self.uses_prompt else 0
            item = self.item_places[response]
            if board < 0:
                raise InputError(f"{prompt!r} is no category of this board")
            if item < 0:
                raise InputError(f"{response!r} is no item of this board")
            phi_RD[row, board * len(self.items) + item] = 1.0
        return phi_RD

    def to_config(self) -> dict:
        """Description for `feature_map`."""
        return {"kind": KIND, "items": [*self.items], "boards": [*self.boards]}


class Places(dict[str, int]):
    """Where names stand in a list, from 0, however they are written; −1: nowhere.

    What was looked up before is remembered: votes name few items many times.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__((name, place) for place, name in enumerate(names))
        self._known = dict(self)

    def __missing__(self, written: str) -> int:
        place = self._known.get(clean_name(written), -1)
        if place >= 0:  # what is nowhere could be anything, and is not kept
            self[written] = place
        return place


def clean_name(written: str) -> str:
    """Return a name without blanks around it, in composed form (NFC)."""
    return unicodedata.normalize("NFC", written.strip())


def looks_like(name: str) -> str:
    """Return what names have in common that are taken for each other: case and width of letters,
    runs of blanks, and what cannot be seen do not count."""
    seen = "".join(each for each in name if unicodedata.category(each) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).casefold().split())


def checked_names(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return names, clean.

    Raises:
        InputError: one is empty or no text, has characters that are no part of a name, or two look
            alike.
    """
    result: dict[str, str] = {}
    for written in names:
        if not isinstance(written, str) or not looks_like(name := clean_name(written)):
            raise InputError(f"{written!r} is no name: each {what} needs one")
        if not _TURNING.isdisjoint(name) or any(map(_controls, name)):
            raise InputError(f"the {what} {name!a} has a control character: leave it out")
        if other := result.get(looks_like(name)):
            differ = "stands there twice" if other == name else f"looks like {other!r}"
            raise InputError(f"the {what} {name!r} {differ}: give each a name of its own, once")
        result[looks_like(name)] = name
    return tuple(result.values())


def _controls(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and not character.isspace()


def read_names(option: str, source: str) -> tuple[str, ...]:
    """Return the names in a public list.

    Args:
        option: that names it, for messages.
        source: a file with one a line, a `.json` file with an array, or an array as JSON has it.

    Raises:
        InputError: it cannot be read.
    """
    listed = is_listed(source)
    shown = "[…]" if listed else source
    try:
        text = source if listed else Path(source).expanduser().read_text(encoding="utf-8-sig")
        as_json = listed or source.endswith(".json")
        names = json.loads(text) if as_json else text.splitlines()
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{option} {shown} cannot be used: {error}") from None
    if not isinstance(names, list):
        raise InputError(f"{option} {shown}: a .json file of names holds an array of them")
    try:
        return checked_names(
            {"--items": "item", "--topics": "topic"}.get(option, "category"),
            [name for name in names if not isinstance(name, str) or name.strip()],
        )
    except InputError as error:
        raise InputError(f"{option} {shown}: {error}") from None


def is_listed(source: str) -> bool:
    """Return whether a source of `read_names` is an array itself, and names no file."""
    return source.lstrip().startswith("[")
