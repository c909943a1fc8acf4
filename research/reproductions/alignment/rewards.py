"""Rewards of the embedded population's users, by AUP-RLHF and what its paper compares it with.

Source: AUP-RLHF, Section 6 and Table 5: a linear head, n users with m judgements each, cohorts of
50 users, 5 epochs, all of a user's judgements in each gradient; δ = 1e-5, user-level label privacy
(``replace-labels``). What differs:

- The features are hashed n-grams, the paper's a frozen RoBERTa.
- Step sizes are the strategies' own, which follow from the noise. (The paper's 1e-3 would hardly
  move this head.)
- AUP's τ is the least that suits it: what 95 % of the pairs of *public* users' averaged gradients
  lie within at the start. The paper's 3 is for other features.
- Published AUP is read in three ways. *To the letter* its one phase has half of all users and its
  cohorts are Poisson: then it halts early, since its test wants 4ñ/5 pairs a user, and where fewer
  than √0.8·ñ users come, 45 of 50, there are too few *whatever τ is*. *As run* it has all users,
  and exactly ñ a round (inferred: only so do the paper's Tables 1 and 2 come out, and only so does
  its test let most rounds pass), with the ñ = 100 of these tables for TL;DR. And with *everybody*,
  all users of that half, in each round, as in its Theorem 4.
- Randomized response has two readings, too: with the δ of the run spent on composing a user's
  labels, and with ε/m a label, as the paper has it.
- Label moments, which are ours and not the paper's, are one release, of all users' labels.
- Randomized response is fitted to the end, by the debiased likelihood, and not stepped.

Everything but randomized response runs through strategies, messages and ledgers that users get, on
a node that has the features; those labels are randomized here, and the fit is that of ``--strategy
local-label``.

Legend: U users, J judgements, D dimensions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any, cast

import numpy as np
import torch

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.preference.features.hashing import FeatureMap, feature_map, parse_features
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Training
from murmuration.sims.population.population import Population
from murmuration.strategies.aup.published import AupPublished
from murmuration.strategies.config import RunConfig
from murmuration.strategies.solved.local_label import Estimate

DELTA = 1e-5
HASHING, _LENGTH = "hashing", "log"
PUBLISHED, AS_RUN, CENTRED = "AUP, to the letter", "AUP, as run", "AUP, centred"
EVERYBODY = "AUP, everybody a round"
#: Not among what is compared: the same noise, and what its test does to it is seen beside.
UNTESTED = "AUP, as run, its test off"
USERWISE, GROUP = "user-wise DP-SGD", "group privacy"
RESPONSE, RESPONSE_SPLIT = "randomized response", "randomized response, ε/m a label"
MOMENTS = "label moments"
NONPRIVATE = "non-private"
#: What is compared at an ε, in the order of tables.
PRIVATE = (
    PUBLISHED, AS_RUN, EVERYBODY, CENTRED, USERWISE, GROUP, RESPONSE, RESPONSE_SPLIT, MOMENTS,
)  # fmt: skip
#: Those that are AUP.
VARIANTS = (PUBLISHED, AS_RUN, EVERYBODY, CENTRED)
#: Those that the paper's claims are tried on.
CLAIMED = PRIVATE[:-1]
BASELINES = (USERWISE, GROUP, RESPONSE, RESPONSE_SPLIT)

_STRATEGY: Mapping[str, Mapping[str, Any]] = {
    PUBLISHED: {"strategy": "aup", "variant": "published"},
    AS_RUN: {"strategy": "aup", "variant": "published-as-run"},
    EVERYBODY: {"strategy": "aup", "variant": "published"},
    CENTRED: {"strategy": "aup"},
    USERWISE: {"strategy": "uls"},
    GROUP: {"strategy": "group"},
    MOMENTS: {"strategy": "label-moment"},
    NONPRIVATE: {"strategy": "nonprivate"},
}
#: First numbers of seeds: of public users, and of those trained on.
_PUBLIC, _TRAINED = 5_000_000, 3_000
_PAIRS_WITHIN = 0.95


@dataclass(frozen=True)
class Sizes:
    """Numbers of users, judgements, participants and rounds.

    ``cohort`` and ``epochs`` are Table 5's; ``cohort_as_run`` is that of AUP as run. ``features``
    are those of `murmuration run`; `hashing` with the definition of length that was the default
    when the committed results were measured.
    """

    users: int
    each: int
    cohort: int = 50
    epochs: int = 5
    cohort_as_run: int = 50
    features: str = HASHING

    @property
    def rounds(self) -> int:
        """The number of rounds in which each user takes part ``epochs`` times, on average."""
        return max(1, self.epochs * self.users // self.cohort)


@dataclass(frozen=True, eq=False)
class Learnt:
    """A reward, and how often it prefers what others who were not trained on did."""

    theta_D: np.ndarray
    accuracy: float
    rounds: int


def judged(
    users: int, each: int, seed: int, split: str = "train", kind: str = HASHING
) -> PairExamples:
    """Users of the embedded population with exactly ``each`` judgements each, without ties."""
    population = Population(
        users=users,
        test_users=users,
        seed=seed,
        median_judgements=each,
        judgements_spread=0.0,
        max_judgements=max(each, 1),
        tie_peak=0.0,
    )
    return pair_examples(Judgements.from_rows(population.rows(split)), features(kind))


def judged_in_training(users: int, each: int, seed: int, kind: str = HASHING) -> PairExamples:
    """The users on whom a seed's rewards are trained."""
    return judged(users, each, _TRAINED + seed, kind=kind)


def features(kind: str = HASHING) -> FeatureMap:
    """The feature map of rewards."""
    return feature_map(parse_features(kind, _LENGTH))


