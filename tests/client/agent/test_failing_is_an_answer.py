"""A server that learns from whether, and how, an owner's agent fails.

Each question is put to agents of two data sets that differ in one label of one person, with all
that a server may choose at its extremes. What it sees must be of one kind: the same refusal, or
records of the same names, types and sizes, and under noise and masks nothing else.
"""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict
from hostile_server import asked_for_masked, exact_sum
from named import asked

from murmuration.client.agent import unix_socket
from murmuration.client.agent.agent import Agent
from murmuration.client.agent.policy import Policy
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.privacy.mechanisms.distributed import DistributedNoise, NodeNoise, NoisySum
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.strategies import registry
from murmuration.strategies.protocol import (
    label_queries,
    messages,
    plan_query,
    public_items,
    secure_messages,
)
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan
from murmuration.strategies.spec import NodeHalf, clip_norm, grid_of_clip

D, CLIP = 33, 0.1
FEATURES = json.dumps(HashingFeatures(D).to_config())
STRATEGIES = ("uls", "adaptive", "dp-fedavg", "els", "label-moment")
MIDDLE = {name: {"middle": 0.5} if name == "adaptive" else {} for name in STRATEGIES}
POLICY = Policy(
    strategies=STRATEGIES, max_epsilon=50.0, max_clip=1e6, max_rounds=10**6, max_repeats=10**6
)
needs_noise = pytest.mark.skipif(not installed(), reason="needs OpenDP")


def rows(flipped, seed=1):
    words = np.random.default_rng(seed).integers(0, 50, size=(9, 2))
    result = [
        {"user_id": user, "prompt": "p", "chosen": f"w{a} b", "rejected": f"w{b} c"}
        for user, (a, b) in zip(
            (f"u{n:03}" for n in (0, 2, 0, 2, 1, 0, 2, 0, 2)), words, strict=True
        )
    ]
    if flipped:
        result[4]["chosen"], result[4]["rejected"] = result[4]["rejected"], result[4]["chosen"]
    return result


@pytest.fixture
def pairs(tmp_path):
    """A function: two agents by a policy, of data that differ in one label."""
    made, number = [], itertools.count()

    def both(policy=POLICY):
        result = []
        for flipped in (False, True):
            store = UserStore(Judgements.from_rows(rows(flipped)), place=-1)
            result.append(Agent(store, policy, tmp_path / f"{next(number)}"))
        made.extend(result)
        return result

    yield both
    for agent in made:
        agent.ledger.close()


def shown(agent, kind, content):
    """All that is seen of an answer, but for the numbers in it."""
    try:
        reply = agent.handle(kind, content)
    except InputError as refusal:
        return str(refusal)
    except Exception as error:
        return type(error)
    sizes = [
        (name, part, array.dtype, array.shape, len(array.data))
        for name, record in reply.array_records.items()
        for part, array in record.items()
    ]
    return [sorted(reply), sizes, len(unix_socket.encoded(reply))]


def stated(run="run1", **charges):
    events = charges or {PoissonGaussian(0.5, 6.0): 20, **HoldOut(0.2, 0.5).charges}
    return StatedPlan.of(run, Adjacency.ZERO_OUT, 1e-6, 20, events)


def work(users=(0, 1, 2), theta=0.0, **changes):
    parameters = {"strategy": "uls", "round": 1, "features": FEATURES, "clip-norm": CLIP}
    parameters |= {"group-size": 16, "local-steps": 1, "local-rate": 1.0, "probability": 0.5}
    parameters |= {PARAMETER: stated().to_json(), **changes}
    model = messages.model_record(np.zeros(D) + theta)
    return messages.work_request(model, parameters, asked(users))


