"""Settings that no run could use, and messages that name the option."""

import math

import pytest

from murmuration.preference.data.judgements import InputError
from murmuration.strategies import registry
from murmuration.strategies.config import OWN_SETTINGS, SETTINGS, RunConfig
from murmuration.strategies.settings.aup import AupSettings
from murmuration.strategies.settings.shared import NoSettings

THUMBS = {"kind": "thumbs", "model": "thumbs"}
BAD = {
    "task": ["", "write"],
    "train": ["half"],
    "dtype": ["half", "float64"],
    "quantise": ["2bit"],
    "lora_rank": [-1],
    "lora_alpha": [-1],
    "max_tokens": [-1],
    "batch_tokens": [-1],
    "user_memory": [-1],
    "keep_last": [-1],
    "strategy": ["", "dp"],
    "model": ["", "elo"],
    "epsilon": [0.0, -1.0, math.nan, math.inf],
    "delta": [1.0, -1e-5, math.nan],
    "adjacency": ["", "remove"],
    "rounds": [-3],
    "cohort": [-1],
    "users": [-1],
    "clip_norm": [-0.1, math.nan, math.inf],
    "group_size": [-1],
    "heldout": [0.0, 1e-4, 1.0, 1.5, math.nan],
    "heldout_epsilon": [-1.0, 3.1, math.nan],
    "on_bad_rows": ["", "repair"],
    "kind": ["", "best"],
    "length": ["", "long"],
    "labels": ["", "noisy"],
    "max_judgements": [0],
    "max_characters": [-1],
    "retain": [-1],
    "sampling_probability": [-0.1, 1.1, math.nan],
    "local_steps": [-1],
    "local_rate": [-0.1, math.nan, math.inf],
    "variant": ["", "best"],
    "adaptation": ["", "guess"],
    "quantile": [-0.1, 1.0, math.nan],
    "ridge": [-0.1, math.nan, math.inf],
    "max_norm": [-0.1, math.nan, math.inf],
    "calibration": ["guess"],
    "phases": [-1],
    "schedule": ["", "fast"],
    "optimizer": ["lion"],
    "learning_rate": [-1.0, math.nan],
    "momentum": [1.0, -0.1, math.nan],
    "warmup": [-0.1, 1.1, math.nan],
    "averaging": [-0.1, 1.1, math.nan],
    "head_first": [-0.1, 1.1, math.nan],
    "noise": ["laplace", "Discrete"],
    "honest_nodes": [-1, 1],
    "seed": [-2],
    "timeout": [-1.0, math.inf, math.nan],
    "estimator": ["best"],
    "level": ["house"],
    "label_cap": [-1],
    "judgement_cap": [-1],
    "label_delta": [-0.1, 1e-4, math.nan],
    "label_weights": ["many"],
    "sgd_steps": ["long"],
    "epochs": [-1],
    "batch_size": [-1],
    "loss": ["kto"],
    "beta": [-0.1, math.nan, math.inf],
    "r_max": [-0.1, math.nan, math.inf],
    "min_nodes": [-1, 2.5, -0.5, math.nan, math.inf],
    "refresh": [-1],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_bad_values_name_their_option(name, value):
    _, having = OWN_SETTINGS.get(name, (None, ("uls",)))
    strategy = registry.named(having[0])
    having = {"strategy": strategy.name, "adjacency": min(strategy.adjacencies).value}
    with pytest.raises(InputError) as caught:
        RunConfig.from_run_config({**having, name: value})
    message = str(caught.value)
    assert message.startswith(f"--{name.replace('_', '-')} must be ")
    assert repr(value) in message
    assert "\n" not in message


def test_every_option_with_limits_is_tested_here():
    free = {"secure_aggregation", "sum_zero", "as_published", "exact_heldout"}
    free |= {"data", "test", "columns", "features", "normalized", "out", "resume"}
    free |= {"base", "lora_targets", "responses", "accept_ledger_loss", "batch_users"}
    free |= {"one_user_per_row"}
    free |= {"checkpointing", "tf32", "policies"}
    free |= {"registration", "base_privacy", "population", "disjoint"}
    assert SETTINGS.keys() - free == set(BAD)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "uls", "sampling_probability": 0.1}, "--sampling-probability is for"),
        ({"test": "t", "heldout_epsilon": 0.1}, "--heldout-epsilon is about users held out"),
        ({"test": "t", "exact_heldout": True}, "--exact-heldout is about users held out"),
        ({"exact_heldout": True, "heldout_epsilon": 0.1}, "--exact-heldout adds no noise"),
        (
            {"strategy": "label-moment", "adjacency": "replace-labels", "batch_users": True},
            "--batch-users has no meaning for --strategy label-moment",
        ),
        (
            {"strategy": "local-label", "adjacency": "replace-labels", "users": 9, "refresh": 1},
            "--refresh has no meaning for --strategy local-label",
        ),
        ({"kind": "top-1"}, "--kind top-1 needs --responses"),
        ({"kind": "ranking", "responses": 65}, "--kind ranking needs --responses"),
        ({"responses": 3}, "--responses 3: pairs have two"),
        ({"kind": "top-1", "responses": 3}, "use --model plackett-luce"),
        ({"kind": "thumbs"}, "use both or none; got --model btl and --kind thumbs"),
        ({"model": "thumbs"}, "use both or none; got --model thumbs and --kind pairs"),
        ({**THUMBS, "responses": 3}, "--kind thumbs has one: leave it out"),
        ({**THUMBS, "labels": "randomized"}, "not about thumbs"),
        ({**THUMBS, "strategy": "els"}, "takes judgements one by one: use uls, dp-fedavg"),
        ({**THUMBS, "strategy": "group"}, "takes judgements one by one"),
        ({**THUMBS, "strategy": "local-label", "adjacency": "replace-labels"}, "one by one"),
        ({**THUMBS, "strategy": "label-moment", "adjacency": "replace-labels"}, "one by one"),
        (
            {**THUMBS, "strategy": "objective-perturbation", "adjacency": "replace-labels"},
            "takes judgements one by one",
        ),
        ({**THUMBS, "batch_users": True}, "--model thumbs is computed user by user"),
        ({**THUMBS, "base": "b"}, "with --base, --train head"),
        ({**THUMBS, "base": "b", "task": "policy"}, "not for --task policy"),
        ({"kind": "thumbs", "base": "b", "task": "sft"}, "not for --task sft"),
        ({"task": "text", "base": "b", "kind": "top-1", "responses": 2}, "--task text reads none"),
        ({"strategy": "els", "local_steps": 2}, "--local-steps is for --strategy dp-fedavg"),
        ({"strategy": "uls", "local_rate": 2.0}, "--local-rate is for --strategy dp-fedavg"),
        ({"strategy": "els", "retain": 3}, "--retain is for --strategy uls and dp-fedavg"),
        ({"strategy": "els", "adjacency": "replace"}, "no guarantee under replace"),
        ({"strategy": "uls", "level": "item"}, "--level is for --strategy local-label"),
        ({"strategy": "local-label"}, "use --adjacency replace-labels"),
        ({"noise": "discrete", "seed": 1}, "cannot be repeated: leave out --seed"),
        ({"noise": "discrete", "strategy": "group"}, "not for --strategy group"),
        (
            {"noise": "discrete", "strategy": "aup", "variant": "published"},
            "not for --strategy aup --variant published",
        ),
        ({"secure_aggregation": True}, "use --adjacency zero-out, at the same epsilon"),
        (
            {
                "secure_aggregation": True,
                "strategy": "aup",
                "variant": "corrected",
                "adjacency": "zero-out",
            },
            "the server needs everybody's vector",
        ),
        (
            {"secure_aggregation": True, "strategy": "nonprivate", "adjacency": "zero-out"},
            "--secure-aggregation is not for --strategy nonprivate",
        ),
    ],
)
def test_options_that_a_strategy_does_not_have(settings, message):
    with pytest.raises(InputError, match=message):
        RunConfig.from_run_config(settings)


