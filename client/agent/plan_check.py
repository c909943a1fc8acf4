"""Check whether an owner would answer a run, before anybody is asked.

A server shows the plan of a run and the bounds of its requests
(``strategies.protocol.plan_query``). Here they are held against the policy and the own ledger, by
the same rules that its requests will meet, from the first round that would be asked to the last,
and the figures at the end that the plan pays for. Nothing is charged, and nothing here depends on
what anybody judged.
"""

from collections.abc import Callable

from murmuration.client import secure
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.labels.terms import check_terms
from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.strategies.protocol import messages, plan_query
from murmuration.strategies.protocol.stated_plan import StatedPlan, cost
from murmuration.strategies.solved.local_label import LOCAL_LABEL

#: Takes all plans, the new one last: their ε, or PolicyRefusal if that is too much.
Cost = Callable[[list[StatedPlan]], float]


def check_asked(
    policy: Policy,
    ledger: OwnLedger,
    work: messages.TrainRequest,
    parties: int,
    cost: Cost,
    *,
    hosted: int,
    randomized: bool = False,
) -> None:
    """Check that requests like ``work``, whose round is the first, would be answered to the end.

    ``parties`` is how many nodes there are for sums under masks, or 0; ``hosted`` how many users
    are here, and ``randomized`` whether their labels went through randomized response before.

    Raises:
        PolicyRefusal: they would not; names the rule.
    """
    if work.parameters.get("strategy") == LOCAL_LABEL.name:
        check_promise(policy, promised(work), randomized)
        check_public(policy)
        return
    check_masks(policy, parties > 0)
    if parties:
        if parties < max(policy.min_parties, policy.honest_parties):
            raise PolicyRefusal("min_parties", f"a sum over {parties} parties at most")
        policy.check_crowd(parties)
    if hosted < policy.min_users:
        raise PolicyRefusal("min_users", f"{hosted} users are here")
    plan = policy.check_work(work)
    if secure.lacks_noise(work.parameters):
        raise PolicyRefusal(
            plan_query.OPENDP,
            "nodes are to add noise, and OpenDP is not installed here: "
            "pip install 'murmuration-rlhf[secure]'",
        )
    round_ = int(work.number("round"))
    left = policy.max_rounds - ledger.answered["train"]
    if left < plan.rounds - round_ + 1:
        raise PolicyRefusal(
            "max_rounds",
            f"{plan.rounds - round_ + 1} rounds, of which {max(left, 0)} can be answered",
        )
    check_repeated(policy, ledger, plan, round_, parties > 0)
    if plan.figures:
        left = policy.max_evaluations - ledger.answered["evaluate"]
        if left < plan.figures:
            raise PolicyRefusal(
                "max_evaluations",
                f"{plan.figures} accuracies, of which {max(left, 0)} can be told",
            )
        check_repeated(policy, ledger, plan, 0, parties > 0)
    check_cost(ledger, plan, cost)


def check_repeated(
    policy: Policy, ledger: OwnLedger, plan: StatedPlan, round_: int, masked: bool
) -> None:
    """Check that a round of a run, or (round 0) its accuracy, may be answered once more.

    Raises:
        PolicyRefusal: it may not; under masks nothing is answered twice.
    """
    often = min(1, policy.max_repeats) if masked else policy.max_repeats
    if round_ and ledger.rounds[plan.run, round_] >= often:
        raise PolicyRefusal("max_repeats", f"round {round_} was answered before")
    if not round_ and ledger.evaluations[plan.run] >= often * plan.figures:
        raise PolicyRefusal("max_repeats", "this run's accuracy was told before")


def check_masks(policy: Policy, masked: bool) -> None:
    """Check that sums may leave, as they are or ``masked``; PolicyRefusal if not."""
    if policy.secure_only and not masked:
        raise PolicyRefusal("secure_only", "sums leave under masks only")
    if policy.label_epsilon:
        raise PolicyRefusal("label_epsilon", "labels leave randomized, or not at all")


def check_promise(policy: Policy, promise: LabelPromise, randomized: bool) -> None:
    """Check that labels may leave, randomized with this promise; PolicyRefusal if not."""
    try:
        check_terms(promise, policy.terms, settled=randomized)
    except InputError as error:
        raise PolicyRefusal("label_epsilon", str(error)) from None


def check_public(policy: Policy) -> None:
    """Check that prompts and responses may leave; PolicyRefusal if not."""
    if not policy.public_items:
        raise PolicyRefusal("public_items", "prompts and responses are not public here")


def promised(work: messages.TrainRequest) -> LabelPromise:
    """The promise for labels in a request; ValueError if it is not a valid promise."""
    names = LabelPromise(1.0).to_config()
    return LabelPromise.from_config({name: work.parameters.get(name) for name in names})


def check_cost(ledger: OwnLedger, plan: StatedPlan, cost: Cost) -> float | None:
    """ε of all plans with this one; None if it was charged before.

    Raises:
        PolicyRefusal: the owner's budget does not cover it, or its run stated another plan.
    """
    former = ledger.plans.get(plan.run)
    if former == plan:
        return None
    if former is not None:
        raise PolicyRefusal("max_epsilon", "this run stated another plan before")
    plans = [*ledger.plans.values(), plan]
    if any(other.adjacency is not plan.adjacency for other in plans):
        raise PolicyRefusal("adjacency", "runs under another adjacency were charged before")
    return cost(plans)


def epsilon_of(plans: list[StatedPlan], delta: float) -> float:
    """ε of all plans, the new one last; PolicyRefusal, with the reason, where there is none."""
    try:
        return cost(plans, delta)
    except (ValueError, ArithmeticError) as error:  # no guarantee under the adjacency, for one
        raise PolicyRefusal("max_epsilon", str(error)) from None


def within(policy: Policy, epsilon: float) -> float:
    """``epsilon``, if the owner's budget covers it; PolicyRefusal if not."""
    if epsilon <= policy.max_epsilon:
        return epsilon
    raise PolicyRefusal(
        "max_epsilon",
        f"all stated plans with this one come to {epsilon:.4g} at delta {policy.delta:g}; "
        f"{policy.max_epsilon:g} is the most",
    )
