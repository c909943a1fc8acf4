"""A choice among existing policies: the exponential mechanism over a finite class.

Nothing is trained. Of a class of policies that was fixed before (``murmuration policies commit``)
the one is drawn that suits people best, by chance:

- *Node.* For each asked user, what each of their judgements loses under each policy: (tanh(z/2) −
  y)², z being the difference of the rewards that the policy stands for, clipped at 2·R_max. A user
  counts as the mean of their judgements, shifted to a minimum of zero and held within the span,
  4·tanh(R_max), in whole numbers. The sum leaves.
- *Server.* Draws one policy with probability proportional to exp(−rate · sum), by exact sampling.

Formal guarantee: (ε, 0) at the level of users under the plan's adjacency. It needs the class not to
depend on what these users judged, or only by runs that were private themselves and are charged
beside (``lineage``). All users take part: q = 1. Trusted: the nodes, and the server with sums
before the draw.

Source: Zhou et al. 2025, Algorithm 2; McSherry and Talwar 2007. See
``research.strategies.choice.exponential_mechanism``.

Legend: P policies, J judgements of a user, S asked users.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.promise import Promise
from murmuration.research.strategies.choice.exponential_mechanism import (
    CHOICE,
    STEPS,
    ExponentialMechanism,
    span_of,
)
from murmuration.research.strategies.choice.policy_class import KIND, policy_of, read_class
from murmuration.research.strategies.choice.settings import ExponentialSettings
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.declaration import option
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    Number,
    RunContext,
    Strategy,
    base_settings,
)
from murmuration.strategies.steps.optimizers import SolvedModel


@dataclass(frozen=True)
class ChoicePlan:
    """The mechanism of a choice, the class, and the cost.

    ``digest`` is that of the class; ``mechanism`` has the number of policies.
    """

    mechanism: ExponentialMechanism
    digest: str

    sampler = PoissonSampler(1.0)  # everybody is asked

    @property
    def charges(self) -> dict[Event, int]:
        """The event of one choice."""
        return {self.mechanism.event: 1}

    @property
    def node_config(self) -> dict[str, messages.Scalar]:
        """The config sent to nodes: the number of policies."""
        return {"policies": self.mechanism.choices}


def client_update(
    examples: Any, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of what policies lose on their judgements, (P,)
    float64, in spans: multiples of 1/``STEPS``.

    A pure function of its arguments; nothing is drawn. A user's part is a function of that user's
    judgements, bit for bit. Raises InputError where labels are not what they were.
    """
    from murmuration.research.strategies.choice.class_examples import ClassExamples

    del keys_S, source
    if not isinstance(examples, ClassExamples):
        raise InputError("no class of policies was named")
    if examples.flip_J is not None:
        raise InputError(f"these labels have been randomized already: {_TRUE_LABELS}")
    # What one user adds depends on neither epsilon nor adjacency.
    mechanism = ExponentialMechanism(
        1.0, span_of(examples.base.settings.r_max), examples.dimension, Adjacency.ZERO_OUT
    )
    examples.measure(work.users_S)
    sum_P = np.zeros(examples.dimension)
    for user in work.users_S:  # one at a time: in company last digits could depend on others
        sum_P += mechanism.contribution(examples.select(np.array([user])).losses())
    return {"sum": sum_P / STEPS}


def most_of_one(number: Number) -> float:
    """The bound on one user's part of a sum, in spans: one for each policy except the user's
    best.
    """
    return math.sqrt(max(1.0, number("policies", math.inf) - 1.0))


def grid_of_losses(number: Number) -> Mapping[str, float]:
    """The grid of a sum of losses, whatever is asked."""
    return {"sum": 1.0 / STEPS}


