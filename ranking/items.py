"""One feature an item: for rewards of what is on a public list, and of nothing else.

The list is public, and fixed before any votes are seen: an item that only a vote names would reveal
that vote (``preference.data.public_names``).

Shape suffixes: R texts, D dimensions, B boards, K items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import checked_names, clean_name

KIND = "items"
#: Above it a fit, which compares each item with each other one, takes minutes and gigabytes.
MOST_ITEMS = 5_000
#: A board that is the only one has no name.
ONE_BOARD = ("",)


@dataclass(frozen=True)
class ItemFeatures:
    """One-hot features of the response, which is an item's name, and of its category.

    Attributes:
        items: K names.
        boards: B categories, of which the prompt names one; `ONE_BOARD`: the prompt is not used.

    Raises:
        InputError: fewer than two items or more than `MOST_ITEMS`, or names that are
            indistinguishable.
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
        """True if there are several categories: the prompt then names one."""
        return self.boards != ONE_BOARD

    @cached_property
    def item_places(self) -> "Places":
        """The index of each item."""
        return Places(self.items)

    @cached_property
    def board_places(self) -> "Places":
        """The index of each category."""
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
    """The index of each name in a list, from 0, in any spelling; −1 if it is not there.

    Look-ups are cached: votes name few items many times.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__((name, place) for place, name in enumerate(names))
        self._known = dict(self)

    def __missing__(self, written: str) -> int:
        place = self._known.get(clean_name(written), -1)
        if place >= 0:  # what is nowhere could be anything, and is not kept
            self[written] = place
        return place
