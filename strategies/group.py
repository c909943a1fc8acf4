"""Group privacy: ELS, accounted as a black box. A baseline.

Source: the baseline of AUP-RLHF and of Charles et al. 2024, Figure 1 (there diverging); the
conversion is Vadhan 2017, Lemma 2.2; see ``privacy.group``. What runs is ELS, round for round:
every user keeps at most k judgements, a cap that the nodes enforce, and single judgements are
sampled and clipped. Only the noise differs: it is calibrated to an example-level guarantee
(Poisson-subsampled Gaussian), which is then converted for groups of k.

Formal guarantee: (epsilon, delta) at the level of users under any of the four adjacencies; a
replaced user is k replaced judgements, or 2k that come or go, whichever costs less. The conversion
grows exponentially with k and soon certifies nothing; such a plan is refused, with the largest k
that works. Trusted: as for ELS.
"""

import sys
from dataclasses import replace
from typing import Any, ClassVar

from privacy.group_event import GroupGaussian
from privacy.mixture import MixtureGaussian
from strategies.els import Els, ElsPlan

#: Noise grows faster than k, and k judgements of one person tell less than k times one: few do.
DEFAULT_GROUP_SIZE = 4
_ENORMOUS = 1e7  # a noise multiplier beside which nothing else matters


class GroupPlan(ElsPlan):
    """An ELS plan that is accounted by group privacy; ``group_size`` is k."""

    event_kind: ClassVar[type[MixtureGaussian] | type[GroupGaussian]] = GroupGaussian

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> ElsPlan:
        """As for ELS; ValueError, naming the largest k that works, if the conversion diverges."""
        check(cls(noise_multiplier=_ENORMOUS, **plan), epsilon)
        return super().for_epsilon(epsilon, **plan)


def check(plan: GroupPlan, most: float = sys.float_info.max) -> None:
    """ValueError, naming the largest k that works, if ``plan`` costs more than ``most``."""

    def works(group_size: int) -> bool:
        return replace(plan, group_size=group_size).epsilon() <= most

    if works(plan.group_size):
        return
    low, high = 0, plan.group_size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    advice = f"the largest --group-size that works here is {low}" if low else "none works here"
    raise ValueError(
        f"group privacy certifies nothing for {plan.group_size} judgements a user: its conversion "
        f"diverges; {advice}. --strategy els has no such limit"
    )


class Group(Els):
    """The server half: that of ELS, with a ``GroupPlan``."""

    name = "group"
