"""What an agent with ``honest_parties`` counts on: coins that it tosses itself, and a crowd of whom
too few are in league with the server to open one party's masks."""

import json

import numpy as np
import pytest
from hostile_server import exact_sum, with_shares
from named import asked
from scipy import stats

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
from murmuration.privacy.secure_aggregation import crypto, shamir
from murmuration.privacy.secure_aggregation.party import (
    Party,
    ProtocolError,
    add_pair_mask,
    bound,
    pair_key,
    seed_key,
)
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol import secure_messages as wire
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan

pytestmark = pytest.mark.skipif(not installed(), reason="needs OpenDP")

D, CLIP = 17, 0.1
FEATURES = json.dumps(HashingFeatures(dimension=D).to_config())
STEP = grid.step_for(CLIP)


def store(seed):
    words = np.random.default_rng(seed).integers(0, 50, size=(12, 2))
    rows = [
        {"user_id": f"u{i % 3:03}", "prompt": "p", "chosen": f"w{a} b", "rejected": f"w{b} c"}
        for i, (a, b) in enumerate(words)
    ]
    return UserStore(Judgements.from_rows(rows), place=-1)


@pytest.fixture
def agents(tmp_path):
    made = []

    def start(number, **rules):
        usual = {
            "strategies": ("uls", "els"),
            "max_epsilon": 2.0,
            "max_clip": 16 * CLIP,
            "max_rounds": 30,
            "secure_only": True,
            "honest_parties": number,
        }
        for name in range(number):
            state = tmp_path / f"{len(made)}"
            made.append(Agent(store(name), Policy(**usual | rules), state))
        return dict(enumerate(made[-number:], start=1))

    yield start
    for agent in made:
        agent.ledger.close()


def work(event, parties, std, **changes):
    stated = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 1, {event: 1})
    noise = NodeNoise(parties, {"sum": NoisySum(std, STEP, CLIP)})
    parameters = {
        "strategy": "uls",
        "round": 1,
        "features": FEATURES,
        "clip-norm": CLIP,
        "group-size": 16,
        PARAMETER: stated.to_json(),
        **messages.noise_parameters(noise),
        **changes,
    }
    return messages.work_request(messages.model_record(np.zeros(D)), parameters, asked((0, 1, 2)))


@pytest.mark.parametrize(
    ("strategy", "length"), [({"strategy": "uls"}, CLIP), ({"strategy": "els"}, 16 * CLIP)]
)
def test_coins_that_nobody_tosses_make_no_sum_cheaper(agents, strategy, length):
    """Noise of a tenth of one user's part costs ε of more than 60, whatever coins the plan names.

    Before: it was charged as if each user's part were in with the stated probability.
    """
    inner = MixtureGaussian(0.1, 1, 1e-9)
    event = DistributedNoise(D, 4).charged(inner)
    request = work(event, 4, 0.1 * length, probability=1.0, **strategy)
    four = agents(4)
    with pytest.raises(PolicyRefusal, match=r"\((honest_parties|max_epsilon)\)"):
        exact_sum(four, dict.fromkeys(four, request), D, session=b"s" * 16)


