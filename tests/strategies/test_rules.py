"""Each rule about settings is broken by an example, and each change that it names mends that."""

from collections.abc import Iterator
from typing import Any

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.strategies import config as config_module
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS, RunConfig
from murmuration.strategies.rules import RULES
from murmuration.strategies.settings.declaration import about, declared, option
from murmuration.strategies.settings.rule import Rule, first_broken
from murmuration.strategies.settings.run import Settings

POLICY = {"task": "policy", "base": "b"}
TEXT = {"task": "text", "base": "b"}
SHARES = {"noise": "distributed", "secure_aggregation": True, "adjacency": "zero-out", "test": "t"}
LABELS = {"adjacency": "replace-labels"}
PUBLISHED = {"strategy": "aup", "variant": "published"}
LOCAL = {"strategy": "local-label"}

BROKEN: list[dict[str, Any]] = [
    {"strategy": "objective-perturbation", "secure_aggregation": True, **LABELS},
    {"base_privacy": "public"},
    {"items": "i"},
    {"base_privacy": "public", "features": "strengths"},
    {"disjoint": True, "population": "p"},
    {"disjoint": True, "features": "minilm"},
    {"heldout_epsilon": 4.0},
    {"heldout_epsilon": 1.0, "test": "t"},
    {"loss": "ipo", "base": "b"},
    {"beta": 0.1, "base": "b"},
    {"r_max": 1.0, "base": "b"},
    {"task": "policy"},
    {**POLICY, "train": "head"},
    {**TEXT, "kind": "top-1", "responses": 3},
    {**TEXT, "responses": 3},
    {**TEXT, "labels": "randomized"},
    {**TEXT, "model": "plackett-luce"},
    {**TEXT, "strategy": "objective-perturbation", **LABELS},
    {**POLICY, "strategy": "objective-perturbation", **LABELS},
    {**TEXT, "adjacency": "replace-labels"},
    {**POLICY, "loss": "robust-dpo", "r_max": 2.0},
    {**POLICY, "loss": "ipo", "kind": "top-1", "responses": 3, "model": "plackett-luce"},
    {**LOCAL, "base": "b", "train": "lora"},
    {**LOCAL, "rounds": 7},
    {**LOCAL, "optimizer": "adam"},
    {**LOCAL, "learning_rate": 0.1},
    {**LOCAL, "group_size": 3},
    {**LOCAL, "user_passes": "shared"},
    {**POLICY, "kind": "thumbs"},
    {"kind": "thumbs", "base": "b", "train": "lora"},
    {"kind": "thumbs", "strategy": "els"},
    {"kind": "thumbs", "user_passes": "shared"},
    {"honest_nodes": 3},
    {**PUBLISHED, "noise": "discrete"},
    {"noise": "discrete", "seed": 1},
    {**SHARES, "secure_aggregation": False},
    {**SHARES, "strategy": "aup", "variant": "above-threshold"},
    {**SHARES, "test": ""},
    {
        "strategy": "aup",
        "variant": "published",
        "secure_aggregation": True,
        "adjacency": "zero-out",
    },
    {"secure_aggregation": True},
    {"sampling": "all"},
    {"sampling": "banded", "users": 10_000, "optimizer": "adam"},
    {"strategy": "dp-fedavg", "once_per_text": True, "base": "b"},
    {**SHARES, "strategy": "els"},
    {**LOCAL, **POLICY, "estimator": "mle"},
    {**LOCAL, **POLICY, "ridge": 1.0},
    {**LOCAL, "epochs": 2},
    {**LOCAL, "once_per_text": True, **POLICY},
    {**LOCAL, "label_delta": 0.1},
    {"strategy": "survey", "kind": "thumbs"},
    {"strategy": "survey", "labels": "randomized"},
    {"strategy": "survey", "clip_norm": 1.0},
    {"strategy": "survey", "group_size": 3},
    {"strategy": "survey", "features": "minilm"},
    {"strategy": "survey", "items": "i"},
    {"strategy": "ranking", "kind": "thumbs"},
    {"strategy": "ranking", "kind": "top-1", "responses": 3, "model": "plackett-luce"},
    {"strategy": "ranking", "labels": "randomized"},
    {"strategy": "ranking", "clip_norm": 1.0},
    {"strategy": "ranking", "base": "b"},
    {"start": "length", "base": "b"},
    {"start": "length", "length": "none"},
    {**LOCAL, "start": "length"},
    {**PUBLISHED, "start": "length"},
]


def of_a_language_model() -> Iterator[dict[str, Any]]:
    """Each setting that is about one, with a value that is not its default, and none named."""
    for each in declared(Settings):
        if about(each).base:
            others = [name for name in about(each).names if name != each.default]
            of_type = {str: "some", int: 3, bool: True}
            if each.name not in ("loss", "beta", "r_max"):  # these are about policies
                known = {"dtype": "float32", "lora_layers": "all"}
                value = [*others, known.get(each.name, of_type[type(each.default)])][0]
                yield {each.name: value}


def rules() -> list[Rule]:
    """The table, and the rules of all strategies."""
    listed = [*RULES]
    for strategy in registry.strategies().values():
        listed += [rule for rule in strategy.rules if rule not in listed]
    return listed


@pytest.fixture
def broken_rules(monkeypatch) -> list[Rule]:
    """The rules by which configs were refused."""
    broken: list[Rule] = []

    def recorded(*of: Any) -> Rule | None:
        rule = first_broken(*of)
        broken.extend([rule] if rule else [])
        return rule

    monkeypatch.setattr(config_module, "first_broken", recorded)
    return broken


@pytest.mark.skipif(not installed(), reason="no OpenDP here, which --noise discrete needs")
def test_each_rule_can_be_broken_and_each_change_that_it_names_mends_it(broken_rules):
    for settings in [*BROKEN, *of_a_language_model()]:
        with pytest.raises(InputError) as refused:
            RunConfig(**settings)
        message, rule = str(refused.value), broken_rules[-1]
        assert "{" not in message
        for change in rule.instead:
            mended = {**settings, **change}
            RunConfig(**{name: value for name, value in mended.items() if value is not None})
            for name, value in change.items():
                assert option(name) in message or name not in settings
                assert value in (None, True) or f"{option(name)} {value}" in message
    assert [rule.why for rule in rules() if rule not in broken_rules] == []


def test_a_reason_names_what_is_wrong_and_a_change_names_settings_that_exist():
    for rule in rules():
        assert "--" in rule.why
        for change in rule.instead:
            assert change.keys() <= SETTINGS.keys()
