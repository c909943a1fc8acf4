"""AUP with a sound filter: users are weighted by the number of others that they agree with.

Source: AUP-RLHF (Algorithm 2), whose filter does not bound what it is said to bound, with weights
in place of random filtering and counts relative to the users present. In each round the server gets
the averaged gradient of every sampled user, counts for each how many are within ρ, weighs it by
w = max(0, 2f/s − 1), and releases the weighted mean if a noisy total weight says that enough users
agree. If not, the round releases nothing, and is charged all the same. See
``research.strategies.filtered_mean`` for the proof and the test.

Formal guarantee: (epsilon, delta) at the level of users under the plan's adjacency, which may be
any of the four, for the whole sequence of models: T compositions of the Poisson-subsampled Gaussian
with probability M/N that is test and mean together, and T times the probability that a test passes
which should have failed. Nothing is assumed about the data and nothing is clipped. Trusted: the
server, which sees every sampled user's averaged gradient.

Legend: S sampled users, D dimensions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.hold_out import charges_of
from murmuration.research.strategies import filtered_mean
from murmuration.research.strategies.filtered_mean import (
    FILTERED_MEAN,
    FilteredMean,
    TestedGaussian,
)
from murmuration.strategies import contributions, uls
from murmuration.strategies.base import SteppedStrategy
from murmuration.strategies.planning import NOISE, SAMPLED, Planned
from murmuration.strategies.protocol import messages
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    cohort_bytes,
)
from murmuration.strategies.sums import CohortPlan, check_size

#: Step size without noise, on gradients that are not clipped: that of ULS at its default clip norm.
_CEILING = uls.RATE_CEILING / uls.DEFAULT_CLIP
#: Default ρ. Averaged gradients of features of unit scale are a few tenths long, and this is what
#: four in five pairs of users stay within.
DEFAULT_RADIUS = 0.5
#: The share of delta that failing tests may use up.
_FAILURE_SHARE = 0.1
#: W/M that the plan counts on: if four in five pairs are within ρ, it is at least 2 · 0.8 − 1.
_WEIGHT_SHARE = 0.6
#: Standard deviations of the test's noise that a cohort as heavy as counted on lies above the bar.
_AMPLE = 2.0


@dataclass(frozen=True, kw_only=True)
class CorrectedPlan(CohortPlan):
    """Sampled users' vectors are filtered; the mean of the rest gets noise if a test passes.

    ``radius`` is ρ; ``noise_multiplier`` that of test and mean together. How the two share it and
    which W₀ the noise is made for follow from these: the pair that adds the least noise to a mean
    whose cohort weighs 0.6 M.
    """

    radius: float = DEFAULT_RADIUS

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"--delta must be between 0 and 1, got {self.delta}")
        super().__post_init__()

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> Self:
        """The plan with the least noise that costs at most ``epsilon``; other fields as given.

        Raises:
            ValueError: impossible sizes, or a cohort that cannot pass a test at this epsilon.
        """
        users, cohort, rounds, delta = (plan[k] for k in ("users", "cohort", "rounds", "delta"))
        check_size(users, cohort, rounds, plan.get("group_size", 1))

        # One Gaussian without sampling bounds the search, as in ``noise_multiplier_for``.
        high = 2.0 * plan["adjacency"].vectors_changed * math.sqrt(rounds * 3 * math.log(2 / delta))
        failure = _failure(delta, rounds)
        sigma = accountant.calibrate_noise(
            epsilon,
            lambda sigma: {
                TestedGaussian(cohort / users, sigma, failure): rounds,
                **charges_of(plan.get("hold_out")),
            },
            delta=delta,
            adjacency=plan["adjacency"],
            high=max(1.0, high * (1 + 1 / epsilon)),
        )
        return cls(noise_multiplier=sigma, **plan)

    @cached_property
    def mechanism(self) -> FilteredMean:
        """The mechanism that each round runs and charges."""
        share, least = self._best_split()
        return FilteredMean(
            self.coins,
            self.radius,
            least,
            self.noise_multiplier,
            share,
            _failure(self.delta, self.rounds),
            self.adjacency,
        )

    def _best_split(self) -> tuple[float, float]:
        """The test's share and W₀ that give the least noise: all from public numbers."""
        failure, sigma = _failure(self.delta, self.rounds), self.noise_multiplier
        shares = np.linspace(0.005, 0.995, 199)
        stds = np.array([filtered_mean.test_std(sigma, share) for share in shares])
        margins = np.array([filtered_mean.test_margin(std, failure) for std in stds])
        least = _WEIGHT_SHARE * self.cohort - margins - _AMPLE * stds
        worth = np.sqrt(1.0 - shares) * least  # the noise is proportional to its inverse
        best = int(np.argmax(worth))
        if least[best] < 2.0:
            needed = self.cohort + (2.0 - float(least.max())) / _WEIGHT_SHARE
            raise ValueError(
                f"--cohort {self.cohort} cannot pass the test of the corrected filter at this "
                f"epsilon, where it would take at least {math.ceil(needed)} users at this noise; "
                "raise --cohort or --epsilon, lower --rounds, or use --strategy aup"
            )
        return float(shares[best]), float(least[best])

    @property
    def noise(self) -> float:
        """Standard deviation per coordinate of the averaged gradient, where one is released."""
        return self.mechanism.std

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes, which clip nothing."""
        return {"group-size": self.group_size}

    @property
    def clip_norm(self) -> None:
        """None: nothing is clipped."""


def _failure(delta: float, rounds: int) -> float:
    return _FAILURE_SHARE * delta / rounds


class AupCorrected(SteppedStrategy):
    """The server half, with a ``CorrectedPlan``; see ``CohortStrategy``."""

    name = "aup-corrected"
    plan: CorrectedPlan
    stacked = contributions.STACKED

    def __init__(self, plan: CorrectedPlan, ledger: Ledger, **arguments: Any) -> None:
        super().__init__(plan, ledger, **arguments)
        self.failed_tests = 0

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of one row per user."""
        return contributions.shapes(len(self.optimizer.theta))

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite rows; how long they are is not limited."""
        return contributions.is_valid(sums)

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The noisy weighted mean, or zero where the test fails; charged to the ledger first."""
        mean_D = self.plan.mechanism.release(
            contributions.those_present(totals),
            round_=round_,
            covers="filtered mean",
            ledger=self.ledger,
            source=self.source,
        )
        if mean_D is None:
            self.failed_tests += 1
            return np.zeros(len(self.optimizer.theta))
        return mean_D

    def notes(self) -> list[str]:
        """The number of failed tests, which is part of the release."""
        if not self.failed_tests:
            return []
        return [
            f"In {self.failed_tests} of {self.rounds_done} rounds too few users agreed to within "
            f"{self.plan.radius:g}, or noise made it look so: these rounds were charged and taught "
            "the model nothing. A larger cohort, a larger --clip-norm (the radius), fewer rounds "
            "or more budget lets more of them pass."
        ]

    def state(self) -> dict[str, np.ndarray]:
        """Also the number of failed tests."""
        return {**super().state(), "failed-tests": np.array([self.failed_tests])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        super().restore(state)
        self.failed_tests = int(state["failed-tests"][0])


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures; ``--clip-norm`` is the radius ρ."""
    config = context.config
    plan = CorrectedPlan.for_epsilon(
        config.epsilon, radius=config.clip_norm or DEFAULT_RADIUS, **context.cohort_sizes
    )
    built = context.built(AupCorrected, plan, ledger, ceiling=_CEILING)
    return replace(built, bytes_per_user=cohort_bytes(context, up=4))


AUP_CORRECTED = Strategy(
    name="aup-corrected",
    help="AUP-RLHF with weights that make its filter sound, to see what a filter costs.",
    build=build,
    node_halves={"aup-corrected": NodeHalf(contributions.client_update, length=None)},
    theorems=(FILTERED_MEAN,),
    solve=Planned(
        plan=CorrectedPlan,
        takes=SAMPLED,
        free=NOISE,
        tells=lambda plan, query: {"least_weight": plan.mechanism.bar},
    ),
)
