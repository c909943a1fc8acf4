"""Group size and cohort for a compute budget: "Estimate-and-Double", and its rivals.

Source: Charles et al. 2024 (user-level DP fine-tuning), Appendix I, Algorithm 3. A round of ULS
computes G·M gradients of single judgements, and the noise on its averaged gradient has the standard
deviation L(G)·σ(M)/M per coordinate (their eq. 6): the longer the gradients of whole users, the
more noise, and averaging more judgements of a user shortens them. From a small start the algorithm
doubles whichever of G and M shrinks that more, until the budget is used.

Two departures from the printed text. Its eqs. 9 and 11 leave out the division by M of eq. 6; to the
letter τ_M = σ(2M)/σ(M) is at least 1, and Algorithm 3 would never double M. Here the ratio is that
of σ(M)/M. And it stops short of the budget where one more doubling would exceed it.

Nothing here looks at data: L and σ are functions that the caller has estimated or accounted for.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: From a group size G to the typical length L(G) of a user's averaged gradient.
Length = Callable[[int], float]
#: From a cohort M to the noise multiplier σ(M) that meets the target there.
Multiplier = Callable[[int], float]


@dataclass(frozen=True, order=True)
class Point:
    """A group size G with a cohort M."""

    group_size: int
    cohort: int

    @property
    def compute(self) -> int:
        """Gradients of single judgements in a round, at most."""
        return self.group_size * self.cohort


@dataclass(frozen=True)
class Step:
    """One doubling: the factor of the noise for each choice, and the resulting point."""

    at: Point
    group_ratio: float
    cohort_ratio: float
    to: Point


@dataclass(frozen=True)
class Space:
    """The choices: doublings of ``start`` within ``compute``, with at most ``users`` users.

    Raises ValueError if the start is not within.
    """

    start: Point
    compute: int
    users: int

    def __post_init__(self) -> None:
        if min(self.start.group_size, self.start.cohort) < 1:
            raise ValueError(f"group size and cohort start from at least 1, not {self.start}")
        if self.start.cohort > self.users:
            raise ValueError(
                f"a cohort of {self.start.cohort} is more than the {self.users} users there are"
            )
        if self.start.compute > self.compute:
            raise ValueError(
                f"--compute {self.compute} is less than the smallest start, group size "
                f"{self.start.group_size} with a cohort of {self.start.cohort}; raise it"
            )

    def doubled_group(self, point: Point) -> Point | None:
        """The point with twice the group size; None beyond the budget."""
        return self._within(Point(2 * point.group_size, point.cohort))

    def doubled_cohort(self, point: Point) -> Point | None:
        """The point with twice the cohort; None beyond the budget or the users."""
        return self._within(Point(point.group_size, 2 * point.cohort))

    def frontier(self) -> list[Point]:
        """Every point that uses the budget as far as doublings can, by rising cohort."""
        result, point = [], self.start
        while True:
            rest = self.compute // (point.group_size * point.cohort)
            result.append(Point(point.group_size << (rest.bit_length() - 1), point.cohort))
            if (larger := self.doubled_cohort(point)) is None:
                return result
            point = larger

    def _within(self, point: Point) -> Point | None:
        fits = point.compute <= self.compute and point.cohort <= self.users
        return point if fits else None


def noise(point: Point, length: Length, multiplier: Multiplier) -> float:
    """Standard deviation per coordinate of the averaged gradient, with L(G) as the clip norm."""
    return length(point.group_size) * multiplier(point.cohort) / point.cohort


def estimate_and_double(space: Space, length: Length, multiplier: Multiplier) -> list[Step]:
    """Algorithm 3: the doublings, in order; the last step's ``to`` is the recommendation.

    Where the cohort cannot grow any more, the group size does as long as it helps. No steps at all
    mean that the start is the recommendation.
    """
    point, steps = space.start, []
    while True:
        group, cohort = space.doubled_group(point), space.doubled_cohort(point)
        here = noise(point, length, multiplier)
        group_ratio = noise(group, length, multiplier) / here if group else math.inf
        cohort_ratio = noise(cohort, length, multiplier) / here if cohort else math.inf
        if group is not None and group_ratio < min(cohort_ratio, 1.0):
            to = group
        elif cohort is not None:
            to = cohort
        else:
            return steps
        steps.append(Step(point, group_ratio, cohort_ratio, to))
        point = to


def rivals(space: Space, length: Length, multiplier: Multiplier) -> Mapping[str, Point]:
    """Other ways to use the budget: the largest cohort, the largest group, and the least noise.

    "least noise" looks at every point of the frontier, where Algorithm 3 looks along one path.
    """
    points = space.frontier()
    return {
        "least noise": min(points, key=lambda point: noise(point, length, multiplier)),
        "max cohort": max(points, key=lambda point: point.cohort),
        "max group size": max(points, key=lambda point: point.group_size),
    }
