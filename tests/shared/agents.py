"""A policy, and the requests that it allows: for tests of the owner's agent."""

import json

import numpy as np
from named import asked

from murmuration.client.agent.policy import Policy
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.strategies import registry
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan

FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
POLICY = Policy(
    strategies=("uls",), max_epsilon=3.0, max_clip=0.1, max_group_size=16, max_rounds=30
)


def stated(run="run1", rounds=20, sigma=4.0):
    events = {PoissonGaussian(0.5, sigma): rounds}
    return StatedPlan.of(run, Adjacency.ZERO_OUT, 1e-6, rounds, events)


def work(users=(0, 1), round_=1, plan=None, theta=0.0, salt=b"salt", **changes):
    parameters = {
        "strategy": "uls",
        "round": round_,
        "features": FEATURES,
        "clip-norm": 0.1,
        "group-size": 16,
        PARAMETER: (plan or stated()).to_json(),
    }
    model = messages.model_record(np.full(33, theta))
    return messages.work_request(model, {**parameters, **changes}, asked(users, salt))


def summed(reply):
    """The sum of an answer to ``work``."""
    return messages.read_sums(reply, {"sum": (33,)}, {"sum": grid.step_for(0.1)})["sum"]


def halves():
    """What an agent by ``POLICY`` can compute; a test may put something else in its place."""
    return registry.node_halves(frozenset(POLICY.strategies))