@pytest.mark.parametrize("task", ["text", "sft"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": ""}, "--task {} trains a language model: name one with --base"),
        ({"train": "head"}, "--task {} has no head of its own to train: use --train lora"),
        ({"model": "thurstone"}, "--model thurstone is a preference model"),
        ({"adjacency": "replace-labels"}, "--task {} looks at no label"),
        # The last of them says first what it cannot do without.
        *(({"strategy": name, "adjacency": "replace-labels"}, "learns from labels")
          for name in registry.solved() - {"exponential"}),
        ({"strategy": "exponential"}, "chooses a policy: name --task policy"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_where_next_tokens_are_said(task, settings, message):
    with pytest.raises(InputError) as caught:
        RunConfig.from_run_config({"base": "b", "task": task, **settings})
    assert message.format(task) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_memory_for_several_users_is_for_several_users():
    with pytest.raises(InputError, match="--user-memory is for --batch-users"):
        RunConfig(base="b", user_memory=64)
    RunConfig(base="b", user_memory=64, batch_users=True)


def test_as_published_is_about_sft():
    for task in ("reward", "text"):
        with pytest.raises(InputError, match="--as-published is about --task sft"):
            RunConfig(base="b", task=task, as_published=True)
    # Labels are looked at, so that they can be what neighbours differ in.
    RunConfig(base="b", task="sft", as_published=True, adjacency="replace-labels")


@pytest.mark.parametrize(
    ("strategy", "variant", "adjacency", "message"),
    [
        ("aup", "corrected", "zero-out", "needs everybody's vector"),
        ("aup", "published", "replace", "needs everybody's vector"),
        ("nonprivate", "centred", "zero-out", "not clipped"),
        ("local-label", "centred", "replace-labels", "do not send sums on a grid"),
        ("uls", "centred", "add-remove", "use --adjacency zero-out"),
    ],
)
def test_what_has_no_sum_to_mask(strategy, variant, adjacency, message):
    own = AupSettings(variant=variant) if strategy == "aup" else NoSettings()
    with pytest.raises(ValueError, match=message):
        RunConfig(strategy=strategy, own=own, adjacency=adjacency, secure_aggregation=True)


@pytest.mark.parametrize(
    "strategy", ["uls", "dp-fedavg", "els", "group", "adaptive", "aup", "label-moment"]
)
def test_sums_that_can_be_masked(strategy):
    for adjacency in registry.named(strategy).adjacencies - {"add-remove"}:
        RunConfig(strategy=strategy, adjacency=adjacency.value, secure_aggregation=True)


@pytest.mark.parametrize("strategy", ["uls", "dp-fedavg", "adaptive", "aup", "nonprivate"])
def test_thumbs_are_for_strategies_that_average_a_users_judgements(strategy):
    assert RunConfig(**THUMBS, strategy=strategy).schema.responses == 2
    assert RunConfig(**THUMBS, strategy=strategy, base="b", train="head").train == "head"
