"""Audits of strategies of one round: label moments, and objective perturbation.

Where labels are protected, both release one noisy sum, and solving for the model is
post-processing: the sum is audited, through the node half, for a user with one judgement whose
label flips. Where everything is, only the minimiser is released, and that is audited; its bound is
for users whose gradients are opposed at every model, of which there are none with one judgement.

Legend: N trials.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from murmuration.audits.auditing import DELTA, Measured, Scores, Target, Task
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import LABELS
from murmuration.research.audits.trials import both_sides
from murmuration.research.strategies.perturbed_minimiser import perturbed_minimiser
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.solved import label_moment, objective_perturbation
from murmuration.strategies.solved.label_moment import LabelMomentPlan
from murmuration.strategies.solved.objective_perturbation import ObjectivePlan

NodeHalf = Callable[[PairExamples, TrainRequest, np.ndarray, Randomness], Mapping[str, np.ndarray]]


def _labels_sum(node_half: NodeHalf, label: float, **parameters: float) -> float:
    """The node's exact sum over one user with one judgement and this label."""
    examples = PairExamples(torch.ones(1, 1), torch.tensor([label]), torch.tensor([0, 1]))
    work = TrainRequest(
        {"theta": np.zeros(1, np.float32)}, {"round": 1, **parameters}, np.arange(1)
    )
    total = node_half(examples, work, np.zeros(1, np.uint64), Randomness(0))["sum"]
    return float(total[0])


def _audit_sum(
    task: Task,
    plan: LabelMomentPlan | ObjectivePlan,
    node_half: NodeHalf,
    **parameters: float,
) -> Measured:

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        label = _labels_sum(node_half, 0.0 if second else 1.0, **parameters)
        exact_N = np.full(task.trials, label)
        # The noisy sum is the likelihood ratio, but for a constant factor and term.
        return plan.mechanism.release(exact_N, round_=1, covers="sum", ledger=ledger, source=source)

    return both_sides(task, one).measured(task, fit=True)


def audit_label_moment(task: Task) -> Measured:
    """The moment of one user whose one label flips."""
    plan = LabelMomentPlan.for_epsilon(
        task.epsilon, users=1, rounds=1, delta=DELTA, adjacency=task.adjacency
    )
    return _audit_sum(task, plan, label_moment.client_update, **{"clip-norm": plan.clip.norm})


def audit_objective(task: Task) -> Measured:
    """The linear term of one user whose one label flips."""
    plan = ObjectivePlan.for_epsilon(
        task.epsilon, users=1, delta=DELTA, adjacency=task.adjacency, length=1.0
    )
    return _audit_sum(task, plan, objective_perturbation.client_update, length=plan.length)


def audit_everything(task: Task) -> Measured:
    """The minimiser of one user's loss, whose judgement is replaced by the opposite one."""
    result = []
    for second, label in ((False, 1.0), (True, 0.0)):
        generator = task.side(second).stream("objective")
        thetas = [
            perturbed_minimiser(
                np.ones((1, 1)),
                np.array([label]),
                epsilon=task.epsilon,
                delta=DELTA,
                length=1.0,
                generator=generator,
                adjacency=task.adjacency,
            )[0]
            for _ in range(task.trials)
        ]
        result.append(np.array(thetas))
    return Measured.from_scores(Scores(*result), task.epsilon, task)


TARGETS = {
    "label-moment": Target(
        "one noisy sum of moments, labels protected",
        audit_label_moment,
        adjacencies=LABELS,
        trials=4_000_000,
        power=0.6,
    ),
    "objective-perturbation": Target(
        "the noisy linear term, labels protected",
        audit_objective,
        adjacencies=LABELS,
        trials=4_000_000,
        power=0.6,
    ),
    "objective-perturbation:everything": Target(
        "the perturbed minimiser, everything protected",
        audit_everything,
        adjacencies=frozenset({Adjacency.REPLACE}),
        trials=2_000,
        epsilon=4.0,
    ),
}
