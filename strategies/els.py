"""ELS / DP-SGD-ELS: sample and clip single judgements, and account for whole users.

Source: Charles et al. 2024, Algorithm 1. Every user keeps at most G judgements, chosen once for the
run (``retained``). In every round each kept judgement is sampled with
probability p, independently, by its node; its gradient is clipped to C, and the node sends the sum
over its users. The noise is added to the sum, which is divided by B = p·G·N, a constant fixed
before any data is seen: Algorithm 1 divides by p·|D_sub|, and the number of kept judgements is
private.

Formal guarantee: (epsilon, delta) at the level of users under add-remove and zero-out, for the
whole sequence of models: T compositions of the mixture of Gaussians with Binomial(G, p) means
(Theorem 1, which is tight). There is none under replace and replace-labels. Trusted: the server (it
sees sums before noise) and the nodes, not only with clipping: they do the sampling, and a node that
includes its users' judgements more often, or shows others which were sampled, undoes the
amplification by sampling. All nodes are asked every round, so the server's messages do not show who
took part.

``--cohort M`` stands for the compute of ULS with M users a round who have G_ULS judgements each or
more: B = M·G_ULS, p = B/(N·G), at most 1. Of users with fewer it takes more than ULS does.

Legend: S asked users, K their judgements, D dimensions.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import Event, GroupGaussian, PureChoice
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Released
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.coins import bernoulli
from murmuration.privacy.mechanisms.median import release_median
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.parallel import on_each_core
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import ExampleSampler
from murmuration.privacy.theorems import Unit, select
from murmuration.strategies import sums, uls
from murmuration.strategies.contributions import model_of, shares_passes
from murmuration.strategies.planning import Planned, PlanQuery, largest
from murmuration.strategies.protocol import group_size_histogram, messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.protocol.secure_rounds import check_nodes
from murmuration.strategies.settings.own import ElsSettings
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm_of_each,
    grid_of_clip,
    sum_bytes,
)
from murmuration.strategies.sums import (
    AveragedSum,
    SumPlan,
    check_size,
    check_vectors_fit,
)

if TYPE_CHECKING:
    import torch

    from murmuration.preference.kinds.model import TrainingExamples

#: As for ULS: well below a judgement's gradient at the start, which is about half a unit long.
DEFAULT_CLIP = uls.DEFAULT_CLIP
_ROWS = 1024  # judgements that a core works on at a time
_PARTS = 32  # of a sum: enough for the cores of one machine, and few enough to keep


@dataclass(frozen=True, kw_only=True)
class ElsPlan(SumPlan):
    """Single judgements are sampled and clipped; their noisy sum is divided by a constant.

    ``group_size`` G is the most judgements that a user keeps, ``probability`` p that of each to be
    in a round: public constants. ``chosen_at`` is the pure epsilon that was spent on choosing G
    from the data, 0 if it was given.

    What was spent on choosing G is added to the rest. G decides what follows, so the two parts are
    composed adaptively, which plain addition covers; composing the loss distributions of the G that
    was chosen would not.
    """

    group_size: int
    probability: float
    clip: ExampleClip
    chosen_at: float = 0.0

    #: How a round is accounted for whole users.
    event_kind: ClassVar[type[MixtureGaussian] | type[GroupGaussian]] = MixtureGaussian

    def __post_init__(self) -> None:
        check_size(self.users, 1, self.rounds, self.group_size)
        check_vectors_fit(self.users * self.group_size, self.clip)
        super().__post_init__()

    @cached_property
    def mechanism(self) -> GaussianSum:
        """The mechanism that each round runs and charges."""
        examples = ExampleSampler(self.probability, self.group_size, self.event_kind)
        parts = examples, self.clip, self.noise_multiplier, self.adjacency
        return GaussianSum(*parts, discrete=self.discrete)

    @property
    def besides(self) -> dict[Event, int]:
        """The event of a private choice of G, if any."""
        return {PureChoice(self.chosen_at): 1} if self.chosen_at else {}

    @property
    def divisor(self) -> float:
        """B: as many judgements as are expected in a round if every user keeps G."""
        return self.probability * self.group_size * self.users

    @property
    def gradients(self) -> float:
        """The compute in user gradients of ULS, each over the default number of judgements."""
        return self.rounds * self.divisor / sums.DEFAULT_GROUP_SIZE

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: also the number of judgements that a user keeps, and their
        sampling probability.
        """
        own = {"group-size": self.group_size, "probability": self.probability}
        return {**super().node_config, **own}


