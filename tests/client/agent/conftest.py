"""An agent with three users, and what it was asked to account for."""

import pytest
from agents import POLICY

import murmuration.client.agent.agent
from murmuration.client.agent.agent import Agent
from murmuration.client.agent.plan_cost import bounded_cost
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements

_ACCOUNTED: dict[tuple[object, ...], float] = {}


@pytest.fixture
def accounted_once(monkeypatch):
    """Plans that were accounted for, in a process of its own, are not accounted for again."""

    def remembered(plans, delta):
        key = (*(plan.to_json() for plan in plans), delta)
        if key not in _ACCOUNTED:
            _ACCOUNTED[key] = bounded_cost(plans, delta)
        return _ACCOUNTED[key]

    monkeypatch.setattr(murmuration.client.agent.agent, "bounded_cost", remembered)


@pytest.fixture
def store(make_rows):
    return UserStore(Judgements.from_rows(make_rows([3, 5, 2])), place=-1)


@pytest.fixture
def make(accounted_once, store, tmp_path):
    """A function: an agent with a policy; the same state every time."""
    made = []

    def agent(policy=POLICY):
        while made:
            made.pop().ledger.close()
        made.append(Agent(store, policy, tmp_path / "state"))
        return made[-1]

    return agent
