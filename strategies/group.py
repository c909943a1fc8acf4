"""Group privacy: ELS, accounted as a black box. A baseline.

Source: the baseline of AUP-RLHF and of Charles et al. 2024, Figure 1 (there diverging); the
conversion is Vadhan 2017, Lemma 2.2; see ``privacy.group``. What runs is ELS, round for round: every
user keeps at most k judgements, a cap that the nodes enforce, and single judgements are sampled and
clipped. Only the noise differs: it is calibrated to an example-level guarantee (Poisson-subsampled
Gaussian), which is then converted for groups of k.

Formal guarantee: (epsilon, delta) at the level of users under any of the four adjacencies; a
replaced user is k replaced judgements, or 2k that come or go, whichever costs less. The conversion
grows exponentially with k and soon certifies nothing; such a plan is refused, with the largest k
that works. Trusted: as for ELS.
"""

from typing import Any, ClassVar

from privacy import accounting
from privacy.adjacency import Adjacency
from privacy.events import Event
from privacy.group_event import GroupGaussian
from privacy.mixture import MixtureGaussian
from strategies.els import Els, ElsPlan

#: Noise grows faster than k, and k judgements of one person tell less than k times one: few do.
DEFAULT_GROUP_SIZE = 4
_ENORMOUS = 1e7  # a noise multiplier beside which nothing else matters


class GroupPlan(ElsPlan):
    """An ELS plan that is accounted by group privacy; ``group_size`` is k."""

    accounting: ClassVar[type[MixtureGaussian] | type[GroupGaussian]] = GroupGaussian

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> ElsPlan:
        """As for ELS; ValueError, naming the largest k that works, if the conversion diverges."""
        cls(noise_multiplier=1.0, **plan)  # names what is wrong with the other fields

        def works(group_size: int) -> bool:
            return cls.cost(_ENORMOUS, **{**plan, "group_size": group_size}) <= epsilon

        if not works(plan["group_size"]):
            raise ValueError(diverges(plan["group_size"], largest(works, plan["group_size"])))
        return super().for_epsilon(epsilon, **plan)

    @classmethod
    def cost(cls, noise_multiplier: float, **plan: Any) -> float:
        """Epsilon with this noise multiplier; infinity where the conversion diverges."""
        event = GroupGaussian(noise_multiplier, plan["group_size"], plan["probability"])
        adjacency: Adjacency = plan["adjacency"]
        charges: list[tuple[Event, int]] = [(event, plan["rounds"])]
        return accounting.epsilon(charges, adjacency=adjacency, delta=plan["delta"])


def largest(works: Any, below: int) -> int:
    """The largest group size under ``below`` for which ``works`` holds; 0 if it does for none."""
    low, high = 0, below
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


def diverges(group_size: int, works: int) -> str:
    """What to tell whoever asked for too large a group."""
    advice = f"the largest --group-size that works here is {works}" if works else "none works here"
    return (
        f"group privacy certifies nothing for {group_size} judgements a user: its conversion "
        f"diverges; {advice}. --strategy els has no such limit"
    )


class Group(Els):
    """The server half: that of ELS, with a ``GroupPlan``."""

    name = "group"
