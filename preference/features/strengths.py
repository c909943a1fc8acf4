"""A strength for each response on a public list, beside the features of its text.

Where the same responses come back, as arguments do that are judged by many, each may have a number
of its own. The list is declared (``--items``) and never gathered from judgements: a response that
only one user was shown would give that user away. A response that is not on it has zeros there, and
the features of its text alone.

A feature map's config lists the responses by digests of 64 bits, so that a request to a node takes
20 bytes for each and not its text. This is all that nodes and saved models need.

The place on the list and the text's features, but for the length, are each multiplied by √½ where
there are both: together they have norm at most 1, as features of texts have by themselves.

Shape suffixes: R texts, K items, D features of a text.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import read_names
from murmuration.preference.features.feature_map import FeatureMap

#: In ``--features``, alone or before a plus, and in a config the digests of the list.
STRENGTHS = "strengths"
#: Rows are as long as the list, and each request names it.
MOST_ITEMS = 10_000


@dataclass(frozen=True)
class Strengths:
    """One-hot features of a response's place on a public list, and the features of its text.

    Attributes:
        items: K digests, as of `item_digest`.
        text: the features of texts; their last is the length.

    Raises:
        InputError: there are no items or too many, or two are the same.
    """

    items: tuple[str, ...]
    text: FeatureMap

    def __post_init__(self) -> None:
        if not (isinstance(self.items, Sequence) and all(isinstance(i, str) for i in self.items)):
            raise InputError(f"features with {STRENGTHS}: a list of digests is of texts")
        object.__setattr__(self, "items", tuple(self.items))
        if not 1 <= len(self.items) <= MOST_ITEMS:
            raise InputError(
                f"--items: a list has 1 to {MOST_ITEMS:,} responses, and this has "
                f"{len(self.items):,}: name those that come back most"
            )
        if len(self._places) < len(self.items):
            raise InputError("--items: a response stands there twice: give each once")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {item: place for place, item in enumerate(self.items)}

    @property
    def dimension(self) -> int:
        """K + D."""
        return len(self.items) + self.text.dimension

    @property
    def uses_prompt(self) -> bool:
        """True if the features of texts do; an item is a response, whatever it answers."""
        return self.text.uses_prompt

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, K + D) float32."""
        items, share = len(self.items), 1.0 if self.text.dimension == 1 else math.sqrt(0.5)
        phi_RD = np.zeros((len(responses), self.dimension), dtype=np.float32)
        phi_RD[:, items:] = self.text(prompts, responses)
        phi_RD[:, items:-1] *= np.float32(share)
        for row, response in enumerate(responses):
            if (place := self._places.get(item_digest(response))) is not None:
                phi_RD[row, place] = share
        return phi_RD

    def to_config(self) -> dict:
        """Description for `preference.features.hashing.feature_map`."""
        return {**self.text.to_config(), STRENGTHS: [*self.items]}


def item_digest(response: str) -> str:
    """64 bits of a response, in hexadecimal digits; blanks around it do not count.

    Nothing is normalised, which would take long for some users' texts: what is on a list is in
    composed form (NFC).
    """
    text = response.strip().encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=8, person=b"public response").hexdigest()


def text_features(option: str) -> tuple[str, str]:
    """The two parts of ``--features``: strengths, with the plus behind, and features of texts.

    Each may be empty.
    """
    first, plus, rest = option.strip().partition("+")
    return (first + plus, rest) if first == STRENGTHS else ("", option.strip())


def digests_in(items: str) -> list[str]:
    """The digests of the responses on the list that ``--items`` names.

    Raises:
        InputError: it is not named, or it cannot be read.
    """
    if not items:
        raise InputError(
            f"--features {STRENGTHS} needs --items, the public list of responses that come back"
        )
    return [*map(item_digest, read_names("--items", "response", items))]
