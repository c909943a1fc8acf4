"""The strategies compared on real people, and their training with one setting of their budget.

Every strategy may try 15 settings: five of what bounds a user, three of how far it goes. Of
those that take steps these are multiples of the default clip norm or radius, and of the step size
that is the default at that bound; of label moments multiples of the clip norm and of the ridge that
its rule gives; of randomized response the most labels that a user releases (which its variance asks
for, though its paper does not) and multiples of the default ridge. All else is a run's default, and
of group privacy k = 4, as it is measured elsewhere here.

Two guarantees are compared, each with its own strategies, for figures under two adjacencies do not
compare: of whole users (add-remove) and of their labels (replace-labels). ELS has none of labels.
Published AUP is charged what its paper claims, which is not proven.

Everything but randomized response runs through strategies, messages and ledgers that users get;
those labels are randomized here, and the fit is that of ``--strategy local-label``.

Legend: U users, J judgements, D dimensions.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np
import torch

from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Training
from murmuration.strategies import uls
from murmuration.strategies.adaptive import DEFAULT_START
from murmuration.strategies.aup.published import DEFAULT_RADIUS
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.config import RunConfig
from murmuration.strategies.settings.sampling import usual_cohort
from murmuration.strategies.solved import label_moment
from murmuration.strategies.solved.label_moment import LabelMoment
from murmuration.strategies.solved.local_label import Estimate
from murmuration.strategies.solved.moment_solver import Moment
from murmuration.strategies.steps.optimizers import ServerOptimizer

DELTA = 1e-5
USERS, LABELS = "add-remove", "replace-labels"
ULS, CENTRED, ELS, GROUP = "uls", "aup, centred", "els", "group, k = 4"
LETTER, AS_RUN = "aup, published, to the letter", "aup, published, as run"
RESPONSE, MOMENT = "randomized response", "label-moment"
NONPRIVATE = "no privacy"

#: A setting of the budget: what bounds a user, and how far to go.
Setting = tuple[float, float]
#: Multiples of the default.
BOUNDS, STEPS = (0.4, 0.6, 1.0, 1.6, 3.2), (1.0, 3.0, 9.0)
#: Most labels of a user that are released; 0: all.
CAPS = (1.0, 2.0, 4.0, 8.0, 0.0)


@dataclass(frozen=True)
class Rival:
    """A strategy under an adjacency.

    Attributes:
        bound: its default clip norm or radius; 0 of randomized response, which has none.
        config: other settings than a run's default.
    """

    name: str
    adjacency: str
    bound: float
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Its budget."""
        return tuple(itertools.product(BOUNDS if self.bound else CAPS, STEPS))


_BOTH = (
    (ULS, uls.DEFAULT_CLIP, {"strategy": "uls"}),
    (CENTRED, DEFAULT_START, {"strategy": "aup"}),
    (LETTER, DEFAULT_RADIUS, {"strategy": "aup", "variant": "published"}),
    (AS_RUN, DEFAULT_RADIUS, {"strategy": "aup", "variant": "published-as-run"}),
)
RIVALS = (
    *(Rival(name, USERS, bound, config) for name, bound, config in _BOTH),
    Rival(ELS, USERS, uls.DEFAULT_CLIP, {"strategy": "els"}),
    Rival(GROUP, USERS, uls.DEFAULT_CLIP, {"strategy": "group", "group_size": 4}),
    *(Rival(name, LABELS, bound, config) for name, bound, config in _BOTH),
    Rival(MOMENT, LABELS, label_moment.DEFAULT_CLIP, {"strategy": "label-moment"}),
    Rival(RESPONSE, LABELS, 0.0),
)


class Learners:
    """People to learn heads from.

    Args:
        examples: their judgements, of pairs.
        rounds: of strategies that take steps.
        start_D: where these begin; None: at zero.
    """

    def __init__(
        self, examples: PairExamples, rounds: int, start_D: np.ndarray | None = None
    ) -> None:
        self.examples, self.rounds, self._start_D = examples, rounds, start_D

    def head(self, rival: Rival, setting: Setting, epsilon: float, seed: int) -> np.ndarray:
        """The head of one run, (D,)."""
        bound, step = setting
        if not rival.bound:
            return self._from_coins(int(bound), step, epsilon, seed)
        training = Training(self.examples, Randomness(seed), self._start_D)
        config = self._config(rival, epsilon, seed).changed(clip_norm=bound * rival.bound)
        with training.begun(config) as (strategy, _):
            usual = _usual(strategy)
        strategy, _ = training.run(
            config.changed(**{name: step * value for name, value in usual.items()})
        )
        return strategy.optimizer.result_D

    def without_privacy(self, seed: int) -> np.ndarray:
        """The head of the non-private twin of uls, with nothing tuned, (D,)."""
        twin = Rival(NONPRIVATE, USERS, 0.0, {"strategy": "nonprivate"})
        config = self._config(twin, 1.0, seed)
        strategy, _ = Training(self.examples, Randomness(seed)).run(config)
        return strategy.optimizer.result_D

    def _config(self, rival: Rival, epsilon: float, seed: int) -> RunConfig:
        users, settings = len(self.examples.counts_U), dict(rival.config)
        if rival.name != MOMENT:  # which asks everybody, once
            settings |= {"rounds": self.rounds, "cohort": usual_cohort(users)}
        return RunConfig.from_run_config(
            {
                "epsilon": epsilon,
                "delta": DELTA,
                "adjacency": rival.adjacency,
                "test": "other users",
                "seed": seed,
                **{name.replace("_", "-"): value for name, value in settings.items()},
            }
        )

    def _from_coins(self, cap: int, ridge: float, epsilon: float, seed: int) -> np.ndarray:
        """The head fitted to randomized labels, at most ``cap`` per user, with the δ of the other
        strategies spent on composing them.
        """
        examples, generator = self.examples, np.random.default_rng([seed, cap, 38])
        chosen, flips = [], []
        for first, count in zip(
            examples.start_U.tolist(), examples.counts_U.tolist(), strict=False
        ):
            taken = min(cap or count, count)
            chosen.append(first + generator.permutation(count)[:taken])
            flips.append(np.full(taken, _flip_probability(epsilon, cap, count)))
        row_J, flip_J = np.concatenate(chosen), np.concatenate(flips)
        x_JD, y_J = examples.x_RD[row_J], examples.y_R[row_J].numpy()
        # A tie is broken by a fair coin, and then randomized like any label.
        first_J = np.where(y_J == 0.5, generator.random(len(y_J)) < 0.5, y_J > 0.5)
        first_J ^= generator.random(len(y_J)) < flip_J
        labels = RandomizedLabels.of_pairs(
            x_JD, torch.from_numpy(first_J), torch.from_numpy(flip_J)
        )
        square = float((x_JD.double() ** 2).sum(1).mean())
        return Estimate(ridge=ridge * square).of(labels)[0].numpy().astype(np.float32)


@cache
def _flip_probability(epsilon: float, cap: int, count: int) -> float:
    promise = LabelPromise(epsilon, cap=cap, delta=DELTA)
    return RandomizedResponse(promise.per_label(promise.most(count))).flip_probability


def _usual(strategy: CohortStrategy) -> dict[str, float]:
    """The setting that controls a strategy's step, with its default."""
    if isinstance(strategy, LabelMoment):
        zero_D, plan = np.zeros(len(strategy.optimizer.theta)), strategy.plan
        ridge = strategy.solver.ridge_for([Moment(zero_D, zero_D, plan.clip, plan.std)])
        return {"ridge": ridge}
    return {"learning_rate": cast(ServerOptimizer, strategy.optimizer).rate()}
