"""What every kind of release can say of itself (``events`` lists the kinds)."""

from typing import ClassVar, Protocol

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.adjacency import Adjacency


class Event(Protocol):
    """One mechanism, run once."""

    kind: ClassVar[str]

    def loss(self, adjacency: Adjacency, interval: float) -> tuple[DiscretePMF, ...]:
        """The privacy loss of one run, discretized pessimistically to ``interval``.

        For a user who is removed and one who is added; one where the two agree.
        """
        ...
