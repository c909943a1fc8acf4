"""Label moments: one noisy vector instead of hundreds of rounds, where prompts are public.

With a linear Bradley–Terry–Luce head, or Plackett–Luce for the best of several, labels enter the
likelihood only through their sum with the features. So that sum is released once, and the model is
solved for on public features, which is post-processing: no step sizes, no schedule, no rounds.

- *Node.* Of each user the residual moment at a model θ₀ that is known already (``--start``, or
  zero, in the first round): v_u = mean over their judgements of x·(y − σ(x·θ₀)), the negative
  gradient of the user's mean loss. It is divided by its public length s_u, the root mean square of
  ‖v_u‖ over labels drawn from the model at θ₀, which features alone decide, and clipped to C. The
  sum leaves.
- *Server.* Adds Gaussian noise to the sum, and finds the θ that explains it: the convex problem
  min Σ_u w_u·loss_u(θ) + ⟨c, θ⟩ + (ridge/2)‖θ − θ_start‖², where θ_start is ``--start``, or zero.

*The bias of clipping, and its correction.* A user's clipping factor min(1, C s_u/‖v_u‖) depends on
their labels, so the expected sum is not the unclipped one. Given θ it can be computed from public
features: the server draws labels from the model (with a fixed seed), takes each user's mean factor
f_u as the weight w_u = f_u/s_u, and the difference between the drawn sums and the weighted ones as
a correction, and repeats this until the solution stays. At any C the estimate then aims at θ* and
not beside it; without it, halving C shrinks the estimate. A user with a single judgement has
‖v_u‖ = s_u at θ₀ = 0, whatever the label, so C = 1 would cut off nothing of them; somewhat less is
better for users with many, whose lengths vary.

*The ridge* looks at the noise and at public features: it minimises the expected squared error of
log-odds, if weights have a variance at which the log-odds of a typical judgement are about one.

*Two rounds* take the second moment at the first round's model, where residuals of strong
preferences are shorter, and solve with both. Each has the same noise; together they cost the
budget, and have as much information as one round with all of it.

Formal guarantee: (epsilon, delta) for all labels of one user, under ``replace-labels`` only. A
change of labels moves a clipped vector within a ball of radius C, so the sum by at most 2C (which
is attained: flip all labels of a user with one judgement). Nothing is promised about prompts,
responses and numbers of judgements, which the server sees. Trusted: the nodes' clipping, and the
server with the sum before noise. Source: ours.

Legend: J judgements, W rows in each, S sampled users, U users, D dimensions, T rounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import feature_map
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.clipping import LabelClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Unit, select
from murmuration.strategies.contributions import clip_of
from murmuration.strategies.planning import RELEASED_ONCE, Planned
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.protocol.public_items import PublicItems
from murmuration.strategies.settings.own import Solved
from murmuration.strategies.solved.whole_crowd import WholeCrowdPlan
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_of_clip,
    sum_bytes,
)
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.strategies.sums import SumStrategy

if TYPE_CHECKING:
    from murmuration.preference.linear.examples import PairExamples
    from murmuration.strategies.solved.moment_solver import Moment, MomentSolver

#: In units of each user's public length.
DEFAULT_CLIP = 0.8
_USUAL = LabelClip(DEFAULT_CLIP)


@dataclass(frozen=True, kw_only=True)
class LabelMomentPlan(WholeCrowdPlan):
    """``clip`` bounds a user's moment in units of their public length."""

    possible_rounds: ClassVar[tuple[int, ...]] = (1, 2)
    clip: LabelClip = _USUAL


