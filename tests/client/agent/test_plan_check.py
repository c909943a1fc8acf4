"""Being asked beforehand: the same rules as being asked, and it costs nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
from named import asked

import murmuration.client.agent.agent
from murmuration.client import answers
from murmuration.client.agent.agent import MOST_QUESTIONS, Agent
from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.plan_check import check_asked, within
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.answers import Host
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import discrete_gaussian
from murmuration.privacy.mechanisms.distributed import NodeNoise, NoisySum
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.secure_aggregation.party import threshold
from murmuration.strategies.protocol import messages, plan_query
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan, cost

FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
POLICY = Policy(
    strategies=("uls",), max_epsilon=3.0, max_clip=0.1, max_group_size=16, max_rounds=30
)


def stated(run="run1", rounds=20, sigma=6.0, adjacency=Adjacency.ZERO_OUT, held=None):
    events = {PoissonGaussian(0.5, sigma): rounds, **(held.charges if held else {})}
    return StatedPlan.of(run, adjacency, 1e-6, rounds, events)


def parameters(plan=None, **changes):
    found = {
        "strategy": "uls",
        "round": 1,
        "features": FEATURES,
        "clip-norm": 0.1,
        "group-size": 16,
        PARAMETER: plan if isinstance(plan, str) else (plan or stated()).to_json(),
    }
    return {**found, **changes}


def shown(*, parties=0, **changes):
    return plan_query.request(parameters(**changes), parties)


def work(**changes):
    model = messages.model_record(np.zeros(33))
    return messages.work_request(model, parameters(**changes), asked([0, 1]))


@pytest.fixture
def agent(make_rows, tmp_path, monkeypatch):
    """A function: an agent with a policy. ``costs`` counts how often a plan was accounted for."""
    made = []

    def counted(plans, delta):
        make.costs += 1
        return cost(plans, delta)

    monkeypatch.setattr(murmuration.client.agent.agent, "epsilon_of", counted)

    def make(policy=POLICY):
        while made:
            made.pop().ledger.close()
        store = UserStore(Judgements.from_rows(make_rows([3, 5, 2])), place=-1)
        made.append(Agent(store, policy, tmp_path / "state"))
        return made[-1]

    make.costs = 0
    return make


def said(agent, content):
    return plan_query.read_reply(agent.handle(plan_query.QUERY, content))


CASES = [
    ("", POLICY, {}),
    ("strategies", POLICY, {"strategy": "els"}),
    ("max_clip", POLICY, {"clip-norm": 0.2}),
    ("max_group_size", POLICY, {"group-size": 17}),
    ("features", POLICY, {"features": "{}"}),
    ("max_dimension", replace(POLICY, max_dimension=32), {}),
    ("max_epsilon", POLICY, {"plan": stated(sigma=0.5)}),
    ("max_epsilon", POLICY, {"plan": "no plan"}),
    ("adjacency", POLICY, {"plan": stated(adjacency=Adjacency.REPLACE)}),
    ("max_rounds", POLICY, {"round": 21}),
    ("secure_only", replace(POLICY, secure_only=True), {}),
    ("label_epsilon", Policy(label_epsilon=1.0), {}),
    ("hold_out", POLICY, {"plan": stated(held=HoldOut(0.6, 0.1))}),
]


@pytest.mark.parametrize(("rule", "policy", "changes"), CASES)
def test_what_is_said_is_what_would_happen(agent, rule, policy, changes):
    one = agent(policy)
    assert said(one, shown(**changes)) == rule
    assert not one.ledger.plans
    assert not one.ledger.answered["train"]
    if not rule:
        one.handle("train", work(**changes))
        return
    with pytest.raises(PolicyRefusal, match=rf"\({rule}\)"):
        one.handle("train", work(**changes))


def test_masks_that_an_owner_wants_are_asked_for(agent):
    one = agent(replace(POLICY, secure_only=True))
    assert said(one, shown(parties=3)) == ""
    assert said(one, shown()) == "secure_only"
    one = agent(replace(POLICY, secure_only=True, min_parties=4))
    assert said(one, shown(parties=3)) == "min_parties"
    assert said(one, shown(parties=4)) == ""


def test_a_crowd_in_which_the_owners_assumption_could_not_help(agent):
    """Of ten parties seven must be honest, or the others could open one sum alone."""
    one = agent(replace(POLICY, honest_parties=3))
    assert said(one, shown(parties=2)) == "min_parties"
    assert said(one, shown(parties=10)) == "honest_parties"
    for parties in range(3, 50):
        replace(POLICY, honest_parties=threshold(parties)).check_crowd(parties)
        replace(POLICY, honest_parties=1).check_crowd(parties)


def test_sums_over_fewer_users_than_are_wanted(agent):
    assert said(agent(replace(POLICY, min_users=3)), shown()) == ""
    assert said(agent(replace(POLICY, min_users=4)), shown()) == "min_users"


def test_all_rounds_of_a_plan_count_from_the_one_that_is_next(agent):
    one = agent(replace(POLICY, max_rounds=19))
    assert said(one, shown()) == "max_rounds"
    assert said(one, shown(round=2)) == ""
    one.handle("train", work(round=2))
    assert said(one, shown(round=2)) == "max_rounds"
    assert said(one, shown(round=3)) == ""


def test_figures_that_a_plan_pays_for_count(agent):
    plan = stated(held=HoldOut(0.2, 0.5), sigma=9.0)
    assert said(agent(), shown(plan=plan)) == "max_evaluations"
    assert said(agent(replace(POLICY, max_evaluations=1)), shown(plan=plan)) == ""


def test_a_round_that_was_answered_too_often(agent):
    one = agent()
    for _ in range(POLICY.max_repeats):
        one.handle("train", work())
    assert said(one, shown()) == "max_repeats"
    assert said(one, shown(round=2)) == ""
    one.handle("train", work(round=2))
    assert said(one, shown(round=2)) == ""
    assert said(one, shown(round=2, parties=3)) == "max_repeats"  # under masks it is once


def test_other_runs_count(agent):
    one = agent()
    one.handle("train", work())
    assert said(one, shown()) == ""  # it was charged before
    second = stated("run2", sigma=4.0)
    assert second.epsilon() < POLICY.max_epsilon  # by itself it is allowed
    assert said(one, shown(plan=second)) == "max_epsilon"
    assert said(one, shown(plan=stated("run1", sigma=7.0))) == "max_epsilon"
    assert set(one.ledger.plans) == {"run1"}


def test_texts_stay_with_the_owner_and_nothing_is_charged(agent):
    one = agent()
    reply = one.handle(plan_query.QUERY, shown(**{"clip-norm": 0.2}))
    assert b"0.1" not in reply.config_records["answer"]["refuses"].encode()
    last = json.loads(one.ledger.path.read_text().splitlines()[-1])
    assert last["refused"] == plan_query.QUERY
    assert "0.1 at most" in last["because"]
    said(one, shown())
    last = json.loads(one.ledger.path.read_text().splitlines()[-1])
    assert last["answered"] == plan_query.QUERY
    assert last["users"] == 0
    assert not one.ledger.plans


def test_a_plan_that_was_shown_is_accounted_for_once(agent):
    one = agent()
    assert said(one, shown()) == ""
    one.handle("train", work())
    assert agent.costs == 1
    assert one.ledger.plans == {"run1": stated()}


def test_bounds_are_not_found_by_asking_on_and_on(agent, monkeypatch):
    """Attack: a server bisects max_clip by plans that cost nothing to show."""
    one, now = agent(), [0.0]
    monkeypatch.setattr(murmuration.client.agent.agent.time, "monotonic", lambda: now[0])
    low, high, told = 0.0, 1.0, 0
    for _ in range(50):
        clip = (low + high) / 2.0
        try:
            refused = said(one, shown(**{"clip-norm": clip}))
        except PolicyRefusal as refusal:
            assert refusal.rule == murmuration.client.agent.agent.QUESTIONS
            break
        told += 1
        low, high = (low, clip) if refused else (clip, high)
    assert told == MOST_QUESTIONS
    assert said(one, shown(**{"clip-norm": 0.5})) == "max_clip"  # the first of them, again
    one.handle("train", work())  # and who asks in earnest is answered
    now[0] += 3601.0
    assert said(one, shown()) == ""


def test_labels_by_their_promise(agent):
    policy = Policy(label_epsilon=2.0, public_items=True)
    for promise, rule in ((LabelPromise(2.0), ""), (LabelPromise(0.001), "label_epsilon")):
        asked_with = {"strategy": "local-label", **promise.to_config()}
        content = plan_query.request(asked_with, 0)
        assert said(agent(policy), content) == rule
    asked_with = {"strategy": "local-label", **LabelPromise(2.0).to_config()}
    content = plan_query.request(asked_with, 0)
    assert said(agent(replace(policy, public_items=False)), content) == "public_items"
    assert said(agent(), content) == "label_epsilon"


@pytest.mark.parametrize(
    ("terms", "parties", "rule"),
    [
        ({"data": "x"}, 0, ""),
        ({"data": "x", "secure-only": True}, 0, "secure_only"),
        ({"data": "x", "secure-only": True}, 3, ""),
        ({"data": "x", "label-epsilon": 1.0, "state": "s"}, 0, "label_epsilon"),
        ({}, 0, ""),
    ],
)
def test_a_node_without_an_agent_answers_by_its_owners_terms(terms, parties, rule):
    def nothing():
        raise AssertionError("nobody's judgements are looked at")

    host = Host(store=nothing, labels=nothing, source=Randomness(None), terms=terms)
    reply = answers.ANSWERS[plan_query.QUERY](shown(parties=parties), host)
    assert plan_query.read_reply(reply) == rule


def test_noise_that_a_node_cannot_draw(agent, monkeypatch):
    event = DiscretizedGaussian(PoissonGaussian(0.5, 6.0), 33, 20, 3)
    noise = messages.noise_parameters(NodeNoise(3, {"sum": NoisySum(0.6, 1e-6, 0.1)}))
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 20, {event: 20})
    content = shown(parties=4, plan=plan, **noise)
    bare = Host(
        store=lambda: None, labels=lambda: None, source=Randomness(None), terms={"data": "x"}
    )
    for there, rule in ((True, ""), (False, "opendp")):
        monkeypatch.setattr(discrete_gaussian, "installed", lambda there=there: there)
        assert said(agent(), content) == rule
        assert plan_query.read_reply(answers.plan(content, bare)) == rule
    assert said(agent(), shown()) == ""  # who adds none needs none


def test_an_agent_that_has_answered_nothing(tmp_path):
    ledger = OwnLedger.empty(tmp_path / "none")
    told, _ = plan_query.read_request(shown())
    costs = []
    check_asked(POLICY, ledger, told, 0, lambda plans: costs.append(len(plans)) or 1.0, hosted=1)
    assert costs == [1]
    assert not (tmp_path / "none").exists()
    assert within(POLICY, 3.0) == 3.0
    for epsilon in (3.0000001, float("inf"), float("nan")):
        with pytest.raises(PolicyRefusal, match="max_epsilon"):
            within(POLICY, epsilon)
