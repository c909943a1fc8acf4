"""Audits of a survey's one release: the whole of a user, from answers to the noisy sum.

The canary gives the same answer to every question in all of a thousand judgements; on the other
data set it is not there or, where users are replaced, is one with a single judgement and other
answers. All other users are known to the attacker and left out.

Legend: V coordinates, J judgements, Q questions, S users.
"""

from collections.abc import Callable

import numpy as np
import torch

from murmuration.audits.auditing import DELTA, Measured, Target, Task
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.trials import projected
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.sums import RoundMechanism
from murmuration.surveying.answers import SurveyAnswers
from murmuration.surveying.questionnaire import Questionnaire
from murmuration.surveying.strategy import SurveyPlan, client_update

#: From answers and what is requested of a node to its sums.
NodeHalf = Callable[[SurveyAnswers, TrainRequest, np.ndarray, Randomness], dict[str, np.ndarray]]

QUESTIONNAIRE = Questionnaire(("money", "health"))
_JUDGEMENTS = 1000


def one_answer(answer: int, judgements: int) -> SurveyAnswers:
    """The answers of one user, to every question the first (0) or the last (−1)."""
    places_Q = [range(place.start, place.stop)[answer] for place in QUESTIONNAIRE.places[1:]]
    places_JQ = np.tile(np.array(places_Q, dtype=np.int32), (judgements, 1))
    return SurveyAnswers(torch.tensor([0, judgements]), places_JQ, QUESTIONNAIRE)


def audit_survey(
    task: Task,
    node_half: NodeHalf = client_update,
    mechanism: Callable[[SurveyPlan], RoundMechanism] = lambda plan: plan.mechanism,
) -> Measured:
    """Attack one release; ``node_half`` and ``mechanism`` replace the real ones in audits of seeded
    faults.
    """
    plan = SurveyPlan.for_epsilon(
        task.epsilon,
        users=1,
        rounds=1,
        delta=DELTA,
        adjacency=task.adjacency,
        questionnaire=QUESTIONNAIRE,
    )
    work = TrainRequest({}, {"round": 1, **plan.node_config}, np.arange(1))
    keys_S, replaced = np.zeros(1, dtype=np.uint64), task.adjacency.vectors_changed == 2
    first_V = node_half(one_answer(0, _JUDGEMENTS), work, keys_S, Randomness(0))["sum"]
    second_V = np.zeros_like(first_V)
    if replaced:
        second_V = node_half(one_answer(-1, 1), work, keys_S, Randomness(0))["sum"]
    return projected(task, mechanism(plan), first_V, second_V, "survey answers")


TARGETS = {
    "survey": Target(
        "the sum of answers that a survey is computed from, of a user who always answers alike",
        audit_survey,
        trials=100_000,
    )
}
