"""A strategy of another package: users send the signs of their averaged gradients.

Formal guarantee: as of ULS: D signs are sqrt(D) long, so clip norm / sqrt(D) times them are within
the clip norm, from which the sensitivity follows. The model's scale is not learnt.

Legend: B users in a chunk, S sampled users, D dimensions.
"""

import math

import numpy as np
import torch

from murmuration.preference.kinds.model import TrainingExamples
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Mechanism, Participation, Unit, select
from murmuration.strategies import spec
from murmuration.strategies.contributions import bounded_sum
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.uls import Uls, UlsPlan, sampled_users


class SignClip(UserClip):
    """Keeps the signs, at a common length: within the ball whose sensitivity it inherits."""

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        """The sum of the signs; a row that is not finite is zero."""
        finite_B1 = torch.isfinite(grads_BD).all(dim=1, keepdim=True)
        signs_BD = torch.where(finite_B1, grads_BD.sign(), 0.0)
        return super().clip_sum(signs_BD * (self.norm / math.sqrt(grads_BD.shape[1])))


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of the signs of their gradients, (D,)."""
    return {"sum": bounded_sum(examples, work, keys_S, source, SignClip(work.number("clip-norm")))}


class SignUls(Uls):
    """The server half: that of ULS."""

    name = "sign-uls"


def build(context: spec.RunContext, ledger: Ledger) -> spec.BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    config, clip = context.config, SignClip(context.config.clip_norm or 1.0)
    plan = UlsPlan.for_epsilon(config.epsilon, clip=clip, **context.cohort_sizes)
    return context.built(SignUls, plan, ledger, ceiling=1.0)


SIGN_ULS = spec.Strategy(
    name="sign-uls",
    help="As uls, with the signs of gradients instead of the gradients.",
    build=build,
    node_halves={"sign-uls": spec.NodeHalf(client_update, length=spec.clip_norm)},
    theorems=select(Unit.VECTOR, Participation.POISSON, Mechanism.GAUSSIAN),
    solve=sampled_users,
)
