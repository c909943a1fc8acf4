"""A server that opens the masks as it likes, against agents that add noise before it sees a sum.

The server here is ``hostile_server``: it has the agents' answers and nothing else.
"""

import json
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hostile_server import exact_sum
from named import asked
from scipy import stats

from murmuration.client import secure
from murmuration.client.agent.agent import Agent
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.mixture import MixtureGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.privacy.mechanisms.distributed import DistributedNoise, NodeNoise, NoisySum
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.secure_aggregation.party import ProtocolError
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan, cost

pytestmark = pytest.mark.skipif(not installed(), reason="needs OpenDP")

D, CLIP, SIGMA, PARTIES, ROUNDS = 257, 0.1, 8.0, 4, 10
FEATURES = json.dumps(HashingFeatures(dimension=D).to_config())
STEP = grid.step_for(CLIP)
POLICY = Policy(
    strategies=("uls", "els"),
    max_epsilon=8.0,
    max_clip=CLIP * 16,
    max_group_size=16,
    max_rounds=30,
    max_evaluations=30,
    secure_only=True,
    honest_parties=4,
)


def event(inner=None, parties=PARTIES):
    return DistributedNoise(D, parties).charged(inner or PoissonGaussian(0.1, SIGMA))


def plan(charges=None, run="run1"):
    charges = charges or {event(): ROUNDS}
    return StatedPlan.of(run, Adjacency.ZERO_OUT, 1e-6, ROUNDS, charges)


def noise(parties=PARTIES, std=SIGMA * CLIP):
    return messages.noise_parameters(NodeNoise(parties, {"sum": NoisySum(std, STEP, CLIP)}))


def work(users=(0, 1, 2), round_=1, stated=None, added=None, **changes):
    parameters = {
        "strategy": "uls",
        "round": round_,
        "features": FEATURES,
        "clip-norm": CLIP,
        "group-size": 16,
        PARAMETER: (stated or plan()).to_json(),
        **(noise() if added is None else added),
        **changes,
    }
    model = messages.model_record(np.zeros(D))
    return messages.work_request(model, parameters, asked(users))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """What plans cost is computed once for all agents."""
    known = lru_cache(lambda plans, delta: cost(list(plans), delta))
    monkeypatch.setattr(
        "murmuration.client.agent.agent.epsilon_of",
        lambda plans, delta: known(tuple(plans), delta),
    )


@pytest.fixture(scope="module")
def stores():
    def rows(seed):
        words = np.random.default_rng(seed).integers(0, 50, size=(12, 2))
        return [
            {"user_id": f"u{i % 3:03}", "prompt": "p", "chosen": f"w{a} b", "rejected": f"w{b} c"}
            for i, (a, b) in enumerate(words)
        ]

    return {n: UserStore(Judgements.from_rows(rows(n)), place=-1) for n in (1, 2, 3, 4, 5)}


@pytest.fixture
def agents(stores, tmp_path):
    """A function: so many agents of three users each, with fresh ledgers."""
    made = []

    def start(number=4, **rules):
        found = {}
        for name in range(1, number + 1):
            state = tmp_path / f"{len(made)}"
            found[name] = Agent(stores[name], replace(POLICY, **rules), state)
            made.append(found[name])
        return found

    yield start
    for agent in made:
        agent.ledger.close()


def seen(agents, request, session=b"s" * 16):
    requests = request if isinstance(request, dict) else dict.fromkeys(agents, request)
    return exact_sum(agents, requests, D, session=session)


def bare(agents, users=(0, 1, 2)):
    """The exact sum, from agents that know no better."""
    trusting = agents(honest_parties=0)
    stated = plan({PoissonGaussian(0.1, SIGMA): ROUNDS})
    request = work(users, stated=stated, added={})
    return seen(trusting, request)


def looks_normal(found_L, std):
    tail = stats.chi2.cdf(((found_L * STEP / std) ** 2).sum(), len(found_L))
    assert 1e-6 < tail < 1 - 1e-6, f"{(found_L * STEP).std() / std:.3f} of the noise"


def test_what_the_server_opens_is_the_sum_with_noise(agents):
    """Before: the exact sum, to the last bit, and noise was the server's word."""
    exact = bare(agents)
    assert np.abs(exact).max() > 0
    found = [
        seen(four, work(round_=round_), bytes([round_]) * 16)
        for four in [agents()]
        for round_ in (1, 2, 3)
    ]
    for total in found:
        looks_normal(total - exact, SIGMA * CLIP)
    assert len({total.tobytes() for total in found}) == 3


def test_the_others_asked_about_nobody_leave_one_sum_and_all_the_noise(agents):
    four = agents()
    found = seen(four, {1: work(), 2: work(()), 3: work(()), 4: work(())})
    alone = exact_one(agents)
    looks_normal(found - alone, SIGMA * CLIP)


