"""The adjacency: the relation between neighbouring data sets behind every epsilon.

An (epsilon, delta) means nothing until this is fixed, so every plan, ledger, report and audit
carries one of these names. The relation decides two things: how far a sum of clipped user vectors
can move, and what a release of it costs.
"""

from enum import StrEnum


class Unsupported(ValueError):
    """A mechanism has no guarantee under this relation; the message names those it has one for."""


class Adjacency(StrEnum):
    """The relation between neighbouring data sets, at the level of whole users.

    ``add-remove``: one user, with everything they judged, is present or absent; the roster is
    private. ``zero-out``: the roster is public and one user's contribution is replaced by nothing.
    ``replace``: one user's judgements are replaced by any others, their number included.
    ``replace-labels``: one user's labels change; prompts, responses and counts are public and stay.
    """

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE = "replace"
    REPLACE_LABELS = "replace-labels"

    @property
    def vectors_changed(self) -> int:
        """Clipped vectors in which neighbouring sums differ: 1 (comes or goes) or 2 (a swap)."""
        return 2 if self in (Adjacency.REPLACE, Adjacency.REPLACE_LABELS) else 1

    @property
    def counts_are_public(self) -> bool:
        """True if the number of judgements of each user is public under this relation."""
        return self is Adjacency.REPLACE_LABELS

    def sentence(self, rows: str = "judgements", *, each_row: bool = False) -> str:
        """The definition in one sentence, for a reader of a report; users have ``rows``, or
        ``each_row`` is declared to be a user."""
        sentence = _OF_ROWS.get(self) if each_row else None
        return (sentence or _OF_USERS[self]).format(rows=rows)


_OF_USERS = {
    Adjacency.ADD_REMOVE: (
        "Neighbouring data sets differ in whether one user, with all their {rows}, takes part."
    ),
    Adjacency.ZERO_OUT: (
        "The list of users is public; neighbouring data sets differ in whether one user's "
        "contribution is replaced by nothing."
    ),
    Adjacency.REPLACE: (
        "Neighbouring data sets differ in all {rows} of one user, their number included."
    ),
    Adjacency.REPLACE_LABELS: (
        "Neighbouring data sets differ in the labels of one user; prompts, responses and the "
        "number of {rows} are public."
    ),
}
_OF_ROWS = {
    Adjacency.ADD_REMOVE: "Neighbouring data sets differ in whether one row takes part.",
    Adjacency.REPLACE: "Neighbouring data sets differ in one row.",
}
