"""Examples that are arrays and are computed user by user: no network reads them."""

from typing import Self

import torch


class ArrayExamples:
    """Parts of `preference.kinds.model.Examples` that are the same of all of them.

    No bit of one user's depends on who else is there, so that public ones are computed alike.
    """

    network = None
    measures_loss = False
    start_U: torch.Tensor

    @property
    def counts_U(self) -> torch.Tensor:
        """The number of examples of each user, int64."""
        return self.start_U.diff()

    def in_public(self) -> Self:
        """Itself: computed user by user, public or not."""
        return self

    def in_batches(self, tokens: int) -> Self:
        """Itself: there are no tokens."""
        del tokens
        return self
