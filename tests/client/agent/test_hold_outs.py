"""The owner's agent and hold-outs: nobody is in both halves of a run, whatever a server asks."""

import json
import threading
from dataclasses import replace

import agents
import pytest

import murmuration.client.agent.agent
from murmuration.client.agent.agent import Agent, listening
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.app import app
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import (
    BufferedGaussian,
    BufferedLater,
    PoissonGaussian,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan, cost

FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
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


@pytest.fixture
def nodes(tmp_path, make_rows):
    """A function: agents with this policy, 12 users at each, by node-config and agent."""
    served = []

    def serve(policy, count=3):
        rows = make_rows([3, 4, 2] * 4 * count)
        names = sorted({row["user_id"] for row in rows})
        for number in range(count):
            mine = set(names[number::count])
            judged = Judgements.from_rows([row for row in rows if row["user_id"] in mine])
            agent = Agent(UserStore(judged, place=-1), policy, tmp_path / f"state{number}")
            path = tmp_path / f"{number}.sock"
            listener, stop = listening(path), threading.Event()

            def answer(agent=agent, listener=listener, stop=stop):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        if stop.is_set():
                            return
                        murmuration.client.agent.agent._serve_one(agent, connection)

            thread = threading.Thread(target=answer, daemon=True)
            thread.start()
            served.append((agent, path, listener, stop, thread))
        return [{"agent": str(path)} for _, path, *_ in served], [agent for agent, *_ in served]

    yield serve
    for agent, path, listener, stop, thread in served:
        stop.set()
        with murmuration.client.agent.agent.socket.socket(
            murmuration.client.agent.agent.socket.AF_UNIX
        ) as last:
            last.connect(str(path))
        thread.join(10)
        listener.close()
        agent.ledger.close()


def config_of(tmp_path, **changes):
    settings = {
        "adjacency": "zero-out",
        "epsilon": 2.5,
        "delta": 1e-3,
        "rounds": 4,
        "cohort": 12,
        "clip_norm": 0.1,
        "group_size": 16,
        "out": str(tmp_path / "run"),
        "timeout": 60.0,
    }
    return RunConfig(**{**settings, **changes})


OWNERS = replace(POLICY, delta=1e-3, max_dimension=10**6)


def test_an_honest_run_over_agents_holds_users_out_and_is_refused_nothing(nodes, tmp_path):
    configs, agents = nodes(OWNERS)
    config = config_of(tmp_path)
    grid = LocalGrid(app, len(configs), config.to_run_config(), node_configs=configs)
    result = run_training(config, grid)
    assert result["rounds"] == 4
    assert result["heldout_epsilon"] == 1.25
    log = (tmp_path / "run" / "private" / "log.jsonl").read_text()
    assert "refuses" not in log
    told = 0
    for agent in agents:
        (plan,) = agent.ledger.plans.values()
        assert plan.epsilon() == pytest.approx(result["epsilon"])
        halves = [agent.ledger.asked(kind, plan.run) for kind in ("train", "evaluate")]
        assert halves[0].isdisjoint(halves[1])
        assert {*halves[0], *halves[1]} <= {*agent.store.keys_U.tolist()}
        told += agent.ledger.answered["evaluate"]
        assert not agent.ledger.refusals
    assert told


def test_a_group_size_that_owners_do_not_help_to_choose_must_be_given(nodes, tmp_path):
    configs, agents = nodes(replace(OWNERS, strategies=("els",), max_clip=2.0))
    config = config_of(tmp_path, strategy="els", group_size=0)
    grid = LocalGrid(app, len(configs), config.to_run_config(), node_configs=configs)
    with pytest.raises(RunAborted, match=r"owners' policies: .* state --group-size instead"):
        run_training(config, grid)
    assert not any(agent.ledger.plans for agent in agents)
    refused = [agent.ledger.path.read_text() for agent in agents]
    assert all("(strategies): numbers of judgements are not told" in text for text in refused)
    given = replace(config, group_size=4, out=config.out + "-given")
    grid = LocalGrid(app, len(configs), given.to_run_config(), node_configs=configs)
    assert run_training(given, grid)["group_size"] == 4
    assert all(agent.ledger.answered["train"] for agent in agents)