def opened_alone(agents, parties, request, session=b"s" * 16):
    """The sum of the first agent, and of nobody else, (D,) int64, in a session of so many
    ``parties`` of which all that are not ``agents`` are the server's own.

    The first agent hears that every sum arrived, the others that all did but the first one's.
    """
    places = range(1, parties + 1)
    own = {place: Party.begin(session) for place in places if place not in agents}
    entries = {place: wire.Entry(party.public) for place, party in own.items()} | {
        place: wire.read_keys(agent.handle(wire.KEYS, wire.keys_request(session)))
        for place, agent in agents.items()
    }
    roster, about = [entries[place] for place in places], wire.about("train", request)
    keys = [entry.keys for entry in roster]
    shared = {place: party.share(place, keys, about) for place, party in own.items()}
    for place, agent in agents.items():
        invitation = wire.Invitation(session, place, roster, about).request()
        shared[place] = wire.read_shares(agent.handle(wire.SHARES, invitation), place, parties)
    total_L, seeds, secrets, cut = np.zeros(0), {}, {}, shamir.SHARE_BYTES
    for place, agent in agents.items():
        reply = agent.handle("train", with_shares(request, place, shared, session))
        total_L = wire.read_masked(reply, D).copy() if place == 1 else total_L
        arrived = [other for other in places if place == 1 or other != 1]
        gone = [other for other in places if other not in arrived]
        asked_for = wire.unmask_request(session, arrived)
        opened = wire.read_opened(agent.handle(wire.UNMASK, asked_for), arrived, gone)
        seeds |= {place: opened.seeds[1]} if 1 in arrived else {}
        secrets |= {place: opened.keys[1]} if 1 in gone else {}
    for place, party in own.items():
        party.receive({o: given.sealed[place] for o, given in shared.items() if o != place})
        seeds[place], secrets[place] = party.held[1][:cut], party.held[1][cut:]
    to = bound(session, about, keys)
    total_L -= crypto.mask(seed_key(shamir.join(seeds, len(seeds)), to), D)
    for other in range(2, parties + 1):
        if other in own:
            key = pair_key(own[other].masking, keys[0].masking, to, (1, other))
        else:
            secret = shamir.join(secrets, len(secrets))
            key = pair_key(secret, keys[other - 1].masking, to, (1, other))
        mask_L = np.zeros(D, dtype=np.uint64)
        add_pair_mask(mask_L, key, 1, other)
        total_L -= mask_L
    return total_L.view(np.int64)


@pytest.mark.parametrize(
    ("parties", "honest", "counted_on"),
    [
        (10, 3, 3),  # the others hold enough shares to open whatever they like
        (6, 2, 2),  # the others and either half of the honest ones do
        (3, 1, 6),  # a session that is smaller than the crowd which the owner counts on
    ],
)
def test_no_sum_leaves_with_one_share_where_the_owner_counts_on_more(
    agents, parties, honest, counted_on
):
    """Before: the sum of one owner's users, with the noise of that one share.

    It was charged as if the noise of all who are honest were on it.
    """
    shares = min(parties, counted_on)
    event = DistributedNoise(D, shares).charged(PoissonGaussian(1.0, 8.0))
    request = work(event, shares, 8.0 * CLIP)
    with pytest.raises((PolicyRefusal, ProtocolError)):
        found_L = opened_alone(agents(honest, honest_parties=counted_on), parties, request)
        tail = stats.chi2.cdf(((found_L * STEP / (8.0 * CLIP)) ** 2).sum() * shares, D)
        pytest.fail(f"opened, with one of {shares} shares of noise: at {tail:.2f} of what that is")


@pytest.mark.parametrize("min_parties", [0, 6])
def test_two_stories_of_whose_sums_arrived_open_no_sum_of_who_wants_all_parties_in_it(
    agents, min_parties
):
    """Four of six are the server's own, and the other owner wants no number of parties.

    Before: the owner's exact sum, whatever the owner wanted. Without ``min_parties`` it still is.
    """
    rules = {"honest_parties": 0, "max_epsilon": 20.0}
    owner, other = agents(1, min_parties=min_parties, **rules)[1], agents(1, **rules)[1]
    parameters = {
        "strategy": "uls",
        "round": 1,
        "features": FEATURES,
        "clip-norm": CLIP,
        "group-size": 16,
        PARAMETER: StatedPlan.of(
            "run1", Adjacency.ZERO_OUT, 1e-6, 1, {PoissonGaussian(1.0, 8.0): 1}
        ).to_json(),
    }
    model = messages.model_record(np.zeros(D))
    request = messages.work_request(model, parameters, asked((0, 1, 2)))
    found_L = opened_alone({1: owner, 2: other}, 6, request)
    longest = float(np.abs(found_L).max()) * STEP
    assert (longest <= 3 * CLIP) is (min_parties == 0)
