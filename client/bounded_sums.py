"""The sums of a node half over the asked users, even if one user's part fails.

A half bounds what each user contributes. On a deployed node that is checked once more, and a vector
that cannot be computed, or does not fit the request, is left out alone: a sum that failed as a
whole would reveal one user, and would move by all the others.

Legend: S asked users.
"""

import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from murmuration.preference.escaping import get_logger
from murmuration.preference.kinds.model import Examples
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.contributions import STACKED
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.spec import NodeHalf

_log = get_logger("murmuration")
#: Rounding of a length that was computed another time.
_ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class BoundedSums:
    """Compute the sums of a node ``half`` over some users.

    ``steps`` and ``longest`` follow from the request alone: the grids of sums, and how long
    one user's part of "sum" may be.
    """

    half: NodeHalf
    examples: Examples
    work: TrainRequest
    keys_S: np.ndarray
    source: Randomness
    steps: Mapping[str, float]
    longest: float

    def simulated(self) -> dict[str, np.ndarray]:
        """The sums by name; whatever goes wrong ends the run, and is raised.

        Raises:
            FloatingPointError: a sum is not finite.
        """
        sums = self._of(slice(None))
        if not all(np.isfinite(total).all() for total in sums.values()):
            raise FloatingPointError("a sum of bounded contributions is not finite")
        return sums

    def deployed(self) -> dict[str, np.ndarray]:
        """The sums by name: of the users of whom they can be computed.

        Raises:
            ValueError: beside "sum" there would be what no bound is about.
            Exception: the request makes no sense. Both show without anybody.
        """
        nothing = self._of(slice(0))
        bounded = {"sum", "within"} if self.half.counts else {"sum"}
        if self.half.length is not None and set(nothing) != bounded:
            raise ValueError(f"sums {sorted(nothing)}, where {sorted(bounded)} are bounded")
        with left_out("the sum of all users"):
            sums = self._of(slice(None))
            self._check(sums, nothing, len(self.keys_S))
            return sums
        result = {name: self._zeros(name, part, 0) for name, part in nothing.items()}
        for user in range(len(self.keys_S)):
            part = {name: self._zeros(name, each, 1) for name, each in nothing.items()}
            with left_out("a user's part"):
                alone = self._of(slice(user, user + 1))
                self._check(alone, nothing, 1)
                part = alone
            for name in result:
                add = np.concatenate if name in STACKED else sum
                result[name] = add([result[name], part[name]])
        return result

    def _of(self, some: slice) -> dict[str, np.ndarray]:
        work = replace(self.work, users_S=self.work.users_S[some])
        return {**self.half.client_update(self.examples, work, self.keys_S[some], self.source)}

    def _zeros(self, name: str, nothing: np.ndarray, users: int) -> np.ndarray:
        return np.zeros((users, *nothing.shape[1:]) if name in STACKED else nothing.shape)

    def _check(
        self, sums: Mapping[str, np.ndarray], nothing: Mapping[str, np.ndarray], users: int
    ) -> None:
        """ValueError for what so many users' bounded parts, on their grids, do not add up to."""
        shapes = {name: self._zeros(name, part, users).shape for name, part in nothing.items()}
        if {name: total.shape for name, total in sums.items()} != shapes:
            raise ValueError("other sums than those of nobody")
        for name, total in sums.items():
            if not np.isfinite(total).all():
                raise ValueError("a sum that is not finite")
            if step := self.steps.get(name):
                grid.check_whole(total, step)
        if math.isfinite(self.longest):
            length = float(np.linalg.norm(sums["sum"].astype(np.float64)))
            if not length <= users * self.longest * (1.0 + _ROUNDING):
                raise ValueError("a sum that is longer than its users can make it")


@contextmanager
def left_out(what: str) -> Iterator[None]:
    """Go on after any error, and note it for the owner without its text, which may quote a user."""
    try:
        yield
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        _log.error("%s is left out: %s at %s", what, type(error).__name__, where)