def client_update(
    examples: PairExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped scaled moments, (D,).

    A pure function of its arguments; nothing is drawn. Raises KeyError or ValueError for parameters
    that are missing or wrong, InputError where labels are not what they were.
    """
    import torch

    from murmuration.preference.estimation.public_likelihood import (
        averaged,
        label_linear_model,
        reciprocal,
        spread,
    )

    del keys_S, source
    if examples.flip_J is not None:
        raise InputError("these labels have been randomized already, which is protection enough")
    clip, theta_D = clip_of(work), work.tensor("theta")
    selected = examples.select(work.users_S)
    model = label_linear_model(str(work.parameters.get("model", "btl")), selected)
    sum_D = torch.zeros(selected.dimension, dtype=torch.float64)
    logits_JW = selected.logits_R(theta_D).view(-1, selected.width)
    y_JW = selected.y_R.view(-1, selected.width)
    first_JW = torch.where(torch.isinf(y_JW), y_JW, 1.0)
    # Chances of the others; what they are does not depend on which response is called the first.
    length_S = spread(selected, -model.each(logits_JW, first_JW).double())
    moments_JW = -model.each(logits_JW, y_JW)
    for users, moments_BD in averaged(selected, moments_JW):
        sum_D += clip.clip_sum(moments_BD * reciprocal(length_S[users])[:, None])
    return {"sum": sum_D.numpy()}


class LabelMoment(SumStrategy):
    """The server half, with a ``LabelMomentPlan``; see ``SumStrategy``.

    ``solver`` holds the public examples of the users trained on, in their order.
    """

    name = "label-moment"
    plan: LabelMomentPlan
    optimizer: SolvedModel
    covers = "label moments"

    def __init__(
        self, plan: LabelMomentPlan, ledger: Ledger, solver: MomentSolver, **arguments: Any
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self.solver = solver
        self._moments: list[Moment] = []

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release the sum of moments, charged to the ledger first, and solve with all so far."""
        from murmuration.strategies.solved.moment_solver import Moment

        noisy_D = self.release(round_, totals)
        # The nodes had θ in float32.
        centre_D = self.optimizer.theta_D.astype(np.float64)
        self._moments.append(Moment(noisy_D, centre_D, self.plan.clip, self.plan.std))
        return self.optimizer.set(self.solver.solve(self._moments))

    def figures(self) -> Mapping[str, Shown[float]]:
        """About how far noise moves the solution."""
        if not self._moments:
            return {}
        return {"noise_norm": self.ledger.released(self.solver.noise_length(self._moments))}

    def state(self) -> dict[str, np.ndarray]:
        """Also the moments released so far, and where they were taken."""
        empty_TD = np.zeros((0, len(self.optimizer.theta)))
        return {
            **super().state(),
            "moments": np.array([m.noisy_D for m in self._moments]) if self._moments else empty_TD,
            "centres": np.array([m.centre_D for m in self._moments]) if self._moments else empty_TD,
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        from murmuration.strategies.solved.moment_solver import Moment

        super().restore(state)
        pairs = zip(state["moments"], state["centres"], strict=True)
        self._moments = [Moment(m, c, self.plan.clip, self.plan.std) for m, c in pairs]


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The strategy of one or two noisy moments, and a solve."""
    from murmuration.strategies.solved.moment_solver import MomentSolver

    config, own = context.config, context.config.of(Solved)
    plan = LabelMomentPlan.for_epsilon(
        config.epsilon,
        users=context.users,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=LabelClip(config.clip_norm or DEFAULT_CLIP),
        discrete=context.noise.on(context.dimension),
    )
    examples, sent = public_examples(context)
    solver = MomentSolver(examples, config.model, ridge=own.ridge or None, start_D=context.start_D)
    optimizer = SolvedModel(context.dimension, context.start_D)
    return BuiltStrategy.of(
        LabelMoment(plan, ledger, solver, **context.arguments(optimizer)),
        plan,
        group_size=max_judgements(examples),
        bytes_per_user=bytes_with_items(context, sent, sum_bytes(context)),
    )


def public_examples(context: RunContext) -> tuple[PairExamples, float]:
    """The public examples of the users trained on, and the number of bytes of each as sent.

    Raises InputError if labels on all nodes are randomized already: the release would be noise
    alone.
    """
    participants = context.participants
    if participants.registry.randomized:
        raise InputError(
            f"--strategy {context.config.strategy} takes true labels, and these went through "
            "randomized response (flip_probability): use --strategy local-label"
        )
    items = PublicItems.ask(
        context.grid,
        participants.registry,
        participants.train,
        schema=context.config.schema,
        timeout=context.config.timeout,
    )
    return items.examples(feature_map(json.loads(context.features))), items.bytes_per_user


def max_judgements(examples: PairExamples) -> int:
    """The most judgements of one user."""
    return int(examples.counts_U.max())


def bytes_with_items(context: RunContext, sent: float, up: int = 8) -> float:
    """Bytes per user: the model in float32 down and a sum of ``up`` bytes a number up, each round,
    and texts."""
    each = (4 + up) * context.dimension * context.config.rounds
    return each + sent


LABEL_MOMENT = Strategy(
    name="label-moment",
    help="Release one noisy vector of labels, instead of hundreds of rounds; prompts are public.",
    build=build,
    node_halves={"label-moment": NodeHalf(client_update, clip_norm, grid_of_clip, whole=True)},
    settings=Solved,
    theorems=select(Unit.LABELS),
    true_labels=True,
    rounds=LabelMomentPlan.possible_rounds,
    solve=Planned(plan=LabelMomentPlan, free=RELEASED_ONCE),
)
