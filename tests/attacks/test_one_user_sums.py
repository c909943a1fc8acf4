"""What one sum tells: every label in it, however short it is. And what ``min_users`` changes.

Where prompts and responses are public (or guessed), a gradient is a sum of known vectors, each with
a sign that is a label. Its length, which is all that clipping bounds, says nothing about them, and
several users' vectors are told apart as one user's are, as long as they are fewer than dimensions.

Legend: D dimensions, J judgements.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from named import asked

from murmuration.client.agent.agent import Agent
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan

D, J = 512, 33
FEATURES = HashingFeatures(dimension=D)
POLICY = Policy(strategies=("uls",), max_epsilon=30.0, max_clip=0.001, max_rounds=30)
PLAN = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})


def shown(user):
    """The two answers to each question: public. Which is better is not."""
    return [tuple(f"{user}x{number}{k} said so" for k in "ab") for number in range(J)]


def truth(seed):
    """Which of the two was chosen, by question: 0 or 1."""
    return np.random.default_rng(seed).integers(0, 2, J)


def rows(user, seed):
    for number, (pair, best) in enumerate(zip(shown(user), truth(seed), strict=True)):
        row = {"user_id": user, "prompt": f"q{number}"}
        yield {**row, "chosen": pair[best], "rejected": pair[1 - best]}


@pytest.fixture
def make(monkeypatch, tmp_path):
    """A function: an agent of two users."""
    monkeypatch.setattr("murmuration.client.agent.agent.epsilon_of", lambda plans, delta: 1.0)
    found = [row for number in (0, 1) for row in rows(f"u{number:03}", number)]

    def agent(**rules):
        store = UserStore(Judgements.from_rows(found), place=-1)
        return Agent(store, replace(POLICY, **rules), tmp_path / "state")

    return agent


def told(agent, users, round_=1):
    parameters = {"strategy": "uls", "round": round_, "features": json.dumps(FEATURES.to_config())}
    parameters |= {"clip-norm": 0.001, "group-size": 100, PARAMETER: PLAN.to_json()}
    model = messages.model_record(np.zeros(D))
    reply = agent.handle("train", messages.work_request(model, parameters, asked(users)))
    return messages.read_sums(reply, {"sum": (D,)}, {"sum": grid.step_for(0.001)})["sum"]


def labels_from(sum_D, *users):
    """The labels that a sum over some users, whose texts are known, comes to."""
    first, second = zip(*(pair for user in users for pair in shown(user)), strict=True)
    x_JD = FEATURES([""] * len(first), first) - FEATURES([""] * len(first), second)
    parts_J = np.linalg.lstsq(x_JD.T.astype(np.float64), sum_D, rcond=None)[0]
    return (parts_J > 0).astype(int).tolist()  # at θ = 0 a gradient is away from the chosen one


def test_one_short_sum_over_one_user_tells_all_labels(make):
    """What ``max_clip`` does not bound."""
    sum_D = told(make(), (0,))
    assert np.linalg.norm(sum_D) <= 0.001
    assert labels_from(sum_D, "u000") == truth(0).tolist()


def test_a_sum_over_one_user_is_refused_where_the_owner_wants_more(make):
    agent = make(min_users=2)
    for users in ((0,), (0, 17)):
        with pytest.raises(PolicyRefusal, match=r"\(min_users\)"):
            told(agent, users)
    assert not agent.ledger.answered
    told(agent, (0, 1))


def test_what_the_rule_does_not_bound(make):
    """Labels in a sum over two are read like labels in a sum over one."""
    both_D = told(make(min_users=2), (0, 1))
    assert labels_from(both_D, "u000", "u001") == [*truth(0).tolist(), *truth(1).tolist()]
