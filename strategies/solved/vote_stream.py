"""Voters' vectors where votes come period after period, and a board is released after each.

What a voter adds in period w is x_w = v_w − v_(w−1), with v_w the vector of all votes that counted
up to then (``preference.ranking.layout``): so sums of x are sums of voters' whole vectors, squares
included. At most ``layout.cap`` ballots of a voter count in all periods together, the first ones;
which these are depends on nothing but the voter's own ballots, so that the same is computed of them
in every period.

*The bound* is on everything that a voter ever adds: of R x (``privacy.continual.square_root``) the
rows together are at most γ_W times ``layout.clip_norm`` long, which is as long as they are of who
gives all in the first period; and each v_w is at most ``layout.clip_norm`` long, as on a board that
is released once. Ballots of a period that would lead beyond weigh less, all alike, by a factor that
halving finds; what was there before is not changed by it. So the rows of R x that are there by now
are within the bound whatever is still to come, and a later period starts from there.

Legend: U voters, S asked voters, N their ballots that count, C voters of a chunk, V coordinates,
W releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murmuration.preference.ranking.layout import VoteLayout
from murmuration.privacy.continual.square_root import SquareRoot
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import ROUNDING

if TYPE_CHECKING:
    from murmuration.preference.ranking.votes import ItemVotes

_CHUNK_NUMBERS = 2**21  # of voters' vectors that are there at a time
_HALVINGS = 30


@dataclass(frozen=True)
class VoteStream:
    """Bounds what voters add over so many ``releases``."""

    layout: VoteLayout
    releases: int

    @property
    def root(self) -> SquareRoot:
        """Return how the noise is shared among the releases."""
        return SquareRoot(self.releases)

    @property
    def clip_norm(self) -> float:
        """Return the bound on the rows of R x together, of one voter."""
        return self.layout.clip_norm * self.root.column_norm

    def added(
        self, votes: ItemVotes, users_S: np.ndarray, release: int, clip_norm: float
    ) -> Iterator[np.ndarray]:
        """Yield what asked voters who vote in a period add in it, chunk by chunk, (C, V) float64,
        on the grid of ``clip_norm``; others add nothing, and are left out.

        Args:
            votes: those of all periods so far.
            users_S: places of the asked voters.
            release: which period it is, from 1.
            clip_norm: the bound; by ``clip_norm`` of this object.

        Raises:
            ValueError: it is none of the releases, or votes do not say in which period they came.
        """
        if not 1 <= release <= self.releases:
            raise ValueError(f"release {release} of {self.releases}")
        if votes.period_J is None:
            raise ValueError("these votes do not say in which period they came")
        ballots_N, user_N = self._that_count(votes, users_S, votes.period_J, release)
        now_S = np.unique(user_N[votes.period_J[ballots_N] == release])
        each = max(1, _CHUNK_NUMBERS // (self.layout.size * release))
        for low in range(0, len(now_S), each):
            chunk_C = now_S[low : low + each]
            here_N = np.isin(user_N, chunk_C)
            row_N = np.searchsorted(chunk_C, user_N[here_N])
            chunk = _Chunk(self, len(chunk_C), clip_norm)
            for period in range(1, release + 1):
                came_N = votes.period_J[ballots_N[here_N]] == period
                ballots, rows = ballots_N[here_N][came_N], row_N[came_N]
                added_CV = chunk.add(votes, period, ballots, rows)
            yield added_CV

    def _that_count(
        self, votes: ItemVotes, users_S: np.ndarray, period_J: np.ndarray, release: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the first ballots of asked voters by period, at most the cap of each, (N,), and
        whose these are, (N,)."""
        start_U = votes.start_U.numpy()
        counts_S = np.diff(start_U)[users_S]
        user_N = np.repeat(np.arange(len(users_S)), counts_S)
        before_S = np.cumsum(counts_S) - counts_S
        ballots_N = np.arange(len(user_N)) + (start_U[users_S] - before_S)[user_N]
        there_N = period_J[ballots_N] <= release
        user_N, ballots_N = user_N[there_N], ballots_N[there_N]
        order_N = np.lexsort((ballots_N, period_J[ballots_N], user_N))
        user_N, ballots_N = user_N[order_N], ballots_N[order_N]
        first_S = np.searchsorted(user_N, np.arange(len(users_S)))
        counted_N = np.arange(len(user_N)) - first_S[user_N] < self.layout.cap
        return ballots_N[counted_N], user_N[counted_N]


