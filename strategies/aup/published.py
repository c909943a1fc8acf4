"""AUP-RLHF as published, to compare with: its claim of privacy is not proven, and does not hold.

Source: AUP-RLHF, Algorithms 1–3, to the letter. Phases on disjoint halves of the users
(``strategies.aup.schedule``); in each, until a noisy test of the concentration score says "no":
score the cohort's averaged gradients by pairs within τ, keep each user with a probability that
depends on the number of others within 2τ, average the users kept, add N(0, 8τ² log(e^ε T/δ) ς²/ñ²),
step. A phase hands on the average of its iterates. ς is calibrated for (ε/2, δ/2), here with the
privacy loss distribution accountant under the run's adjacency, where the paper uses an RDP
accountant under add-remove; the other ε/2 is for the test. A test that says "no" ends its phase;
what the phase had planned is charged all the same, because when it ended depends on data.

That is the reading *to the letter*. In the reading *as run* there is one phase of all users, from
whom exactly ñ are drawn in each round: the paper's Tables 1 and 2 can only be computed with all n,
and its test, which compares with 4ñ/5, halts a Poisson cohort that comes out small. That its
authors ran it so is inferred. Charged is the same event.

Formal guarantee: **none is proven**. What the ledger charges is what the paper claims. The findings
are in ``FINDINGS``, with proofs and counterexamples in docs/research/aup.md. Trusted: the server,
which sees every sampled user's gradient.

Legend: S users present, N users in the registry, D dimensions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event, ParallelEvent, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger, LedgerOfPart
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold, Halted, OpenThreshold
from murmuration.privacy.mechanisms.coins import user_words
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.strategies import contributions
from murmuration.strategies.aup.schedule import Phase, phase_of
from murmuration.strategies.base import SteppedStrategy
from murmuration.strategies.protocol import messages
from murmuration.strategies.steps.optimizers import PhasedSettings, PhasedSgd
from murmuration.strategies.steps.step_size import noise_limited_rate
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE, check_size

#: Default τ: what nearly all pairs of averaged gradients stay within, for features of unit scale.
#: The test wants four fifths of all pairs to.
DEFAULT_RADIUS = 0.75

FINDINGS = (
    "AUP as published: epsilon is what the paper claims, not a guarantee, and its proof does not "
    "hold. Use --variant centred.",
    "Its noise is for a filtered mean that moves by about 12 to 15 τ/ñ. With an odd cohort ñ, "
    "changing one user can move that mean by any distance with probability 0.78; where a Poisson "
    "cohort comes out larger than ñ, two clusters can be kept that are any distance apart.",
    "Its test is calibrated for a score that moves by 1 when one user changes. The score moves by "
    "nearly 2, so the test alone costs up to ε, not ε/2.",
    "A passed test certifies little: the noise of the test exceeds 89/ε with probability 1e-5, and "
    "178/ε if it were made for the true sensitivity. At ε = 1 and ñ = 101, a cohort of two far "
    "halves passes with probability 0.015 each time.",
)

FIXED_SIZE = (
    "Read as its authors can have run it, cohorts have exactly ñ users. Its rounds are accounted "
    "as if every user had tossed a coin of their own, which then nobody does."
)


# The filter: whose vector is near to how many others'.
#
# Two points that are kept in one cohort of exactly ñ users are near to each other. In a Poisson
# cohort that came out larger than ñ, or between neighbouring cohorts when ñ is odd, they can be
# arbitrarily far apart.


def distances(rows_SD: np.ndarray) -> np.ndarray:
    """ℓ2 distances between all pairs of finite rows, (S, S) float64.

    A pair's distance depends on these two rows alone, to the last bit: a matrix product would round
    differently with other rows around.
    """
    if len(rows_SD) < 2:
        return np.zeros((len(rows_SD), len(rows_SD)))
    from scipy.spatial.distance import pdist, squareform  # dear to import, for this alone

    return squareform(pdist(np.asarray(rows_SD, dtype=np.float64)))


def degrees(near_SS: np.ndarray) -> np.ndarray:
    """f_i: the number of users, oneself included, that each is near to; int64 (S,)."""
    return near_SS.sum(axis=1, dtype=np.int64)


def concentration_score(near_SS: np.ndarray, nominal: int) -> float:
    """The concentration score of AUP-RLHF (Algorithm 2, line 8): near ordered pairs over ñ."""
    return float(near_SS.sum()) / nominal


def keep_probabilities(degrees_S: np.ndarray, nominal: int) -> np.ndarray:
    """The probabilities with which AUP-RLHF keeps each user (Algorithm 2, line 12), (S,)."""
    return np.clip(6.0 * (degrees_S / nominal - 0.5), 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class PublishedPlan:
    """Algorithm 1's constants: phases, and ς of each. ``epsilon`` is the paper's claim."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    phases: tuple[Phase, ...]
    noise_multipliers: tuple[float, ...]
    as_run: bool = False
    group_size: int = DEFAULT_GROUP_SIZE

    sampler = PoissonSampler(1.0)  # whom the coins of a phase choose: see ``sample_cohort``

    def __post_init__(self) -> None:
        if len(self.phases) != len(self.noise_multipliers) or not self.phases:
            raise ValueError("every phase needs a noise multiplier of its own")
        if self.as_run and len(self.phases) > 1:
            raise ValueError("with cohorts of exactly one size there is one phase, of all users")
        for phase in self.phases:
            check_size(phase.users, phase.cohort, phase.rounds, self.group_size)
            for value, name in ((phase.rate, "rate"), (phase.radius, "radius")):
                if not (math.isfinite(value) and value > 0):
                    raise ValueError(f"the {name} of a phase must be positive, got {value}")
        _ = self.charges  # validates the rest

    @classmethod
    def for_epsilon(
        cls, epsilon: float, *, phases: tuple[Phase, ...], **plan: Any
    ) -> "PublishedPlan":
        """Algorithm 2, line 2, for each phase: ς ← PrivacyAccount(ε/2, δ/2, n_i, ñ_i, T_i)."""
        return cls(
            epsilon=epsilon,
            phases=phases,
            noise_multipliers=tuple(
                accountant.noise_multiplier_for(
                    epsilon / 2.0,
                    delta=plan["delta"] / 2.0,
                    probability=phase.cohort / phase.users,
                    rounds=phase.rounds,
                    adjacency=plan["adjacency"],
                )
                for phase in phases
            ),
            **plan,
        )

    def noise_limited(self) -> "PublishedPlan":
        """The plan with smaller step sizes if the noise requires them; see
        ``strategies.steps.optimizers``.
        """
        rates = [
            noise_limited_rate(self.std(number), PhasedSettings.of((phase,)), phase.rate)
            for number, phase in enumerate(self.phases, start=1)
        ]
        phases = zip(self.phases, rates, strict=True)
        return replace(self, phases=tuple(replace(phase, rate=rate) for phase, rate in phases))

    def place(self, round_: int) -> tuple[int, int]:
        """Phase (1, 2, …) and step within it (1, 2, …) of a round."""
        for number, phase in enumerate(self.phases, start=1):
            if round_ <= phase.rounds:
                return number, round_
            round_ -= phase.rounds
        raise ValueError("there are no rounds after the last phase")

    def test(self, number: int) -> AboveThreshold:
        """Algorithm 3 as Algorithm 2 runs it: ε/2, sensitivity 1, threshold 4ñ/5."""
        cohort = self.phases[number - 1].cohort
        return AboveThreshold(0.8 * cohort, self.epsilon / 2.0, 1.0, self.adjacency)

    def event(self, number: int) -> PoissonGaussian:
        """The claimed event of one noisy mean of a phase, as in the paper."""
        phase = self.phases[number - 1]
        return PoissonGaussian(phase.cohort / phase.users, self.noise_multipliers[number - 1])

    def std(self, number: int) -> float:
        """Algorithm 2, line 15: standard deviation of the noise on each coordinate of a mean."""
        phase = self.phases[number - 1]
        log_term = self.epsilon + math.log(phase.rounds / self.delta)
        scale = math.sqrt(8.0 * log_term) * phase.radius / phase.cohort
        return scale * self.noise_multipliers[number - 1]

    @property
    def charges(self) -> dict[Event, int]:
        """The claimed events of the whole run, by phase, as in the paper."""
        result: dict[Event, int] = {}
        for number, phase in enumerate(self.phases, start=1):
            result[self._on_part(number, self.test(number).event)] = 1
            result[self._on_part(number, self.event(number))] = phase.rounds
        return result

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: the number of a user's judgements that count."""
        return {"group-size": self.group_size}

    def _on_part(self, number: int, event: Event) -> Event:
        return event if len(self.phases) == 1 else ParallelEvent(number, event)

    def ledger_of(self, number: int, ledger: Ledger) -> Ledger:
        """The ledger that a phase charges; phases have disjoint users."""
        return ledger if len(self.phases) == 1 else cast(Ledger, LedgerOfPart(ledger, number))

    @property
    def noise(self) -> float:
        """The noise of the last and largest phase."""
        return self.std(len(self.phases))