def first_of_each(examples: PairExamples, each: int) -> PairExamples:
    """The same users with their first judgements only."""
    counts_U = examples.counts_U.clamp(max=each)
    start_U = torch.cat([torch.zeros(1, dtype=torch.int64), counts_U.cumsum(0)])
    rows_J = torch.arange(int(start_U[-1])) - torch.repeat_interleave(start_U[:-1], counts_U)
    rows_J += torch.repeat_interleave(examples.start_U[:-1], counts_U)
    return PairExamples(examples.x_RD[rows_J], examples.y_R[rows_J], start_U)


def usual_radius(examples: PairExamples, share: float = _PAIRS_WITHIN) -> float:
    """Within which this share of the pairs of users' averaged gradients lie, at a head of zero."""
    user_J = torch.repeat_interleave(torch.arange(len(examples.counts_U)), examples.counts_U)
    slope_J = (0.5 - examples.y_R)[:, None]  # of the log loss, where both are as likely
    gradient_UD = torch.zeros(len(examples.counts_U), examples.dimension)
    gradient_UD.index_add_(0, user_J, slope_J * examples.x_RD)
    gradient_UD /= examples.counts_U[:, None]
    return float(torch.quantile(torch.pdist(gradient_UD), share))


class People:
    """Users to learn rewards from, and others to test them on.

    Args:
        sizes: of those trained on.
        seed: of the users, of sampling and of noise.
        examples: theirs, if already computed.
    """

    def __init__(self, sizes: Sizes, seed: int, examples: PairExamples | None = None) -> None:
        self.sizes, self._seed = sizes, seed
        self._examples = examples or judged_in_training(
            sizes.users, sizes.each, seed, sizes.features
        )
        self._training = Training(self._examples, Randomness(seed))

    @cached_property
    def _test(self) -> PairExamples:
        return judged(500, 10, _TRAINED + self._seed, "test", self.sizes.features)

    @cached_property
    def _radius(self) -> float:
        return usual_radius(judged(200, self.sizes.each, _PUBLIC, kind=self.sizes.features))

    def learnt(self, name: str, epsilon: float | None) -> Learnt:
        """The reward by one of ``PRIVATE`` at ``epsilon``, or without privacy (None)."""
        if name in (RESPONSE, RESPONSE_SPLIT):
            assert epsilon
            delta = DELTA if name == RESPONSE else 0.0
            return self._made(self._from_coins(epsilon, delta), 1)
        if name == UNTESTED:
            config = self.settings(AS_RUN, epsilon)
            with self._training.begun(config) as (strategy, _):
                cast(AupPublished, strategy).passes = lambda number, step, score: True
                strategy.start(self._training.grid, num_rounds=config.rounds)
        else:
            strategy, _ = self._training.run(self.settings(name, epsilon))
        return self._made(strategy.optimizer.result_D, strategy.rounds_done)

    def settings(self, name: str, epsilon: float | None) -> RunConfig:
        """The settings of a run of any strategy except randomized response."""
        sizes, given = self.sizes, dict(_STRATEGY[name])
        if name == EVERYBODY:
            sizes = replace(sizes, cohort=sizes.users)
        if name == AS_RUN:
            sizes = replace(sizes, cohort=sizes.cohort_as_run)
        if name in (PUBLISHED, AS_RUN, EVERYBODY):
            given["clip_norm"] = self._radius
        if name == GROUP:
            given["sampling_probability"] = sizes.cohort / sizes.users
        if name != MOMENTS:  # which asks everybody, once
            given |= {"rounds": sizes.rounds, "cohort": sizes.cohort, "group_size": sizes.each}
        return RunConfig.from_run_config(
            {
                "epsilon": epsilon or 1.0,
                "delta": DELTA,
                "adjacency": "replace-labels",
                "test": "other users",
                "seed": self._seed,
                **given,
            }
        )

    def _from_coins(self, epsilon: float, delta: float) -> np.ndarray:
        examples, each = self._examples, self.sizes.each
        coin = RandomizedResponse(LabelPromise(epsilon, delta=delta).per_label(each))
        generator = np.random.default_rng([self._seed, each, 1])
        kept_J = torch.from_numpy(generator.random(len(examples.y_R)) >= coin.flip_probability)
        # The preferred response is the first: a label is false where its coin says so.
        told = RandomizedLabels.of_pairs(examples.x_RD, kept_J, coin.flip_probability)
        return Estimate().of(told)[0].numpy()

    def _made(self, theta_D: np.ndarray, rounds: int) -> Learnt:
        return Learnt(theta_D, self._test.accuracy(theta_D).pooled, rounds)


def compared(
    task: tuple[Sizes, int, Sequence[float], Sequence[str]],
) -> dict[tuple[str, float | None], Learnt]:
    """Rewards of one seed, by strategy and ε: of sizes, a seed, ε's and strategies."""
    sizes, seed, epsilons, names = task
    people = People(sizes, seed)
    result: dict[tuple[str, float | None], Learnt] = {
        (name, epsilon): people.learnt(name, epsilon) for epsilon in epsilons for name in names
    }
    result[NONPRIVATE, None] = people.learnt(NONPRIVATE, None)
    return result


def halts(found: Sequence[Mapping[tuple[str, float | None], Learnt]]) -> list[str]:
    """Sentences on the number of rounds that published AUP took before its test failed, or the
    rounds ended.
    """
    return [
        f"{name}, ε = {epsilon:g}: {fmean(one[name, epsilon].rounds for one in found):.1f} rounds, "
        "on average over seeds, until its test said no or none was left."
        for name, epsilon in found[0]
        if name in (PUBLISHED, AS_RUN, EVERYBODY)
    ]
