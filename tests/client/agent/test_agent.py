"""The owner's agent: what it lets out, and what it charges."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from agents import POLICY, halves, stated, work
from flwr.app import RecordDict
from named import asked

import murmuration.client.agent.agent
from murmuration.client.agent.agent import MOST_FEATURE_MAPS, Agent
from murmuration.client.agent.plan_cost import Costly
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.labels.memory import TermsChanged
from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import ParallelEvent, PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.strategies.protocol import label_queries, messages, public_items
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan
from murmuration.strategies.spec import NodeHalf, clip_norm

LABELS = Policy(label_epsilon=2.0, public_items=True)


def test_allowed_work_is_answered_with_the_clipped_sum(make):
    agent = make()
    found = messages.read_sums(agent.handle("train", work()), {"sum": (33,)})["sum"]
    assert 0 < np.linalg.norm(found) <= 0.2
    assert agent.ledger.plans == {"run1": stated()}
    assert agent.ledger.answered["train"] == 1


def test_a_sum_that_leaves_as_whole_steps_is_as_long_as_it_is(make):
    """Servers ask for these wherever so few users are asked for."""
    step = UserClip(0.1).step
    whole = messages.whole_parameters({"sum": step})
    reply = make().handle("train", work(**whole))
    assert reply.array_records["sums"]["sum"].dtype == "int32"
    found = messages.read_sums(reply, {"sum": (33,)}, {"sum": step})["sum"]
    assert 0 < np.linalg.norm(found) <= 0.2
    same = messages.read_sums(make().handle("train", work(round_=2)), {"sum": (33,)})["sum"]
    assert found.tolist() == same.tolist()


def test_whole_steps_that_are_too_long_are_not_told(make, monkeypatch):
    """However few steps they are."""
    long_D = np.eye(1, 33)[0] * 2.0**10
    monkeypatch.setitem(halves(), "uls", NodeHalf(lambda *_: {"sum": long_D}, length=clip_norm))
    agent = make(replace(POLICY, max_clip=10.0))
    with pytest.raises(PolicyRefusal, match=r"\(max_clip\)"):
        agent.handle("train", work(**messages.whole_parameters({"sum": 2.0**10})))


@pytest.mark.parametrize(
    ("rule", "kind", "content"),
    [
        ("strategies", "train", lambda: work(strategy="nonprivate")),
        ("max_clip", "train", lambda: work(**{"clip-norm": 10.0})),
        ("max_group_size", "train", lambda: work(**{"group-size": 17})),
        ("max_epsilon", "train", lambda: work(plan=stated(sigma=0.5))),
        ("max_evaluations", "evaluate", work),
        ("public_items", public_items.QUERY, lambda: public_items.request(asked([0]))),
        (
            "label_epsilon",
            label_queries.QUERY,
            lambda: label_queries.request(LabelPromise(0.1), asked([0])),
        ),
        ("strategies", "query.everything", RecordDict),
    ],
)
def test_a_refusal_names_the_rule_and_charges_nothing(make, rule, kind, content):
    agent = make()
    with pytest.raises(PolicyRefusal, match=rf"\({rule}\)"):
        agent.handle(kind, content())
    assert not agent.ledger.answered
    assert not agent.ledger.plans
    assert rule in agent.ledger.path.read_text().splitlines()[-1]


def test_a_second_run_over_the_budget_is_refused(make):
    agent = make()
    agent.handle("train", work())
    one, two = stated().epsilon(), 3.0
    assert one < two
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\).*3 is the most"):
        agent.handle("train", work(plan=stated("run2", sigma=2.5)))
    assert set(agent.ledger.plans) == {"run1"}


def test_parts_that_a_server_calls_disjoint_are_added_up(make):
    """The user could be in every part: a server that lies about it must not get them for one."""
    event, parts = PoissonGaussian(0.5, 6.0), 4
    charges = {ParallelEvent(part, event): 10 for part in range(parts)}
    plan = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 10 * parts, charges)
    as_stated, together = (
        accountant.epsilon(found, adjacency=plan.adjacency, delta=1e-6)
        for found in (charges.items(), [(event, 10 * parts)])
    )
    limit = (as_stated + together) / 2
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):
        make(Policy(**{**vars(POLICY), "max_epsilon": limit})).handle("train", work(plan=plan))
    agent = make(Policy(**{**vars(POLICY), "max_epsilon": 1.01 * together}))
    agent.handle("train", work(plan=plan))
    assert f'"epsilon": {together:.4f}'[:-1] in agent.ledger.path.read_text()


def test_a_plan_that_takes_long_to_account_for_is_refused_in_time(make):
    agent = make()
    agent.handle("train", work())
    charges = {PoissonGaussian(1.0, 0.06 + i / 1000): 6 for i in range(8)}
    wide = StatedPlan.of("wide", Adjacency.ZERO_OUT, 1e-6, 48, charges)
    with pytest.raises(PolicyRefusal, match=r"\(max_epsilon\)"):  # it was minutes
        agent.handle("train", work(plan=wide))
    agent.handle("train", work(round_=2))


def test_refusing_plans_takes_a_tenth_of_the_time_at_most(make, monkeypatch):
    agent, asked = make(), []
    agent.handle("train", work())
    now = [1000.0]
    monkeypatch.setattr(murmuration.client.agent.agent.time, "monotonic", lambda: now[0])

    def slow(plans, delta):
        asked.append(plans[-1].run)
        now[0] += 50.0
        raise Costly("it takes long")

    monkeypatch.setattr(murmuration.client.agent.agent, "bounded_cost", slow)
    for run, message in (("b", "it takes long"), ("c", "again in 450 seconds")):
        with pytest.raises(PolicyRefusal, match=message):
            agent.handle("train", work(plan=stated(run)))
    agent.handle("train", work(round_=2))  # of a run that is known
    now[0] += 451.0
    with pytest.raises(PolicyRefusal, match="it takes long"):
        agent.handle("train", work(plan=stated("c")))
    assert asked == ["b", "c"]
    assert list(agent.ledger.plans) == ["run1"]


def test_a_plan_of_any_length_is_refused_before_it_is_read(make, monkeypatch):
    agent, asked = make(), work()
    monkeypatch.setattr(StatedPlan, "from_json", None)
    for plan in ("[" * 10_001, 5):
        asked.config_records["parameters"][PARAMETER] = plan
        with pytest.raises(PolicyRefusal, match="no plan, in a text of up to 10,000 characters"):
            agent.handle("train", asked)


def test_who_leaves_a_run_stays_charged(make):
    agent = make()
    agent.handle("train", work())
    again = make()  # started anew, from what is on disk
    with pytest.raises(PolicyRefusal, match="max_epsilon"):
        again.handle("train", work(plan=stated("run2")))


def test_one_run_states_one_plan(make):
    agent = make()
    agent.handle("train", work())
    with pytest.raises(PolicyRefusal, match="another plan before"):
        agent.handle("train", work(plan=stated(rounds=21)))


def test_a_round_is_answered_twice_at_most(make):
    agent = make()
    agent.handle("train", work())
    agent = make()
    agent.handle("train", work())
    with pytest.raises(PolicyRefusal, match="max_repeats"):
        agent.handle("train", work())
    agent.handle("train", work(round_=2))


def test_the_number_of_answers_is_bounded_for_life(make):
    policy = Policy(**{**vars(POLICY), "max_rounds": 3})
    for round_ in (1, 2, 3):
        make(policy).handle("train", work(round_=round_))
    with pytest.raises(PolicyRefusal, match="max_rounds"):
        make(policy).handle("train", work(round_=4))


def test_evaluations_are_counted(make):
    policy = Policy(**{**vars(POLICY), "max_evaluations": 1})
    held = HoldOut(0.2, 0.5)
    plan = replace(stated(), charges=(*stated().charges, *held.charges.items()))
    messages.read_tally(make(policy).handle("evaluate", work(plan=plan)), Tally(), users=9)
    with pytest.raises(PolicyRefusal, match="max_evaluations"):
        make(policy).handle("evaluate", work(plan=plan))


def test_few_feature_maps_are_computed(make):
    agent = make()
    for dimension in range(5, 5 + MOST_FEATURE_MAPS):
        features = json.dumps({"kind": "hashing", "dimension": dimension})
        agent.handle("query.registry", messages.registry_request(b"s", False, features))
    with pytest.raises(PolicyRefusal, match="feature maps"):
        agent.handle("train", work())


def test_the_charge_is_on_disk_before_anything_is_computed(make, monkeypatch):
    agent = make()

    def broken(*_):
        raise RuntimeError("in the middle")

    monkeypatch.setitem(halves(), "uls", NodeHalf(broken, clip_norm))
    with pytest.raises(RuntimeError):
        agent.handle("train", work())
    assert make().ledger.answered["train"] == 1


@pytest.mark.parametrize("loss", ["deleted", "emptied", "rolled back", "cut", "edited"])
def test_what_was_answered_is_not_forgotten_with_its_ledger(make, loss):
    """``max_rounds`` answers are all there are, whatever becomes of the ledger."""
    policy = replace(POLICY, max_rounds=3)
    agent = make(policy)
    older = agent.ledger.path.read_bytes()
    for round_ in (1, 2, 3):
        agent.handle("train", work(round_=round_))
    path = agent.ledger.path
    raw = path.read_bytes()
    if loss == "deleted":
        path.unlink()
    else:
        edited = raw.replace(b'"answered": "train"', b'"answered": "other"')
        left = {"emptied": b"", "rolled back": older, "cut": raw[:-20], "edited": edited}
        path.write_bytes(left[loss])
    with pytest.raises(InputError, match="bring back own-ledger"):
        make(policy)


def test_a_sum_that_is_too_long_does_not_leave(make, monkeypatch):
    agent = make()
    monkeypatch.setitem(
        halves(),
        "uls",
        NodeHalf(lambda *_: {"sum": np.full(33, 0.2 / math.sqrt(33) * 2)}, clip_norm),
    )
    with pytest.raises(PolicyRefusal, match="longer"):
        agent.handle("train", work())


def test_labels_leave_randomized_and_once(make, store):
    agent, promise = make(LABELS), LabelPromise(2.0)
    request = label_queries.request(promise, asked(range(3)))
    first = label_queries.read_reply(agent.handle(label_queries.QUERY, request), 3)
    again = label_queries.read_reply(make(LABELS).handle(label_queries.QUERY, request), 3)
    assert first.answers_N.tolist() == again.answers_N.tolist()
    assert first.per_label_U.tolist() == pytest.approx([2 / 3, 2 / 5, 2 / 2], rel=1e-6)
    with pytest.raises(TermsChanged):
        agent = make(replace(LABELS, label_min_epsilon=1.0))
        agent.handle(label_queries.QUERY, label_queries.request(LabelPromise(1.0), asked(range(3))))
    with pytest.raises(PolicyRefusal, match="label_epsilon"):
        agent.handle(label_queries.QUERY, label_queries.request(LabelPromise(2.1), asked(range(3))))
    with pytest.raises(PolicyRefusal, match="label_epsilon"):
        agent.handle("train", work())
    with pytest.raises(PolicyRefusal, match="label_epsilon"):
        agent.handle("evaluate", work())


def test_a_stranger_who_asks_first_settles_nothing(make):
    """Before, ε = 0.001, or one label of each user, stood for good."""
    for promise in (LabelPromise(0.001), LabelPromise(2.0, cap=1), LabelPromise(1.9)):
        with pytest.raises(
            PolicyRefusal, match=r"\(label_epsilon\).*epsilon 2, delta 0 and no cap"
        ):
            request = label_queries.request(promise, asked(range(3)))
            make(LABELS).handle(label_queries.QUERY, request)
    request = label_queries.request(LabelPromise(2.0), asked(range(3)))
    told = label_queries.read_reply(make(LABELS).handle(label_queries.QUERY, request), 3)
    assert len(told.answers_N) == 10


def test_a_sum_is_over_as_many_users_as_the_owner_wants(make):
    agent = make(replace(POLICY, min_users=2, max_evaluations=9))
    plan = replace(stated(), charges=(*stated().charges, *HoldOut(0.2, 0.5).charges.items()))
    for kind in ("train", "evaluate"):
        for users in ((0,), (0, 700)):  # of whom one is not here
            with pytest.raises(PolicyRefusal, match=r"\(min_users\).* 1 are here"):
                agent.handle(kind, work(users, plan=plan))
    assert not agent.ledger.answered
    agent.handle("train", work((0, 1), plan=plan))


def test_a_state_that_others_can_use_is_refused(store, tmp_path):
    (tmp_path / "state").mkdir(mode=0o755)
    with pytest.raises(InputError, match="chmod 700"):
        Agent(store, POLICY, tmp_path / "state")


def test_bare_sums_are_refused_by_rule_before_anything_is_charged(make):
    agent = make(Policy(**{**vars(POLICY), "secure_only": True}))
    with pytest.raises(PolicyRefusal, match=r"\(secure_only\)"):
        agent.handle("train", work())
    assert not agent.ledger.plans


@pytest.mark.parametrize("users", [bytes(17), [0, 1], "no bytes"])
def test_users_are_named_as_they_registered_or_nothing_is_answered(make, users):
    content = work()
    content.config_records["cohort"]["users"] = users
    agent = make()
    with pytest.raises(ValueError, match="64 bits"):
        agent.handle("train", content)
    assert not agent.ledger.plans


def test_who_is_not_here_any_more_is_nobody_and_harms_nobody(make):
    found, alone = (
        messages.read_sums(make().handle("train", content), {"sum": (33,)})["sum"]
        for content in (work((0, 77, 1, 78)), work((0, 1), round_=2))
    )
    assert found.tolist() == alone.tolist()