class _Chunk:
    """Adds up, period by period, what so many voters add."""

    def __init__(self, stream: VoteStream, voters: int, clip_norm: float) -> None:
        self._layout, self._gram_WW = stream.layout, stream.root.gram_WW
        self._voters, self._step = voters, grid.step_for(clip_norm)
        self._most = clip_norm * ROUNDING
        self._most_at_once = stream.layout.clip_norm * min(
            1.0,
            clip_norm / stream.clip_norm,  # where a shorter bound was asked for
        )
        self._counts: dict[str, np.ndarray] = {}
        self._clipped_C = np.zeros(voters, dtype=bool)
        self._vector_CV = np.zeros((voters, stream.layout.size))
        self._added: dict[int, np.ndarray] = {}
        self._square_C = np.zeros(voters)  # of R x

    def add(
        self, votes: ItemVotes, period: int, ballots_N: np.ndarray, rows_N: np.ndarray
    ) -> np.ndarray:
        """Return what the ballots of a period add, (C, V); ``rows_N`` says whose they are."""
        from murmuration.preference.ranking.votes import weighted_numbers

        if not len(ballots_N):
            return np.zeros_like(self._vector_CV)
        new = votes.counts(self._layout, ballots_N, rows_N, self._voters)
        before = self._counts or {name: np.zeros_like(part) for name, part in new.items()}
        cross_CV = np.zeros_like(self._vector_CV)
        for earlier, added_CV in self._added.items():
            cross_CV += self._gram_WW[earlier - 1, period - 1] * added_CV

        def vectors(weight_C: np.ndarray, rows: np.ndarray) -> np.ndarray:
            counts = {
                name: before[name][rows] + weight_C[:, None] * new[name][rows] for name in new
            }
            result_CV = np.empty((len(rows), self._layout.size))
            for name, part in weighted_numbers(self._layout, counts).items():
                result_CV[:, self._layout.places[name]] = part
            clipped_C = self._clipped_C[rows] | (weight_C < 1.0)
            result_CV[:, self._layout.places["clipped"]] = (
                self._layout.weights["clipped"] * clipped_C[:, None]
            )
            return grid.toward_zero(result_CV, self._step)

        def length(vector_CV: np.ndarray, rows: np.ndarray) -> np.ndarray:
            """Return the squared length of R x that this would come to; infinite where the vector
            itself is too long."""
            added_CV = vector_CV - self._vector_CV[rows]
            own_C = (added_CV**2).sum(axis=1)
            square_C = self._square_C[rows] + 2.0 * (cross_CV[rows] * added_CV).sum(axis=1)
            square_C += self._gram_WW[period - 1, period - 1] * own_C
            whole_C = np.sqrt((vector_CV**2).sum(axis=1))
            too_long_C = (whole_C > self._most_at_once) | (own_C > self._most**2)
            return np.where(too_long_C, np.inf, square_C)

        everybody = np.arange(self._voters)
        weight_C = np.ones(self._voters)
        vector_CV = vectors(weight_C, everybody)
        rows = np.flatnonzero(~(length(vector_CV, everybody) <= self._most**2))
        if len(rows):
            low_C, high_C = np.zeros(len(rows)), np.ones(len(rows))
            for _ in range(_HALVINGS):
                middle_C = 0.5 * (low_C + high_C)
                fits_C = length(vectors(middle_C, rows), rows) <= self._most**2
                low_C, high_C = (
                    np.where(fits_C, middle_C, low_C),
                    np.where(fits_C, high_C, middle_C),
                )
            weight_C[rows], vector_CV[rows] = low_C, vectors(low_C, rows)
            # That the votes weigh less takes its part of the length, too: who has no room even for
            # that adds nothing.
            full = rows[~(length(vector_CV[rows], rows) <= self._most**2)]
            vector_CV[full] = self._vector_CV[full]
            self._clipped_C[np.setdiff1d(rows, full)] = True
        added_CV = vector_CV - self._vector_CV
        self._square_C = length(vector_CV, everybody)
        self._counts = {name: before[name] + weight_C[:, None] * new[name] for name in new}
        self._vector_CV = vector_CV
        self._added[period] = added_CV
        return added_CV
