"""Examples that are arrays and are computed user by user: no network reads them."""

from typing import Self


class ArrayExamples:
    """Parts of `preference.kinds.model.Examples` that are the same of all of them.

    No bit of one user's depends on who else is there, so that public ones are computed alike.
    """

    network, choices = None, 0
    measures_loss = False

    def in_public(self) -> Self:
        """Return these: they are computed user by user, public or not."""
        return self

    def in_batches(self, tokens: int) -> Self:
        """Return these: they have no tokens."""
        del tokens
        return self
