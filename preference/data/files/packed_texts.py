"""Many texts without an object for each: their bytes, one after the other, and where each begins.

A string of Python's takes some fifty bytes beside its own. Many texts lie in a mapped file
(`preference.features.mapped_rows`), which is private and goes with the process.

Legend: T texts, R of them in some order.
"""

from collections.abc import Iterable, Sequence
from typing import Self, overload

import numpy as np

from murmuration.preference.features.mapped_rows import joined


class PackedTexts(Sequence[str]):
    """R texts, each made when it is asked for.

    Args:
        bytes_: of T texts in UTF-8.
        start_T: T + 1 offsets into them.
        text_R: which text each is.
    """

    def __init__(self, bytes_: np.ndarray, start_T: np.ndarray, text_R: np.ndarray) -> None:
        self._bytes, self._start_T, self._text_R = bytes_, start_T, text_R
        self._view = bytes_.data  # a part of it is made sooner than one of the array

    @classmethod
    def pack(cls, texts: Iterable[str]) -> Self:
        """Pack texts, which have no lone surrogates.

        Raises:
            InputError: there is no room for the file that they lie in.
        """
        rows = (np.frombuffer(text.encode(), np.uint8) for text in texts)
        bytes_, start_T = joined(rows, np.dtype(np.uint8))
        return cls(bytes_, start_T, np.arange(len(start_T) - 1))

    def __reduce__(self) -> tuple[object, ...]:
        """As their own bytes alone, wherever they lie: others' go to no other process."""
        return type(self).pack, ([*self],)

    def __len__(self) -> int:
        return len(self._text_R)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> str | Self:
        if isinstance(place, slice):
            return self.chosen(np.arange(len(self))[place])
        text = self._text_R[place]
        return str(self._view[self._start_T[text] : self._start_T[text + 1]], "utf-8")

    def chosen(self, rows: np.ndarray) -> Self:
        """Some of the texts, in this order; nothing is copied."""
        return type(self)(self._bytes, self._start_T, self._text_R[rows])
