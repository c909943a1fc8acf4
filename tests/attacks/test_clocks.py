"""Clocks that jump by hours: what is counted, and how long something is waited for, stays.

Bounds are kept by clocks that cannot be set. A time that a node signs is compared with the server's
clock, by Flower, so a jump keeps nodes out until the clocks agree again; it lets nobody in.
"""

import time
from datetime import UTC, datetime, timedelta

import pytest
from agents import FEATURES, POLICY, stated, work
from flwr.superlink.routers.fleet import node_auth
from superlink import served, superlink

from murmuration.client.agent import ledger as own_ledger
from murmuration.client.agent.agent import MOST_QUESTIONS, QUESTIONS, Agent
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.policy import PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.deploy.guard import front_door
from murmuration.preference.data.judgements import Judgements
from murmuration.strategies.protocol import plan_query
from murmuration.strategies.protocol.stated_plan import PARAMETER

__all__ = ["served", "superlink"]

HOURS = 3 * 3600.0


@pytest.fixture
def set_clock(monkeypatch):
    """A function: sets the clocks of server and agent so many seconds on, or back."""
    real = time.time

    def by(seconds):
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):
                return datetime.fromtimestamp(real() + seconds, tz)

        monkeypatch.setattr(time, "time", lambda: real() + seconds)
        monkeypatch.setattr(node_auth, "now", lambda: Clock.now(UTC))
        monkeypatch.setattr(own_ledger, "datetime", Clock)

    return by


@pytest.fixture
def agent(make_rows, tmp_path):
    """An owner's agent."""
    store = UserStore(Judgements.from_rows(make_rows([3, 5])), place=-1)
    return Agent(store, POLICY, tmp_path / "state")


@pytest.mark.parametrize("seconds", [HOURS, -HOURS])
def test_a_node_that_sent_too_much_waits_though_the_servers_clock_jumps(
    superlink, set_clock, monkeypatch, seconds
):
    monkeypatch.setattr(front_door, "WINDOW_BYTES", 100_000)
    alice = superlink.alice

    def status():
        return superlink.post("push-object", bytes(100_000), alice.headers())[0]

    assert [status(), status()] == [400, 503]
    set_clock(seconds)
    assert status() == 401
    set_clock(0.0)
    assert status() == 503
    set_clock(seconds)  # and who goes with it is still in the same window
    assert superlink.post("push-object", b"", alice.headers(ago=-seconds))[0] == 503


@pytest.mark.parametrize("seconds", [HOURS, -HOURS])
def test_a_server_shows_no_more_plans_though_the_owners_clock_jumps(agent, set_clock, seconds):
    def show(clip):
        parameters = {"strategy": "uls", "round": 1, "features": FEATURES, "clip-norm": clip}
        parameters |= {"group-size": 16, PARAMETER: stated().to_json()}
        return agent.handle(plan_query.QUERY, plan_query.request(parameters, 0))

    for number in range(MOST_QUESTIONS):
        show(0.1 + number)
    set_clock(seconds)
    with pytest.raises(PolicyRefusal) as refused:
        show(99.0)
    assert refused.value.rule == QUESTIONS


def test_an_owners_ledger_is_in_the_order_of_its_lines(agent, set_clock, tmp_path):
    """Times in it go back; what was answered does not."""
    for round_, seconds in enumerate((HOURS, -HOURS, 0.0), 1):
        set_clock(seconds)
        agent.handle("train", work(round_=round_))
    agent.ledger.close()
    lines = (tmp_path / "state" / "own-ledger.jsonl").read_text().splitlines()
    times = [datetime.fromisoformat(line.split('"at": "')[1][:25]) for line in lines[2:]]
    assert times != sorted(times)
    assert max(times) - min(times) > timedelta(seconds=HOURS)
    ledger = OwnLedger.read(tmp_path / "state" / "own-ledger.jsonl")
    assert (ledger.answered["train"], len(ledger.plans)) == (3, 1)
    assert [ledger.rounds[stated().run, round_] for round_ in (1, 2, 3)] == [1, 1, 1]
