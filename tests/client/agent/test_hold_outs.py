"""The owner's agent and hold-outs: nobody is in both halves of a run, whatever a server asks."""

import json
from dataclasses import replace

import agents
import pytest

from murmuration.client.agent.agent import Agent
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.privacy.accounting.events import (
    BufferedGaussian,
    BufferedLater,
    PoissonGaussian,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan, cost

POLICY = Policy(
    strategies=("uls",),
    max_epsilon=3.0,
    max_clip=0.1,
    max_rounds=30,
    max_repeats=3,
    max_evaluations=9,
)
HELD = HoldOut(0.2, 0.5)


pytestmark = pytest.mark.usefixtures("quick_runs")


def stated(run="run1", held=HELD, sigma=8.0):
    charges = {PoissonGaussian(0.5, sigma): 20, **(held.charges if held else {})}
    return StatedPlan.of(run, Adjacency.ZERO_OUT, 1e-6, 20, charges)


def work(users, plan=None, round_=1, salt=b"salt"):
    return agents.work(users, round_, plan or stated(), salt=salt)


@pytest.fixture
def make(store, tmp_path):
    """A function: an agent, started anew with the same state every time."""
    made = []

    def agent(policy=POLICY, store=store):
        while made:
            made.pop().ledger.close()
        made.append(Agent(store, policy, tmp_path / "state"))
        return made[-1]

    return agent


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("kinds", [("train", "evaluate"), ("evaluate", "train")])
def test_nobody_is_in_both_halves_of_a_run(make, kinds, again):
    first, second = kinds
    agent = make()
    agent.handle(first, work([0, 1]))
    agent = make() if again else agent
    before = agent.ledger.answered.copy()
    with pytest.raises(PolicyRefusal, match=r"\(hold_out\): a user was .* on in this run before"):
        agent.handle(second, work([1, 2]))
    assert agent.ledger.answered == before
    agent.handle(second, work([2]))
    agent.handle(first, work([0, 1], round_=2))
    with pytest.raises(PolicyRefusal, match="hold_out"):
        make().handle(first, work([0, 2], round_=3))


def test_who_was_trained_on_is_known_by_id_and_not_by_salted_name(make, make_rows):
    make().handle("train", work([0]))
    others = [{**row, "user_id": f"a{row['user_id']}"} for row in make_rows([1, 1])]
    moved = UserStore(Judgements.from_rows([*others, *make_rows([3, 5, 2])]), place=-1)
    agent = make(store=moved)
    with pytest.raises(PolicyRefusal, match="hold_out"):
        agent.handle("evaluate", work([0], salt=b"another"))
    agent.handle("evaluate", work([1], salt=b"another"))


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
def test_nobody_is_asked_out_of_turn(make, again):
    """Buffered noise is paid for by users who are in every so many rounds alone."""
    charges = {BufferedGaussian(9, 3, 8.0): 1, BufferedLater(9, 3, 8.0): 8}
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 9, charges)
    agent = make()
    agent.handle("train", work([0, 1], plan, round_=2))
    for round_ in (1, 3, 4, 6, 7):
        agent = make() if again else agent
        with pytest.raises(PolicyRefusal, match=r"\(max_repeats\).*in one of 3"):
            agent.handle("train", work([1], plan, round_=round_))
    agent.handle("train", work([2], plan, round_=3))
    agent.handle("train", work([0, 1], plan, round_=8))
    with pytest.raises(PolicyRefusal, match="max_repeats"):
        agent.handle("train", work([0, 2], plan, round_=8))


def test_the_next_run_tosses_other_coins_and_is_charged_for_both_halves(make):
    agent = make()
    agent.handle("train", work([0, 1]))
    agent.handle("evaluate", work([0, 1], stated("run2")))
    line = json.loads(agent.ledger.path.read_text().splitlines()[-2])
    bare = cost([stated(held=None), stated("run2", None)], 1e-6)
    assert line["epsilon"] > bare  # nothing is saved by coins, and what is told of users is added


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("share", [0.999999, 0.51])
def test_a_share_beyond_half_is_not_believed(make, kind, share):
    """With nearly everybody held out, and next to nothing said of them, any run would be free."""
    plan = stated(held=HoldOut(share, 1e-9), sigma=0.3)
    agent = make(replace(POLICY, max_epsilon=500.0))
    with pytest.raises(PolicyRefusal, match=r"\(hold_out\): .* 0\.5 is the most"):
        agent.handle(kind, work([0], plan))
    assert not agent.ledger.plans


def test_figures_that_no_stated_plan_pays_for_are_refused(make):
    agent = make()
    for held in (None, HELD.coins):
        with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\).*pays for no figures"):
            agent.handle("evaluate", work([0], stated(held=held)))
    without = work([0])
    del without.config_records["parameters"][PARAMETER]
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\).*states no plan"):
        agent.handle("evaluate", without)
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):
        agent.handle("evaluate", work([0], stated(held=HoldOut(0.2, 9.0))))
    assert not agent.ledger.answered
    assert not agent.ledger.plans


def test_figures_are_charged_with_the_plan_and_told_as_often_as_it_pays_for(make):
    agent = make()
    reply = agent.handle("evaluate", work([0, 2]))
    messages.read_tally(reply, Tally(), users=2)
    assert agent.ledger.plans == {"run1": stated()}
    with pytest.raises(PolicyRefusal, match="another plan before"):
        make().handle("evaluate", work([0], stated(held=HoldOut(0.2, 0.1))))
    for _ in range(2):  # a server that crashed asks again
        make().handle("evaluate", work([0, 2]))
    with pytest.raises(PolicyRefusal, match="max_repeats"):
        make().handle("evaluate", work([0, 2]))
