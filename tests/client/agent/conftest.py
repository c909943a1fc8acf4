"""An agent with three users."""

import pytest
from agents import POLICY

from murmuration.client.agent.agent import Agent
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements


@pytest.fixture
def store(make_rows):
    return UserStore(Judgements.from_rows(make_rows([3, 5, 2])), place=-1)


@pytest.fixture
def make(store, tmp_path):
    """A function: an agent with a policy; the same state every time."""
    made = []

    def agent(policy=POLICY):
        while made:
            made.pop().ledger.close()
        made.append(Agent(store, policy, tmp_path / "state"))
        return made[-1]

    return agent
