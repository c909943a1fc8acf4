"""Objective perturbation: a random linear term in the likelihood, whose minimiser is released.

Source: Chowdhury et al. 2024, Algorithm 2, Theorem 5.2; Kifer et al. 2012. What the noise must be
is derived in ``research.strategies.objective_noise``.

A run protects labels (``replace-labels``), where the random term is one Gaussian release: nodes
send Σ_u a_u · mean of x·(y − ½) over user u's judgements. The weight a_u is public: one over how
far all labels of the user together could move their mean (``perturbed_minimiser``, beside). So
every user can move the sum by exactly one, and no user's features have to be clipped for it. The
server adds w and minimises over public features.

min Σ_u a_u · mean of loss + (ridge/2)‖θ‖² + ⟨w, θ⟩

With a ``length`` given, a_u = min(1, length / reach), which for one judgement a user is the paper's
bound on ‖x‖.

Formal guarantee: (epsilon, delta) for all labels of one user under ``replace-labels``. Trusted: the
nodes, and the server with the sum before noise.

Legend: R rows (judgements of pairs), U users, S sampled users, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Public, Shown
from murmuration.privacy.mechanisms.clipping import LabelClip, UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Mechanism, Unit, select
from murmuration.strategies.planning import RELEASED_ONCE, Planned
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.own import Solved
from murmuration.strategies.solved.label_moment import (
    bytes_with_items,
    max_judgements,
    public_examples,
)
from murmuration.strategies.solved.whole_crowd import FROM_ZERO, WholeCrowdPlan
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
)
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.strategies.sums import SumStrategy

if TYPE_CHECKING:
    from murmuration.preference.linear.examples import PairExamples


@dataclass(frozen=True, kw_only=True)
class ObjectivePlan(WholeCrowdPlan):
    """The parameters of the release: ``length`` bounds the effect of one user's labels on the sum.

    0 stands for one, by weights that make all users' reach equal.
    """

    rounds: int = 1
    length: float = 0.0

    @property
    def clip(self) -> LabelClip:
        """The bound on a user's vector: labels y − ½ move it by half as much as labels y."""
        return LabelClip((self.length or 1.0) / 2.0)

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: the bound on features."""
        return {"length": self.length}


def client_update(
    examples: PairExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their vectors, (D,); nothing is drawn.

    Raises KeyError or ValueError for parameters that are missing or wrong, InputError where
    judgements are not of pairs or labels are not what they were.
    """
    import torch

    from murmuration.preference.estimation.public_likelihood import averaged
    from murmuration.strategies.solved.perturbed_minimiser import user_weights

    del keys_S, source
    if examples.flip_J is not None:
        raise InputError("these labels have been randomized already, which is protection enough")
    check_pairs(examples)
    length = work.number("length")
    asked, clip = examples.select(work.users_S), UserClip((length or 1.0) / 2.0)
    weight_S = user_weights(asked, length)
    sum_D = torch.zeros(asked.dimension, dtype=torch.float64)
    for users, rows_BD in averaged(asked, asked.y_R[:, None].double() - 0.5):
        sum_D += clip.clip_sum(weight_S[users][:, None] * rows_BD)
    return {"sum": sum_D.numpy()}


def check_pairs(examples: PairExamples) -> None:
    """Raises InputError unless judgements are of pairs."""
    if examples.width > 1 or examples.kind != "pairs":
        raise InputError(
            "--strategy objective-perturbation is for pairs; these judgements are over more "
            "responses: use --strategy label-moment"
        )


class ObjectivePerturbation(SumStrategy):
    """The server half, with an ``ObjectivePlan``; see ``SumStrategy``.

    Args:
        plan: what is released and what it costs.
        ledger: is charged.
        examples: the public examples of the users trained on; labels are not looked at.
        ridge: β; None for the rule that ``label-moment`` has.

    Raises:
        InputError: judgements are not of pairs.
    """

    name = "objective-perturbation"
    plan: ObjectivePlan
    optimizer: SolvedModel
    covers = "labels' sum"

    def __init__(
        self,
        plan: ObjectivePlan,
        ledger: Ledger,
        examples: PairExamples,
        *,
        ridge: float | None = None,
        **arguments: Any,
    ) -> None:
        from murmuration.strategies.solved.perturbed_minimiser import user_weights, weighted

        check_pairs(examples)
        super().__init__(plan, ledger, **arguments)
        self.loss = weighted(examples, user_weights(examples, plan.length), self.model)
        self._ridge = ridge

    @cached_property
    def ridge(self) -> float:
        """β."""
        from murmuration.strategies.solved.perturbed_minimiser import usual_ridge

        return usual_ridge(self.loss, self.plan.std) if self._ridge is None else self._ridge

    def steps(self) -> Mapping[str, float]:
        """None is counted on."""
        return {"sum": 0.0}

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release the linear term, charged to the ledger first, and minimise."""
        from murmuration.strategies.solved.perturbed_minimiser import solve

        noisy_D = self.release(round_, totals)
        return self.optimizer.set(solve(self.loss, noisy_D, self.ridge))

    def figures(self) -> Mapping[str, Shown[float]]:
        """About how far noise moves the minimiser."""
        bends_D = self.loss.axes[0].numpy()
        length = self.plan.std * float(np.sqrt(((bends_D + self.ridge) ** -2.0).sum()))
        return {"noise_norm": Public(length)}  # of what users were shown, which is public here


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """A random linear term in the likelihood."""
    config, own = context.config, context.config.of(Solved)
    examples, sent = public_examples(context)
    check_pairs(examples)
    plan = ObjectivePlan.for_epsilon(
        config.epsilon,
        users=context.users,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        length=config.clip_norm,
    )
    strategy = ObjectivePerturbation(
        plan,
        ledger,
        examples,
        ridge=own.ridge or None,
        **context.arguments(SolvedModel(context.dimension)),
    )
    return BuiltStrategy.of(
        strategy,
        plan,
        group_size=max_judgements(examples),
        bytes_per_user=bytes_with_items(context, sent),
    )


OBJECTIVE_PERTURBATION = Strategy(
    name="objective-perturbation",
    help="Add a random linear term to the likelihood, and release the minimiser.",
    build=build,
    node_halves={
        # Whose bound is that of features, or of none.
        "objective-perturbation": NodeHalf(
            client_update,
            length=lambda number: (number("length", math.inf) or 1.0) / 2.0,
            whole=True,
        )
    },
    settings=Solved,
    theorems=select(Unit.LABELS, Mechanism.GAUSSIAN),
    true_labels=True,
    rounds=(1,),
    rules=(FROM_ZERO,),
    solve=Planned(plan=ObjectivePlan, free=RELEASED_ONCE),
)