class Exponential(CohortStrategy):
    """The server half of a choice by exact sampling, with a ``ChoicePlan``. θ is 1 at the
    choice.
    """

    name = "exponential"
    plan: ChoicePlan
    optimizer: SolvedModel

    def steps(self) -> Mapping[str, float]:
        """The grid step of losses."""
        return {"sum": 1.0 / STEPS}

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """True for whole numbers that ``users`` users can have."""
        return self.plan.mechanism.is_valid(sums["sum"] * STEPS, users)

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Choose; charged to the ledger first.

        A choice that was charged, and lost in a crash, is not drawn anew, except as it was: that
        would be beyond the budget.
        """
        mechanism = self.plan.mechanism
        place = mechanism.choose(
            totals["sum"] * STEPS,
            round_=round_,
            covers=f"a choice of the class {self.plan.digest}",
            ledger=self.ledger,
            source=self.source,
        )
        return self.optimizer.set(np.eye(mechanism.choices)[place])


#: Losses of a judgement that are within (1 + tanh(r_max))².
BOUNDED_LOSSES = ("square-chipo", "square-dpo")
_TRUE_LABELS = (
    "--strategy exponential takes true labels; the span of losses, which decides what a choice "
    "costs, holds for no others"
)
_NEEDED = (
    "--strategy exponential chooses a policy: name --task policy, the reference with --base, and "
    "with --policies the class (murmuration policies commit)"
)
#: What is about training, of which there is none.
_TRAINING = (
    *("train", "lora_rank", "lora_targets", "lora_layers"),
    *("checkpointing", "once_per_text", "learning_rate", "clip_norm"),
)


def pure_epsilon(
    budget: float,
    charges: Callable[[float], Mapping[Event, int]],
    *,
    delta: float,
    adjacency: Adjacency,
) -> float:
    """The pure epsilon that a release may have, so that the accountant counts ``budget``.

    That is the budget, unless it lies between two losses of the accountant's grid, so that the next
    one is counted: then a step less.

    Raises:
        ValueError: the budget is less than a step.
    """
    for pure in (budget, budget - accountant.INTERVAL):
        if pure > 0.0:
            cost = accountant.epsilon(charges(pure).items(), adjacency=adjacency, delta=delta)
            if cost <= budget:
                return pure
    raise ValueError(f"epsilon = {budget:g} is too small to be counted")


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The strategy of one choice, from settings and the class that the features describe."""
    config = context.config
    if context.participants.registry.randomized:
        raise InputError(f"labels here went through randomized response: {_TRUE_LABELS}")
    described = json.loads(context.features)
    if "policies" not in described:
        raise InputError(_NEEDED)
    adjacency = Adjacency(config.adjacency)

    def mechanism_of(epsilon: float) -> ExponentialMechanism:
        return ExponentialMechanism(
            epsilon,
            span_of(described["r_max"]),
            len(described["policies"]),
            adjacency,
        )

    mechanism = mechanism_of(
        pure_epsilon(
            config.epsilon,
            lambda pure: {mechanism_of(pure).event: 1},
            delta=config.delta,
            adjacency=adjacency,
        )
    )
    # N is nominal: twice as many may turn up.
    if not mechanism.is_valid(np.zeros(mechanism.choices), 2 * context.users):
        raise ValueError(f"losses of {context.users:,} users leave the range of exact sums")
    plan = ChoicePlan(mechanism, described["models"])
    return BuiltStrategy(
        strategy=Exponential(plan, ledger, **context.arguments(SolvedModel(mechanism.choices))),
        charges=plan.charges,
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=config.max_judgements,
        noise=0.0,
        gradients=context.users,
        bytes_per_user=(4 + 8) * mechanism.choices,
        about={
            "class": plan.digest,
            "policies": mechanism.choices,
            "span": mechanism.span,
            "expected_gap_at_most": mechanism.gap_bound(),
            "gap_at_most_in_19_of_20": mechanism.gap_bound(0.05),
            "bound": (
                f"It loses more than the best by at most {mechanism.gap_bound():.3g}, on average "
                f"over coins; in 19 of 20 draws by at most {mechanism.gap_bound(0.05):.3g}. That "
                "is in the unit of losses, summed over users."
            ),
        },
    )


def _check(settings: Settings) -> None:
    own = settings.of(ExponentialSettings)
    refused: list[tuple[bool, str]] = [
        (
            # Settings of nothing but a strategy are no run's; ``build`` refuses them.
            bool(own.policies or settings.base or settings.task != "reward")
            and not (own.policies and settings.base and settings.task == "policy"),
            _NEEDED,
        ),
        (settings.labels != "true", f"--labels {settings.labels}: {_TRUE_LABELS}"),
        (
            settings.loss not in ("", *BOUNDED_LOSSES),
            f"--loss {settings.loss} has no bound: --strategy exponential chooses by "
            f"{' or '.join(BOUNDED_LOSSES)}",
        ),
        (
            settings.kind != "pairs" or settings.model != "btl",
            "--strategy exponential chooses by judgements of pairs, without a --model",
        ),
        (
            settings.noise == "gaussian",
            "--noise gaussian: --strategy exponential adds no noise; leave it out",
        ),
    ]
    for name in _TRAINING:
        changed = getattr(settings, name) != getattr(Settings, name)
        refused.append(
            (changed, f"{option(name)} is about training, and --strategy exponential trains none")
        )
    for wrong, why in refused:
        if wrong:
            raise InputError(why)


def _described(settings: Settings) -> dict[str, Any] | None:
    """The class's description; None where none is named."""
    policies = settings.of(ExponentialSettings).policies
    if not policies:
        return None
    from murmuration.preference.language.base.settings import NOTHING

    base = base_settings(settings, train=NOTHING, loss=settings.loss or BOUNDED_LOSSES[0])
    entries = [vars(policy) | {"lineage": [*policy.lineage]} for policy in read_class(policies)]
    return {**base.to_config(), "kind": KIND, "policies": entries}


def _lineage(described: Mapping[str, Any], settings: Settings) -> Promise | None:
    """The runs that the policies of the class came from."""
    if "policies" not in described:
        return None
    from murmuration.research.strategies.choice.lineage import of_policies  # for servers alone

    return of_policies(map(policy_of, described["policies"]), settings)


EXPONENTIAL = Strategy(
    name="exponential",
    help="Choose one of several given policies, by the exponential mechanism or a better one.",
    build=build,
    node_halves={"exponential": NodeHalf(client_update, most_of_one, grid_of_losses)},
    settings=ExponentialSettings,
    theorems=(CHOICE,),
    rounds=(1,),
    check=_check,
    fits_policies=True,
    trains=False,
    lineage=_lineage,
    features=_described,
)