def same_compute(cohort: int, users: int, group_size: int) -> float:
    """p at which a round has as many judgements as one of ULS with ``cohort`` users, if all users
    have the default group size or more; at most 1."""
    return min(1.0, cohort * sums.DEFAULT_GROUP_SIZE / (users * group_size))


def retained(
    start_U: torch.Tensor, users_S: np.ndarray, keys_S: np.ndarray, most: int, source: Randomness
) -> tuple[torch.Tensor, torch.Tensor]:
    """The judgements that users keep for the whole run, at most ``most`` each: judgements (N,) and
    counts (S,).

    Which ones these are is a function of the user's name alone (and of the seed, in a simulation):
    the same in every round and after every restart, without a node having to remember anything.
    """
    from murmuration.preference.linear.gradients import windows

    # The same in every round, and in one that is drawn again.
    fixed = source.again(0) if source.seeded else Randomness(0)
    return windows(start_U, users_S, most, fixed.user_words("retain", 0, keys_S))


def client_update(
    examples: TrainingExamples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum`` of the clipped gradients of the sampled judgements, (D,).

    A pure function of its arguments (with a seeded ``source``). Raises KeyError or ValueError for
    parameters that are missing or wrong.
    """
    import torch

    clip, theta_D = ExampleClip(work.number("clip-norm")), work.tensor("theta")
    group_size, probability = int(work.number("group-size")), work.number("probability")
    kept_K, taken_S = retained(examples.start_U, work.users_S, keys_S, group_size, source)
    taken = taken_S.numpy()
    # A judgement is named by its place among all of its user's, not by its place in the selection.
    places_K = kept_K.numpy() - np.repeat(examples.start_U.numpy()[work.users_S], taken)
    words_K = source.example_words(
        "example", int(work.number("round")), np.repeat(keys_S, taken), places_K
    )
    in_K = kept_K[torch.from_numpy(bernoulli(words_K, probability))]
    model = model_of(examples, work)
    if (pairs := examples.single_rows) is None:
        # What is clipped is a judgement, not a row of it. As if each were a user with no other.
        total_D = examples.sum_over_users(
            theta_D,
            in_K,
            torch.ones_like(in_K),
            clip.as_user.clip_sum,
            model,
            shared_passes=shares_passes(work),
            add=clip.as_user.add_to,
        )
        return {"sum": total_D.numpy()}
    chunks = in_K.split(_ROWS)
    parts = min(_PARTS, len(chunks))
    lengths_R = pairs.lengths_R  # before the threads, so that it is computed once

    def part_of(part: int) -> torch.Tensor:
        sum_D = torch.zeros(pairs.dimension, dtype=torch.float64)
        for rows in chunks[len(chunks) * part // parts : len(chunks) * (part + 1) // parts]:
            logits_K1 = pairs.logits_R(theta_D, rows)[:, None]
            slope_K = model.each(logits_K1, pairs.y_R[rows][:, None])[:, 0]
            sum_D += clip.clip_sum(pairs.x_RD[rows], slope_K, lengths_R[rows])
        return sum_D

    total_D = torch.zeros(pairs.dimension, dtype=torch.float64)
    for part_D in on_each_core(part_of, parts):
        total_D += part_D
    return {"sum": total_D.numpy()}


class Els(AveragedSum):
    """The server half, with an ``ElsPlan``; see ``SumStrategy``.

    All nodes are asked every round; they sample their judgements, each independently.
    """

    name = "els"
    plan: ElsPlan

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """Finite, and no longer than G clip norms for each of ``users``."""
        return super().is_valid(sums, users * self.plan.group_size)


# ELS and its group-privacy baseline, from settings.
#
# The group size of ELS, unless it is given, is the median number of judgements (Charles et al.
# 2024, App. H) of those users who are trained on. Their numbers of judgements are private wherever
# ELS has a guarantee, so the median is released with a twentieth of epsilon, and the rounds get the
# rest. It is released once: a resumed run goes on with the value that is on file.

#: Of epsilon, for choosing the group size. With 1,000 users at ε = 1 that lands within about 60
#: ranks of the median; the noise of the rounds grows by 5 %.
MEDIAN_SHARE = 0.05


def build_els(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    config = context.config
    ELS.check_adjacency(Adjacency(config.adjacency), config.own)  # before anything is spent
    group_size, chosen_at = config.group_size, 0.0
    if not group_size:
        chosen_at = MEDIAN_SHARE * config.epsilon
        group_size = context.once("group-size", lambda: _median(context, ledger, chosen_at))
    return _built(context, ledger, Els, ElsPlan, group_size=group_size, chosen_at=chosen_at)


def build_group(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The plan, the strategy and the report's figures."""
    group_size = context.config.group_size or DEFAULT_GROUP_SIZE
    return _built(context, ledger, Group, GroupPlan, group_size=group_size)


def _median(context: RunContext, ledger: Ledger, epsilon: float) -> Released[int]:
    if context.config.secure_aggregation:  # before anything is asked or spent
        taking_part = context.participants
        check_nodes(taking_part.registry, 1.0 - taking_part.share)
    users_J = group_size_histogram.ask(
        context.grid,
        context.participants,
        features=context.features,
        log=context.log,
        timeout=context.config.timeout,
        masked=context.config.secure_aggregation,
    )
    median = release_median(
        users_J, epsilon, adjacency=ledger.adjacency, ledger=ledger, source=context.source
    )
    return ledger.released(median)


def _built(
    context: RunContext,
    ledger: Ledger,
    strategy: type[Els],
    kind: type[ElsPlan],
    *,
    group_size: int,
    chosen_at: float = 0.0,
) -> BuiltStrategy:
    config, own, users = context.config, context.config.of(ElsSettings), context.users
    check_size(users, config.cohort, config.rounds, group_size)
    by_cohort = same_compute(config.cohort, users, group_size)
    plan = kind.for_epsilon(
        config.epsilon,
        **context.sizes,
        group_size=group_size,
        probability=own.sampling_probability or by_cohort,
        clip=ExampleClip(config.clip_norm or DEFAULT_CLIP),
        chosen_at=chosen_at,
    )
    ceiling = uls.RATE_CEILING / plan.clip.norm
    optimizer = context.optimizer("sgd", plan.noise, ceiling)
    return BuiltStrategy.of(
        strategy(plan, ledger, **context.arguments(optimizer)),
        plan,
        group_size=plan.group_size,
        # Everybody is asked every round.
        bytes_per_user=plan.rounds * (4 + sum_bytes(context, plan.group_size)) * context.dimension,
    )


# Group privacy: ELS, accounted as a black box. A baseline.
#
# Source: the baseline of AUP-RLHF and of Charles et al. 2024, Figure 1 (there diverging); the
# conversion is Vadhan 2017, Lemma 2.2; see ``privacy.accounting.group_privacy``. What runs is ELS,
# round for round: every user keeps at most k judgements, a cap that the nodes enforce, and single
# judgements are sampled and clipped. Only the noise differs: it is calibrated to an example-level
# guarantee (Poisson-subsampled Gaussian), which is then converted for groups of k.
#
# Formal guarantee: (epsilon, delta) at the level of users under any of the four adjacencies; a
# replaced user is k replaced judgements, or 2k that come or go, whichever costs less. The
# conversion grows exponentially with k and soon certifies nothing; such a plan is refused, with the
# largest k that works. Trusted: as for ELS.

#: Noise grows faster than k, and k judgements of one person tell less than k times one: few do.
DEFAULT_GROUP_SIZE = 4
_ENORMOUS = 1e7  # a noise multiplier beside which nothing else matters


class GroupPlan(ElsPlan):
    """An ELS plan that is accounted by group privacy; ``group_size`` is k."""

    event_kind: ClassVar[type[MixtureGaussian] | type[GroupGaussian]] = GroupGaussian

    @classmethod
    def for_epsilon(cls, epsilon: float, **plan: Any) -> Self:
        """As for ELS; ValueError, with the largest k that works, if the conversion diverges."""
        check(cls(noise_multiplier=_ENORMOUS, **plan), epsilon)
        return super().for_epsilon(epsilon, **plan)

    def epsilon(self) -> float:
        """As for ELS; ValueError, with the largest k that works, if the conversion diverges."""
        if math.isinf(spent := super().epsilon()):
            check(self, sys.float_info.max)
        return spent


def check(plan: GroupPlan, most: float) -> None:
    """ValueError, naming the largest k that works, if ``plan`` costs more than ``most``."""

    def works(group_size: int) -> bool:
        return ElsPlan.epsilon(replace(plan, group_size=group_size)) <= most

    if works(plan.group_size):
        return
    most_that_works = largest(works, plan.group_size - 1)
    advice = (
        f"the largest --group-size that works here is {most_that_works}"
        if most_that_works
        else "none works here"
    )
    raise ValueError(
        f"group privacy certifies nothing for {plan.group_size} judgements per user: its "
        f"conversion diverges; {advice}. --strategy els has no such limit"
    )


class Group(Els):
    """The server half: that of ELS, with a ``GroupPlan``."""

    name = "group"


def _fields(query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
    """Each judgement's probability, given or from a cohort of ``uls`` with the same work."""
    if (query.sampling_probability is None) == (query.cohort is None):
        raise InputError(
            "give one of --sampling-probability, of each kept judgement, and --cohort, the users "
            "of a round of uls whose work it is to equal"
        )
    probability = query.sampling_probability
    if probability is None:
        assert query.cohort and query.users and query.group_size  # checked before
        probability = same_compute(query.cohort, query.users, query.group_size)
    return {"probability": probability, "clip": ExampleClip(1.0)}


def _planned(plan: type[ElsPlan]) -> Planned:
    return Planned(
        plan=plan,
        takes=("users", "group_size", "rounds", "delta"),
        allowed=("sampling_probability", "cohort"),
        fields=_fields,
        tells=lambda made, query: {
            "sampling_probability": made.probability,
            "batch": made.divisor,
        },
    )


#: Choosing a group size shows the server exact counts of judgements.
_RULES = (
    Rule(
        lambda config, strategy: config.noise == "distributed" and not config.group_size,
        "--noise distributed: the server would see exact numbers of judgements, to choose a group "
        "size",
        ({"group_size": 16}, {"noise": "discrete"}),
    ),
)

ELS = Strategy(
    name="els",
    help="Sample and clip single judgements, and account for whole users (DP-SGD-ELS).",
    build=build_els,
    node_halves={"els": NodeHalf(client_update, clip_norm_of_each, grid_of_clip)},
    settings=ElsSettings,
    theorems=select(Unit.EXAMPLES, event=MixtureGaussian.kind),
    rules=_RULES,
    solve=_planned(ElsPlan),
)
GROUP = Strategy(
    name="group",
    help="As els, accounted by group privacy as a black box: a baseline.",
    build=build_group,
    node_halves={"group": NodeHalf(client_update, clip_norm_of_each, grid_of_clip)},
    settings=ElsSettings,
    theorems=select(Unit.EXAMPLES, event=GroupGaussian.kind),
    solve=_planned(GroupPlan),
)