#: What a server may name, as it should not be.
EXTREMES = {
    "group-size": (1, 2, 2**31, 2**62, 0, -1, 1.5, math.nan, "1"),
    "clip-norm": (1e6, 1e-130, 1e-300, 5e-324, 0.0, -1.0, math.nan, math.inf, 2**60, True, "1"),
    "round": (20, 0, 21, 1.5, math.nan),
    "draw": (2**62, -1, 0.5, math.nan, "1"),
    "model": ("thurstone", "plackett-luce", "thumbs", "", "elo"),
    "shared-passes": (True, "yes", 2),
    "middle": (0.0, 1.0, 1e-9, -1e300, math.nan, "1"),
    "local-steps": (3, 0, -1, 1.5, math.nan),
    "local-rate": (1e300, 5e-324, 0.0, -1.0, math.nan, math.inf),
    "probability": (1.0, 5e-324, 0.0, 2.0, -1.0, math.nan),
    # what requests once content, and how they might say it again
    "steps-of-sum": (2.0**-900, 2.0**-1000, 2.0**60, 0.0, math.nan, 1, "1"),
    "noise-on-sum": (1.0, 1e300, math.nan),
    "noise-parties": (1, 4, -1),
}
THETAS = (0.0, 1.0, -1e3, 1e38, 1e-45, math.nan, math.inf)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whatever_a_request_for_a_sum_says(pairs, strategy):
    one, other = pairs()
    kinds = set()
    for name, values in EXTREMES.items():
        for value, users in itertools.product(values, ((0, 1, 2), (1,), ())):
            content = work(users, **{"strategy": strategy, **MIDDLE[strategy], name: value})
            seen = [shown(agent, "train", content) for agent in (one, other)]
            assert seen[0] == seen[1], (name, value, users)
            kinds.add(type(seen[0]))
    assert list in kinds  # some are answered
    for theta, users in itertools.product(THETAS, ((0, 1, 2), (1,))):
        content = work(users, theta, strategy=strategy, **MIDDLE[strategy])
        seen = [shown(agent, "train", content) for agent in (one, other)]
        assert seen[0] == seen[1], theta
        assert type(seen[0]) is list


def test_whatever_a_request_for_accuracies_says(pairs):
    one, other = pairs(replace(POLICY, max_evaluations=10**6))
    for theta, users in itertools.product(THETAS, ((0, 1, 2), (1,), ())):
        content = work(users, theta)
        seen = [shown(agent, "evaluate", content) for agent in (one, other)]
        assert seen[0] == seen[1], theta
        assert len(users) == 0 or type(seen[0]) is list or "max_repeats" in seen[0]


def test_whom_they_host_what_they_show_and_what_they_would_refuse(pairs):
    one, other = pairs(replace(POLICY, public_items=True))
    for counts, size, model in itertools.product(
        (False, True), (0, 1, 2**31, -1), ("btl", "plackett-luce", "elo")
    ):
        content = messages.registry_request(b"s", counts, FEATURES, model=model, group_size=size)
        seen = [shown(agent, "query.registry", content) for agent in (one, other)]
        assert seen[0] == seen[1]
    for users in ((0, 1, 2), (1,), (7,), ()):
        content = public_items.request(asked(users))
        seen = [shown(agent, public_items.QUERY, content) for agent in (one, other)]
        assert seen[0] == seen[1]
        assert type(seen[0]) is list
    content = work(())
    del content[messages.COHORT]
    for parties in (0, 3, 10**6, -1):
        content = RecordDict({**content, "parties": ConfigRecord({"parties": parties})})
        seen = [shown(agent, plan_query.QUERY, content) for agent in (one, other)]
        assert seen[0] == seen[1]


def test_randomized_labels(pairs):
    policy = Policy(label_epsilon=2.0, public_items=True)
    for epsilon, users in itertools.product((2.0, 1.0, 1e-9, 30.0), ((0, 1, 2), (1,), (9,))):
        content = label_queries.request(LabelPromise(epsilon), asked(users))
        seen = [shown(agent, label_queries.QUERY, content) for agent in pairs(policy)]
        assert seen[0] == seen[1]


# Under masks, with noise of the agents' own.