class AupPublished(SteppedStrategy):
    """The server half, with a ``PublishedPlan``; see ``CohortStrategy``.

    The optimizer must be a ``PhasedSgd`` over the plan's phases; what must fit the budget is what
    the paper claims the plan to cost.
    """

    name = "aup-published"
    stacked = contributions.STACKED
    plan: PublishedPlan
    optimizer: PhasedSgd

    def __init__(self, plan: PublishedPlan, ledger: Ledger, **arguments: Any) -> None:
        super().__init__(plan, ledger, **arguments)
        self._tests: dict[int, OpenThreshold] = {}
        self._names_S = np.empty(0, dtype=np.uint64)  # of the cohort

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of one row per user."""
        return contributions.shapes(len(self.optimizer.theta))

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite rows; how long they are is not limited."""
        return contributions.is_valid(sums)

    def sample_cohort(self, round_: int) -> np.ndarray:
        """A Poisson cohort of the users of the round's phase, or as run exactly ñ of all users;
        empty once the run was halted.

        A user's phase depends on the user's name alone: places in the registry change when other
        users come or go.
        """
        number, _ = self.plan.place(round_)
        if self.optimizer.halted:
            return np.empty(0, dtype=np.int64)
        train, phase = self.participants.train, self.plan.phases[number - 1]
        names_N = self.participants.registry.keys_N
        if self.plan.as_run:
            words_N = user_words(self.source.key("cohort of exactly ñ", round_), names_N[train])
            chosen = np.sort(train[np.argsort(words_N)[: phase.cohort]])
        else:
            mine = train[phase_of(names_N[train], len(self.plan.phases)) == number]
            sampler = PoissonSampler(phase.cohort / phase.users)
            chosen = mine[sampler.draw(names_N[mine], self.source, round_)]
        self._names_S = names_N[chosen]
        return chosen

    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """Algorithm 2, lines 8–15: the noisy mean of who was kept; zero in a halted phase.

        Raises:
            Halted: the last phase was halted.
        """
        zero_D = np.zeros(len(self.optimizer.theta))
        if self.optimizer.halted:
            return zero_D
        number, step = self.plan.place(round_)
        phase, rows_SD = self.plan.phases[number - 1], contributions.those_present(totals)
        distances_SS = distances(rows_SD)
        score = concentration_score(distances_SS <= phase.radius, phase.cohort)
        if not self.passes(number, step, score):
            self._halt(number, step, round_, self.plan.ledger_of(number, self.ledger))
            return zero_D
        names_S = self._names_S[totals["present"] == 1.0]
        return self.filtered(rows_SD, distances_SS <= 2.0 * phase.radius, names_S, round_)

    def passes(self, number: int, step: int, score: float) -> bool:
        """Algorithm 3 at a step of a phase: whether enough of the cohort are near each other."""
        if number not in self._tests:
            self._tests[number] = self.plan.test(number).open(
                round_=number,
                covers="concentration test",
                ledger=self.plan.ledger_of(number, self.ledger),
                source=self.source,
            )
        return self._tests[number].ask(score, step)

    def filtered(
        self, rows_SD: np.ndarray, near_SS: np.ndarray, names_S: np.ndarray, round_: int
    ) -> np.ndarray:
        """Algorithm 2, lines 11–15, after a passed test: random filter, mean, noise; charged."""
        number, _ = self.plan.place(round_)
        kept_SD = rows_SD[self._coins(near_SS, names_S, self.plan.phases[number - 1], round_)]
        zero_D = np.zeros(len(self.optimizer.theta))
        return noisy_mean(
            kept_SD.mean(axis=0) if len(kept_SD) else zero_D,
            self.plan.std(number),
            self.plan.event(number),
            round_=round_,
            ledger=self.plan.ledger_of(number, self.ledger),
            source=self.source,
        )

    def _coins(
        self, near_SS: np.ndarray, names_S: np.ndarray, phase: Phase, round_: int
    ) -> np.ndarray:
        """Algorithm 2, lines 11–12: which users are kept at random, bool (S,)."""
        kept_S = keep_probabilities(degrees(near_SS), phase.cohort)
        words_S = user_words(self.source.key("filter coins", round_), names_S)
        return (words_S >> np.uint64(11)) * 2.0**-53 < kept_S

    def _halt(self, number: int, step: int, round_: int, ledger: Ledger) -> None:
        """End the phase, charging what it had planned: when it ended depends on data."""
        left = range(self.plan.phases[number - 1].rounds - step + 1)
        for later in left:
            covers = "not released: halted"
            ledger.charge(self.plan.event(number), round_=round_ + later, covers=covers)
        self.optimizer.halted = True
        if number == len(self.plan.phases):
            raise Halted(
                "the concentration test said no: too few users agree to within "
                f"{self.plan.phases[number - 1].radius:g}, or noise made it look so. "
                "What was planned has been charged in full"
            )

    def notes(self) -> list[str]:
        """Findings about the published algorithm, in this reading."""
        return [*FINDINGS, FIXED_SIZE] if self.plan.as_run else list(FINDINGS)


def noisy_mean(
    mean_D: np.ndarray,
    std: float,
    event: Event,
    *,
    round_: int,
    ledger: Ledger,
    source: Randomness,
) -> np.ndarray:
    """``mean_D`` with noise of ``std``, (D,); ``event`` is charged first.

    Formal guarantee: none. The event is what is claimed, and nothing here bounds the mean.
    """
    covers = "filtered mean, as published"
    charge = ledger.charge(event, round_=round_, covers=covers, seeded=source.seeded)
    noise = source.stream(f"noise {covers}", round_, charge.attempt)
    return mean_D + std * noise.standard_normal(mean_D.shape)
