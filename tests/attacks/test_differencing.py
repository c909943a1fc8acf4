"""Two sums whose difference is one party's own: how a server that lies would get them, refused."""

import json
from dataclasses import replace
from functools import partial

import agents
import pytest
from hostile_server import exact_sum

from murmuration.client.agent.agent import Agent
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.privacy.secure_aggregation.party import ProtocolError
from murmuration.strategies.protocol import secure_messages as wire
from murmuration.strategies.protocol.stated_plan import StatedPlan

D = 33
FEATURES = json.dumps(HashingFeatures(dimension=D).to_config())
POLICY = Policy(
    strategies=("uls",),
    max_epsilon=30.0,
    max_clip=0.1,
    max_group_size=16,
    max_rounds=30,
    max_evaluations=30,
    secure_only=True,
)
HELD = HoldOut(0.2, 0.5)
PLAN = StatedPlan.of(
    "run1", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20, **HELD.charges}
)


work = partial(agents.work, plan=PLAN)


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """What a plan costs is another test's."""
    monkeypatch.setattr("murmuration.client.agent.agent.epsilon_of", lambda plans, delta: 1.0)


@pytest.fixture
def agents(make_rows, tmp_path):
    """A function: four agents of three users each; the same state every time."""
    made = {}

    def start(**rules):
        for agent in made.values():
            agent.ledger.close()
        for name in (1, 2, 3, 4):
            store = UserStore(Judgements.from_rows(make_rows([3, 5, 2], seed=name)), place=-1)
            made[name] = Agent(store, replace(POLICY, **rules), tmp_path / str(name))
        return dict(made)

    return start


def summed(agents, names, session=b"s" * 16, kind="train", length=D, **asked_for):
    request = work(**asked_for)
    return exact_sum(agents, dict.fromkeys(names, request), length, session=session, kind=kind)


def test_the_same_round_with_four_and_then_with_three(agents):
    """Before, the difference was the fourth's exact sum, to the last bit."""
    four = agents()
    summed(four, (1, 2, 3, 4))
    with pytest.raises(PolicyRefusal, match=r"\(max_repeats\)"):
        summed(four, (1, 2, 3), b"t" * 16)
    with pytest.raises(PolicyRefusal, match=r"\(max_repeats\)"):
        summed(agents(), (1, 2, 3), b"u" * 16)  # nor after they were started anew


def test_the_next_round_counts_against_the_owners_own_limit(agents):
    four = agents(max_rounds=2)
    for round_ in (1, 2):
        summed(four, (1, 2, 3, 4), bytes([round_]) * 16, round_=round_)
    with pytest.raises(PolicyRefusal, match=r"\(max_rounds\)"):
        summed(four, (1, 2, 3), b"t" * 16, round_=3)


def test_a_round_of_another_model_is_still_that_round(agents):
    four = agents()
    summed(four, (1, 2, 3, 4))
    with pytest.raises(PolicyRefusal, match=r"\(max_repeats\)"):
        summed(four, (1, 2, 3), b"t" * 16, theta=1e-6)


@pytest.mark.parametrize("bare_first", [True, False])
def test_one_round_is_not_told_both_under_masks_and_without(agents, bare_first):
    """Three that tell theirs bare as well leave the fourth's in the difference."""
    four = agents(secure_only=False)
    if bare_first:
        four[1].handle("train", work())
        with pytest.raises(PolicyRefusal, match=r"\(max_repeats\)"):
            summed(four, (1, 2, 3, 4))
    else:
        summed(four, (1, 2, 3, 4))
        with pytest.raises(PolicyRefusal, match=r"\(max_repeats\)"):
            four[1].handle("train", work())


def test_how_often_a_model_is_right_is_told_once_too(agents):
    four, length = agents(), Tally().figures
    asked_for = {"kind": "evaluate", "length": length}
    summed(four, (1, 2, 3, 4), **asked_for)
    with pytest.raises(PolicyRefusal, match=r"\(max_repeats\)"):
        summed(four, (1, 2, 3), b"t" * 16, **asked_for)


@pytest.mark.parametrize(
    "other",
    [{"theta": 100.0}, {"clip-norm": 2.0**-5}, {"group-size": 1}, {"round_": 2}],
    ids=["model", "clip norm", "group size", "round"],
)
@pytest.mark.parametrize("told", ["the same", "each its own"])
def test_in_one_session_all_are_asked_for_one_sum(agents, other, told):
    """Three asked at a model where their gradients vanish would leave the fourth's sum alone."""
    four, mine, theirs = agents(), work(), work(**other)
    requests = {1: mine, 2: theirs, 3: theirs, 4: theirs}
    abouts = {name: wire.about("train", request) for name, request in requests.items()}
    with pytest.raises(ProtocolError, match=r"another sum|altered"):
        exact_sum(
            four,
            requests,
            D,
            session=b"s" * 16,
            about=None if told == "the same" else abouts.get,
        )


def test_parties_of_whom_nobody_is_asked_show_nothing(agents):
    """Their sums would be zero, and the total the one party's whose users are asked."""
    four = agents()
    requests = {1: work(users=(700,)), **dict.fromkeys((2, 3, 4), work())}
    with pytest.raises(
        PolicyRefusal, match=r"\(min_users\): of those who are asked for 0 are here"
    ):
        exact_sum(four, requests, D, session=b"s" * 16)


def test_how_many_parties_are_enough_is_the_owners_word(agents):
    four = agents(min_parties=4)
    with pytest.raises(PolicyRefusal, match=r"\(min_parties\).*at least 4"):
        summed(four, (1, 2, 3))
    summed(four, (1, 2, 3, 4), b"t" * 16)


def test_a_party_whose_sum_is_said_not_to_have_arrived_is_missed(agents):
    """Four began; the server says that one dropped out, and would have the sum of three."""
    four = agents(min_parties=4)
    original = wire.unmask_request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "unmask_request", lambda session, arrived: original(session, [1, 2, 3]))
        with pytest.raises(ProtocolError, match="3 of 4 vectors arrived; at least 4 must"):
            summed(four, (1, 2, 3, 4))


def test_parties_that_the_server_invented(agents):
    """Keys that no listed agent has signed; or one that is listed, twice."""
    names = {name: agent.name for name, agent in agents().items()}
    four = agents(parties=tuple(names[name] for name in (1, 2, 3)))
    with pytest.raises(PolicyRefusal, match=r"\(parties\): party 4 of 4: not listed"):
        summed(four, (1, 2, 3, 4))
    summed(four, (1, 2, 3), b"t" * 16)  # after a restart they are who they were
    session = b"u" * 16
    shown = {
        (name, again): wire.read_keys(four[name].handle(wire.KEYS, wire.keys_request(session)))
        for again in (0, 1)
        for name in (2, 3, 1)
    }
    mine, second, third = shown[1, 1], shown[2, 1], shown[3, 1]
    other = shown[2, 0]  # of the same agent, signed
    for roster, why in (
        ([mine, second, other], "party 3 of 3: not listed, or listed twice"),
        ([mine, second, wire.Entry(third.keys)], "party 3 of 3: keys that nobody has signed"),
        ([mine, second, replace(third, keys=other.keys)], "party 3 of 3: keys that nobody"),
    ):
        told = wire.Invitation(session, 1, roster, bytes(32))
        with pytest.raises(PolicyRefusal, match=rf"\(parties\): {why}"):
            four[1].handle(wire.SHARES, told.request())
    four[1].handle(
        wire.SHARES, wire.Invitation(session, 1, [mine, second, third], bytes(32)).request()
    )