PARTIES, SIGMA = 4, 8.0
SECRET = Policy(
    strategies=("uls",),
    max_epsilon=1.0,
    max_clip=CLIP,
    max_rounds=10**6,
    secure_only=True,
    honest_parties=PARTIES,
)


def four(tmp_path, flipped, number):
    result = {}
    for name in (1, 2, 3, 4):
        store = UserStore(Judgements.from_rows(rows(flipped and name == 1, name)), place=-1)
        result[name] = Agent(store, SECRET, tmp_path / f"{number}-{flipped}-{name}")
    return result


def noisy_work(users=(0, 1, 2), theta=0.0, std=SIGMA * CLIP, **changes):
    event = DistributedNoise(D, PARTIES).charged(PoissonGaussian(0.05, SIGMA))
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 2, {event: 2})
    sums = {"sum": NoisySum(std, grid.step_for(CLIP), CLIP)}
    noise = messages.noise_parameters(NodeNoise(PARTIES, sums))
    return work(users, theta, **{**noise, PARAMETER: plan.to_json(), **changes})


@needs_noise
@pytest.mark.parametrize("exponent", [-60, -40, -31, -28, -20, -8, 0, 40, 900, -900])
def test_a_grid_that_a_server_names_is_refused_before_anything_is_read(
    tmp_path, monkeypatch, exponent
):
    """Before, a coarse one told whether an agent's exact sum was zero, a fine one whether a
    coordinate was above 2^-k: of four honest agents a person's labels were read, 12 of 12."""
    read, theta = [], 1e4 * np.random.default_rng(0).normal(size=D)  # slopes of 0 or 1
    honest = UserStore.examples
    monkeypatch.setattr(
        UserStore, "examples", lambda *given, **named: read.append(1) or honest(*given, **named)
    )
    seen = []
    for flipped in (False, True):
        agents = four(tmp_path, flipped, "grid")
        request = asked_for_masked(agents, noisy_work((1,), theta))[1]
        request[secure_messages.RECORD].update({"names": ["sum"], "steps": [2.0**exponent]})
        seen.append(shown(agents[1], "train", request))
        for agent in agents.values():
            agent.ledger.close()
    assert seen[0] == seen[1]
    assert type(seen[0]) is not list
    assert not read
    agents = four(tmp_path, False, "none")
    request = asked_for_masked(agents, noisy_work((1,), theta))[1]
    assert type(shown(agents[1], "train", request)) is list
    assert read


@needs_noise
@pytest.mark.parametrize("std", [1e8, 1e12, 1e300])
def test_noise_that_cannot_be_drawn_is_refused_before_anything_is_read(tmp_path, monkeypatch, std):
    monkeypatch.setattr(UserStore, "examples", lambda *given, **named: 1 / 0)
    agents = four(tmp_path, False, "noise")
    request = asked_for_masked(agents, noisy_work(std=std))[1]
    seen = shown(agents[1], "train", request)
    assert seen is not ZeroDivisionError


@needs_noise
def test_a_person_at_whom_everything_fails_is_a_zero_under_noise_and_masks(tmp_path, monkeypatch):
    """Their part alone: the others' stays, or one person would move it all."""

    def update(examples, request, keys_S, source):
        users = request.users_S.tolist()
        if 1 in users:
            raise MemoryError("of this person")
        return {"sum": np.full(D, len(users) * 2.0**-20)}

    half = NodeHalf(update, clip_norm, grid_of_clip)
    monkeypatch.setitem(registry.node_halves(frozenset({"uls"})), "uls", half)
    monkeypatch.setattr(
        "murmuration.privacy.mechanisms.discrete_gaussian.draw",
        lambda scale, count: np.zeros(count, dtype=np.int64),
    )
    agents = four(tmp_path, False, "zero")
    request = noisy_work()
    total_L = exact_sum(agents, dict.fromkeys(agents, request), D, session=b"s" * 16)
    assert (total_L * grid.step_for(CLIP) == 4 * 2 * 2.0**-20).all()