def exact_one(agents):
    one = next(iter(agents(1, honest_parties=0, secure_only=False).values()))
    reply = one.handle("train", work(stated=plan({PoissonGaussian(0.1, SIGMA): ROUNDS}), added={}))
    return grid.to_whole(messages.read_sums(reply, {"sum": (D,)}, {"sum": STEP})["sum"], STEP)


def test_with_one_share_less_than_the_noise_is_made_of_nobody_opens_anything(agents):
    """Four of five would do for the masks."""
    five = agents(5)
    request = work(stated=plan({event(parties=5): ROUNDS}), added=noise(5))
    opened = exact_sum.__globals__["opened_sum"]

    def without_the_last(them, places, session, about, roster, shared, masked):
        masked = {place: masked_L for place, masked_L in masked.items() if place != 5}
        return opened(them, places, session, about, roster, shared, masked)

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(exact_sum.__globals__, "opened_sum", without_the_last)
        with pytest.raises(ProtocolError, match=r"at least 5 must"):
            seen(five, request)


@pytest.mark.parametrize(
    "bad",
    [
        {"added": {}},  # no noise of theirs
        {"added": noise(std=SIGMA * CLIP * 0.999)},  # a little less than is stated
        {"added": noise(parties=3)},  # of fewer shares than is accounted for
        {"added": noise() | {"noise-on-sum": float("nan")}},
        {"added": noise() | {"noise-parties": 1}},
        {"added": {"noise-parties": PARTIES}},
        {"clip-norm": CLIP * 1.01},  # users who may move the sum further
        {"stated": plan({PoissonGaussian(0.1, SIGMA): ROUNDS})},  # noise of the server's
        {"stated": plan({event(): ROUNDS, PoissonGaussian(0.1, 100.0): 1})},
        {"stated": plan({event(): ROUNDS, **HoldOut(0.2, 0.5).charges})},
        {"strategy": "els", "probability": 0.1},  # of sixteen examples, each as long as the clip
    ],
)
def test_noise_that_does_not_carry_the_plan_is_refused(agents, bad):
    four = agents()
    with pytest.raises(PolicyRefusal, match=r"\((honest_parties|max_epsilon)\)"):
        seen(four, work(**bad))
    assert not four[1].ledger.plans


def test_examples_whose_coins_the_agent_tosses(agents):
    """ELS: what one example can add is what the noise is for, if group size and coins agree."""
    mixture = event(MixtureGaussian(SIGMA, 16, 0.1))
    good = {"strategy": "els", "probability": 0.1, "stated": plan({mixture: ROUNDS})}
    seen(agents(), work(**good))
    for worse in ({"group-size": 17}, {"probability": 0.2}, {"clip-norm": 2 * CLIP}):
        with pytest.raises(PolicyRefusal):
            seen(agents(max_group_size=0, max_clip=9.0), work(**{**good, **worse}))


def test_the_owners_bound_is_on_what_the_server_sees(agents):
    """The plan costs less than 0.2 as published, and 1.8 for a server that knows who was asked."""
    four = agents(max_epsilon=1.0)
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):
        seen(four, work())
    assert 1.5 < plan().against_server(4).epsilon() < 2.0
    assert plan().epsilon() < 0.3
    seen(agents(max_epsilon=1.0, honest_parties=0), work())  # whom what is published satisfies


def test_an_owner_who_trusts_fewer_counts_less_noise(agents):
    assert plan().against_server(1).epsilon() > 2 * plan().against_server(4).epsilon()
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):
        seen(agents(max_epsilon=3.0, honest_parties=1), work())


def test_noise_without_masks_is_refused(agents):
    one = agents(1, secure_only=False)[1]
    with pytest.raises((PolicyRefusal, ProtocolError)):
        one.handle("train", work())


def test_an_agent_asked_about_nobody_without_noise_still_refuses(agents):
    """Its zero would leave another's sum alone."""
    four = agents(honest_parties=0)
    stated = plan({PoissonGaussian(0.1, SIGMA): ROUNDS})
    requests = {1: work(stated=stated, added={})}
    requests |= dict.fromkeys((2, 3, 4), work((), stated=stated, added={}))
    with pytest.raises(PolicyRefusal, match=r"\(min_users\)"):
        seen(four, requests)


def test_two_of_four_that_add_none_leave_the_others_noise(agents, monkeypatch):
    """In league with the server they know their own parts; the honest ones' noise stays."""
    four, exact = agents(), bare(agents)
    honest = secure.Masking.reply
    turn = iter(range(4))

    def two_add_nothing(self, sums, memory):
        shares = self.shares if next(turn) < 2 else {}
        return honest(replace(self, shares=shares), sums, memory)

    monkeypatch.setattr(secure.Masking, "reply", two_add_nothing)
    looks_normal(seen(four, work()) - exact, SIGMA * CLIP / np.sqrt(2))
