"""The owner's rules: what is allowed passes, and a refusal names the rule."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest

from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian, PureDp
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan

FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
PLAN = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 4.0): 20})
POLICY = Policy(
    strategies=("uls", "els", "aup"), max_epsilon=3.0, max_clip=0.1, max_group_size=4, max_rounds=9
)


def work(**changes):
    parameters = {
        "strategy": "uls",
        "round": 3,
        "features": FEATURES,
        "clip-norm": 0.1,
        "group-size": 4,
        PARAMETER: PLAN.to_json(),
    }
    parameters |= {name.replace("_", "-"): value for name, value in changes.items()}
    kept = {name: value for name, value in parameters.items() if value is not None}
    return messages.TrainRequest({"theta": np.zeros(33)}, kept, np.array([0]))


def test_what_is_allowed_passes():
    assert POLICY.check_work(work()) == PLAN
    assert POLICY.check_work(work(strategy="els", clip_norm=0.025)) == PLAN
    assert POLICY.check_work(work(strategy="aup-centred")) == PLAN


def hashing(**more):
    return {"kind": "hashing", "dimension": 8} | more


def test_passes_are_shared_where_the_owner_says_so():
    assert POLICY.check_work(work(shared_passes=False)) == PLAN
    allowing = replace(POLICY, shared_passes=True)
    assert allowing.check_work(work(**{"shared-passes": True})) == PLAN


def test_hashing_is_allowed_up_to_its_dimensions_and_models_by_name():
    POLICY.check_features(json.dumps(hashing()))
    with pytest.raises(PolicyRefusal, match="8 features of 1 words; 7 of"):
        replace(POLICY, max_dimension=7).check_features(json.dumps(hashing()))
    base = json.dumps({"kind": "language-model", "path": "/tiny"})
    replace(POLICY, features=("/tiny",)).check_features(base)
    with pytest.raises(PolicyRefusal, match="'/tiny' was asked for"):
        POLICY.check_features(base)


def test_votes_on_public_lists_are_allowed_by_name():
    items = json.dumps({"kind": "items", "items": ["a", "b"], "boards": [""]})
    allowing = replace(POLICY, features=("items",))
    assert allowing.check_features(items) is None
    with pytest.raises(PolicyRefusal):
        allowing.check_features(json.dumps({"kind": "encoder", "path": "items"}))


def test_a_public_list_is_as_many_features_as_it_has_responses():
    texts = {"kind": "hashing", "dimension": 1}
    allowing = replace(POLICY, max_dimension=4, features=("hashing", "strengths"))
    assert allowing.check_features(json.dumps({**texts, "strengths": ["0", "1", "2"]})) is None
    for bad in ({"strengths": [*"0123"]}, {"strengths": 3}):
        with pytest.raises(PolicyRefusal):
            allowing.check_features(json.dumps({**texts, **bad}))
    with pytest.raises(PolicyRefusal, match="'strengths' was asked for"):
        POLICY.check_features(json.dumps({**texts, "strengths": ["0"]}))


def test_a_scorer_is_computed_only_where_what_it_stands_on_is_allowed():
    texts = {"kind": "hashing", "dimension": 1}
    allowing = replace(POLICY, max_dimension=64, features=("hashing", "/models/public"))
    small, wide = ({"kind": "hashing", "dimension": size} for size in (64, 65))
    for good in ({"path": "/models/public"}, {"features": small, "theta": ""}):
        assert allowing.check_features(json.dumps({**texts, "scorer": good})) is None
    nested = {"features": {**small, "scorer": {"features": small}}}
    encoder = {"features": {"kind": "encoder", "path": "/models/other"}}
    named = ({"path": "/etc"}, {"path": "hashing"}, encoder)
    for bad in (*named, {"features": wide}, {"features": 3}, nested, "length"):
        with pytest.raises(PolicyRefusal):
            allowing.check_features(json.dumps({**texts, "scorer": bad}))


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("strategies", {"strategy": "nonprivate"}),
        ("strategies", {"strategy": "aup-published"}),
        ("strategies", {"strategy": "counts"}),
        ("strategies", {"strategy": None}),
        ("features", {"features": "{}"}),
        ("features", {"features": None}),
        ("features", {"features": json.dumps({"kind": "encoder", "path": "/etc"})}),
        ("features", {"features": json.dumps({"kind": "encoder", "path": "hashing"})}),
        ("features", {"features": json.dumps({"kind": "items", "items": ["a", "b"]})}),
        ("features", {"features": json.dumps({"kind": "encoder", "path": "items"})}),
        ("max_dimension", {"features": json.dumps({"kind": "hashing", "dimension": 10**9})}),
        ("max_dimension", {"features": json.dumps({"kind": "hashing", "ngrams": 99})}),
        ("max_dimension", {"features": json.dumps(hashing(dimension=200_000))}),
        ("features", {"features": json.dumps(hashing(ngrams=2.5))}),
        ("max_clip", {"clip_norm": 0.11}),
        ("max_clip", {"clip_norm": float("nan")}),
        ("max_clip", {"clip_norm": 0.0}),
        ("max_clip", {"clip_norm": "0.1"}),
        ("max_clip", {"clip_norm": None}),
        ("max_clip", {"strategy": "els", "clip_norm": 0.1}),  # of one example; four count
        ("max_clip", {"strategy": "els", "clip_norm": 0.01, "group_size": None}),
        ("max_group_size", {"group_size": 5}),
        ("max_group_size", {"group_size": float("nan")}),
        ("max_group_size", {"group_size": None}),
        ("max_epsilon", {PARAMETER: None}),
        ("max_epsilon", {PARAMETER: "trust me"}),
        ("max_rounds", {"round": 21}),
        ("max_rounds", {"round": 0}),
        ("max_rounds", {"round": 1.5}),
        ("max_rounds", {"round": None}),
        ("strategies", {"local-steps": 1001}),
        ("shared_passes", {"shared-passes": True}),
        ("shared_passes", {"shared-passes": 1}),  # a node takes it for true
    ],
)
def test_a_refusal_names_the_rule(rule, changes):
    with pytest.raises(PolicyRefusal, match=rf"refuses \({rule}\)") as refusal:
        POLICY.check_work(work(**changes))
    assert refusal.value.rule == rule


def test_a_base_that_is_allowed_for_rewards_is_not_for_responses():
    def asked(**more):
        return json.dumps({"kind": "language-model", "path": "/tiny", "train": "lora", **more})

    rewards = Policy(features=("/tiny",))
    rewards.check_features(asked())
    rewards.check_features(asked(task="reward"))
    both = dataclasses.replace(rewards, tasks=("reward", "sft"))
    for task in ("sft", "text", "policy", None, ["reward"]):
        request = messages.registry_request(b"salt", False, asked(task=task))
        with pytest.raises(PolicyRefusal, match=r"refuses \(tasks\)"):
            rewards.check_registry(request)
    both.check_features(asked(task="sft"))
    with pytest.raises(PolicyRefusal, match=r"refuses \(tasks\)"):
        both.check_features(asked(task="text"))


def test_a_bound_on_features_bounds_a_users_part():
    policy = Policy(strategies=("objective-perturbation",), max_clip=0.5, max_rounds=1)
    asked = {"strategy": "objective-perturbation", "clip_norm": None, "group_size": None}
    for length in (1.0, 0.0):
        assert policy.check_work(work(**asked, length=length)) == PLAN
    for length in (1.1, -1.0, float("nan"), None):
        with pytest.raises(PolicyRefusal, match="max_clip"):
            policy.check_work(work(**asked, length=length))


def test_a_group_size_that_nothing_looks_at_bounds_nothing():
    allowed = Policy(strategies=("label-moment",), max_clip=0.1)
    asked = work(strategy="label-moment", group_size=1)
    assert allowed.check_work(asked) == PLAN
    with pytest.raises(PolicyRefusal, match="max_group_size"):
        dataclasses.replace(allowed, max_group_size=4).check_work(asked)


def test_another_adjacency_is_refused():
    stated = StatedPlan.of("r", Adjacency.REPLACE, 1e-6, 20, dict(PLAN.charges))
    with pytest.raises(PolicyRefusal, match="adjacency"):
        POLICY.check_work(work(**{PARAMETER: stated.to_json()}))


def test_an_empty_policy_allows_nothing(tmp_path):
    (tmp_path / "policy.toml").write_text("")
    empty = Policy.load(tmp_path / "policy.toml")
    assert empty == Policy()
    with pytest.raises(PolicyRefusal, match="strategies"):
        empty.check_work(work())


def test_counts_leave_only_where_items_are_public():
    request = messages.registry_request(b"salt", True, FEATURES)
    with pytest.raises(PolicyRefusal, match="public_items"):
        POLICY.check_registry(request)
    Policy(public_items=True).check_registry(request)
    POLICY.check_registry(messages.registry_request(b"salt", False, FEATURES))


def test_terms_are_those_of_the_owner():
    terms = Policy(label_epsilon=1.5, public_items=True).terms
    assert terms["label-epsilon"] == 1.5
    assert terms["public-items"] is True
    assert (terms["label-min-epsilon"], terms["label-cap"]) == (1.5, 0)
    wide = Policy(label_epsilon=1.5, label_min_epsilon=1.0, label_cap=7).terms
    assert (wide["label-min-epsilon"], wide["label-cap"]) == (1.0, 7)
    assert "label-epsilon" not in POLICY.terms
    assert Policy(secure_only=True, min_parties=5).terms["min-parties"] == 5
    assert Policy(parties=("0a" * 32,)).terms["parties"] == ("0a" * 32,)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("strategies = ['magic']", "strategies"),
        ("strategies = 'uls'", "strategies"),
        ("strategies = ['nonprivate']", "strategies"),
        ("max_epsilon = 'much'", "max_epsilon"),
        ("max_epsilon = inf", "max_epsilon"),
        ("max_epsilon = nan", "max_epsilon"),
        ("max_epsilon = -1", "max_epsilon"),
        ("max_rounds = 2.5", "max_rounds"),
        ("max_rounds = true", "max_rounds"),
        ("delta = 0", "delta"),
        ("adjacency = 'sideways'", "adjacency"),
        ("public_items = 1", "public_items"),
        ("shared_passes = 1", "shared_passes"),
        ("tasks = ['text']", "tasks"),  # an agent hosts judgements
        ("tasks = 'sft'", "tasks"),
        ("min_parties = -1", "min_parties"),
        ("min_users = -1", "min_users"),
        ("label_cap = -1", "label_cap"),
        ("label_min_epsilon = 1.0", "label_min_epsilon"),
        ("label_epsilon = 1.0\nlabel_delta = 1.0", "label_delta"),
        ("parties = ['alice']", "parties"),
        ("strategies = ['uls']\nlabel_epsilon = 1.0", "strategies"),
        ("max_epsilom = 1", "max_epsilom"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path, text, rule):
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(InputError, match=rule):
        Policy.load(tmp_path / "policy.toml")


def test_a_policy_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Policy.load(tmp_path / "none.toml")
    for text in ("strategies = [", "strategies = " + "[" * 20_000):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(InputError, match="cannot be read"):
            Policy.load(tmp_path / "bad.toml")


def test_a_choice_among_policies_has_rules_of_its_own():
    stated = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 1, {PureDp(1.0): 1})
    assert stated.epsilon() == pytest.approx(1.0, abs=1e-3)
    class_ = {"kind": "policy-class", "path": "/tiny", "task": "policy"}
    class_ |= {"policies": [{"name": str(p), "path": f"/p{p}", "digest": ""} for p in range(5)]}
    asked = work(
        strategy="exponential",
        round=1,
        policies=5,
        clip_norm=None,
        group_size=None,
        features=json.dumps(class_),
        **{PARAMETER: stated.to_json()},
    )
    owner = Policy(
        strategies=("exponential",),
        max_clip=2.0,
        max_rounds=1,
        tasks=("policy",),
        features=("/tiny", *(f"/p{p}" for p in range(5))),
    )
    assert owner.check_work(asked) == stated
    for rule, changes in (
        ("strategies", {"strategies": ("uls",)}),
        ("max_clip", {"max_clip": 1.9}),
        ("max_group_size", {"max_group_size": 10}),
        ("tasks", {"tasks": ("reward",)}),
        ("features", {"features": owner.features[:-1]}),
        ("features", {"features": owner.features[1:]}),
    ):
        with pytest.raises(PolicyRefusal, match=rf"refuses \({rule}\)"):
            dataclasses.replace(owner, **changes).check_work(asked)
