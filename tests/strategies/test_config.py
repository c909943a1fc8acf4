"""Settings: the same keys everywhere, and messages that name the option."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.hold_out import LEAST_SHARE
from murmuration.server.record.run_files import settings_of
from murmuration.strategies import registry
from murmuration.strategies.config import (
    OWN_SETTINGS,
    SETTINGS,
    RunConfig,
    read_settings,
)
from murmuration.strategies.settings.catalogue import OF_STRATEGIES
from murmuration.strategies.settings.declaration import about, declared
from murmuration.strategies.settings.privacy import parse_delta
from murmuration.strategies.settings.run import Settings

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_round_trip():
    config = RunConfig(data="d", epsilon=0.5, rounds=7, resume=True, seed=3, out="o", group_size=4)
    assert RunConfig.from_run_config(config.to_run_config()) == config
    assert RunConfig.from_run_config({}) == RunConfig()


def test_what_people_change_has_a_key_of_its_own():
    """Flower refuses an override of a key that is not in pyproject.toml."""
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    # What a field says by itself: 0 rounds are as many as suit the strategy, which is overridden.
    plain = [field for field in SETTINGS.values() if about(field).common]
    expected = {field.name.replace("_", "-"): field.default for field in plain} | {"settings": ""}
    assert settings == expected
    assert RunConfig.from_run_config(settings_of(settings)) == RunConfig()
    assert {k: type(v) for k, v in settings.items()} == {k: type(v) for k, v in expected.items()}


def test_whole_numbers_serve_as_real_ones():
    config = RunConfig.from_run_config({"epsilon": 3, "on-bad-rows": "skip"})
    assert config.epsilon == 3.0
    assert type(config.epsilon) is float
    assert config.on_bad_rows == "skip"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsylon": 3.0}, "unknown setting 'epsylon'"),
        ({"rounds": 3.0}, "'rounds' must be a int"),
        ({"rounds": True}, "'rounds' must be a int"),
        ({"epsilon": "3"}, "'epsilon' must be a float"),
        ({"resume": 1}, "'resume' must be a bool"),
        ({"data": 5}, "'data' must be a str"),
    ],
)
def test_wrong_types_and_unknown_keys(settings, message):
    with pytest.raises(InputError, match=message):
        RunConfig.from_run_config(settings)


def test_delta_by_the_number_of_users():
    assert parse_delta("1e-6") == 1e-6
    config = RunConfig(delta=parse_delta("n^-1.1"))
    assert config.resolved(2500).delta == pytest.approx(2000**-1.1)  # a fifth is held out
    assert replace(config, test="t").resolved(2000).delta == pytest.approx(2000**-1.1)
    assert replace(config, users=10**5).resolved(2000).delta == pytest.approx(1e-5 * 10**-0.5)
    assert RunConfig(cohort=500).resolved(2000) == RunConfig(cohort=500)
    for text in ("0", "1", "-1e-5", "nan", "n^-2", ""):
        with pytest.raises(InputError, match="--delta must be"):
            parse_delta(text)


@pytest.mark.parametrize(
    ("users", "cohort"), [(1, 1), (60, 60), (171, 100), (500, 100), (1000, 200), (9000, 500)]
)
def test_a_cohort_left_out_follows_from_the_stated_number_of_users(users, cohort):
    config = RunConfig(users=users, test="t")
    for registered in (users, 10 * users, 7):  # which decide nothing
        assert config.resolved(registered).cohort == cohort
    roster = RunConfig(adjacency="zero-out", test="t")
    assert roster.resolved(users).cohort == cohort
    held_out = RunConfig(adjacency="zero-out", heldout=0.5)
    assert held_out.resolved(2 * users).cohort == cohort
    assert RunConfig(strategy="nonprivate", test="t").resolved(users).cohort == cohort


def test_a_private_number_of_users_decides_no_cohort():
    config = RunConfig(test="t")
    assert {config.resolved(registered).cohort for registered in (500, 501, 4000)} == {500}
    with pytest.raises(InputError) as refused:
        config.resolved(171)
    text = str(refused.value)
    assert "--users" in text and "--cohort" in text and "zero-out" in text and "171" not in text
    assert RunConfig(test="t", cohort=17).resolved(171).cohort == 17


def test_everybody_takes_part_where_there_are_no_cohorts():
    config = RunConfig(strategy="label-moment", adjacency="replace-labels", test="t")
    assert config.resolved(171).cohort == 171


def test_immutable_is_what_decides_the_result_or_its_cost():
    changeable = {"out", "resume", "timeout", "seed", "min_nodes"}
    changeable |= {"registration"}
    for strategy in registry.OURS:
        own = {field.name for field in declared(strategy.settings)}
        every = {field.name for field in declared(Settings)}
        config = RunConfig(
            seed=5, strategy=strategy.name, adjacency=min(strategy.adjacencies).value
        )
        assert set(config.immutable_fields()) == (every | own) - changeable


def test_a_setting_that_stands_there_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="clip_norm stands there twice"):
        RunConfig.from_run_config({"clip_norm": 0.1, "clip-norm": 0.1})
    file = tmp_path / "settings.toml"
    file.write_text("clip_norm = 0.1\nclip-norm = 0.1\n")
    with pytest.raises(InputError, match=r"settings.toml: clip_norm stands there twice"):
        read_settings(file)


def test_strategies_have_the_settings_that_are_declared_for_them():
    assert {s.name: s.settings for s in registry.OURS} == OF_STRATEGIES
    assert [s.name for s in registry.OURS] == list(OF_STRATEGIES)


def test_the_least_share_that_can_be_held_out():
    RunConfig(heldout=LEAST_SHARE)
    with pytest.raises(InputError, match="--heldout must be a share"):
        RunConfig(heldout=LEAST_SHARE * 0.999)


# Settings that no run could use, and messages that name the option.


THUMBS = {"kind": "thumbs", "model": "thumbs"}
MASKED = {"secure_aggregation": True, "adjacency": "zero-out"}
BAD = {
    "scale": ["5..5", "1", "a..b"],
    "positive_from": ["high"],
    "task": ["", "write"],
    "train": ["half"],
    "dtype": ["half", "float64"],
    "lora_rank": [-1],
    "lora_layers": ["last", "last:0", "0-3", "4", "x:2"],
    "max_tokens": [-1],
    "batch_tokens": [-1],
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
    "heldout": [-0.1, 1e-4, 1.0, 1.5, math.nan],
    "heldout_epsilon": [-1.0, math.nan],
    "on_bad_rows": ["", "repair"],
    "kind": ["", "best"],
    "length": ["", "long"],
    "user_passes": ["together"],
    "labels": ["", "noisy"],
    "max_judgements": [0],
    "max_characters": [-1],
    "sampling_probability": [-0.1, 1.1, math.nan],
    "local_steps": [-1],
    "local_rate": [-0.1, math.nan, math.inf],
    "variant": ["", "best"],
    "sampling": ["", "shuffled"],
    "ridge": [-0.1, math.nan, math.inf],
    "pairing": ["", "drawn"],
    "optimizer": ["lion"],
    "learning_rate": [-1.0, math.nan],
    "momentum": [1.0, -0.1, math.nan],
    "noise": ["laplace", "Discrete"],
    "honest_nodes": [-1, 1],
    "seed": [-2],
    "timeout": [-1.0, math.inf, math.nan],
    "estimator": ["best"],
    "label_cap": [-1],
    "label_delta": [-0.1, math.nan],
    "epochs": [-1],
    "loss": ["kto"],
    "beta": [-0.1, math.nan, math.inf],
    "r_max": [-0.1, math.nan, math.inf],
    "min_nodes": [-1, 2.5, -0.5, math.nan, math.inf],
    "note": ["two\nlines", "\x1b[2J", "x" * 201],
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
    free = {"secure_aggregation"}
    free |= {"data", "test", "columns", "format", "features", "out", "resume"}
    free |= {"base", "lora_targets", "responses"}
    free |= {"one_user_per_row", "no_prompt", "items", "categories", "topics", "start"}
    free |= {"checkpointing", "once_per_text", "policies", "system"}
    free |= {"registration", "base_privacy", "population", "disjoint", "chosen_from_data"}
    assert SETTINGS.keys() - free == set(BAD)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "uls", "sampling_probability": 0.1}, "--sampling-probability is for"),
        ({"kind": "top-1"}, "--kind top-1 needs --responses"),
        ({"kind": "ranking", "responses": 65}, "--kind ranking needs --responses"),
        ({"responses": 3}, "--responses 3: pairs have two"),
        ({"kind": "top-1", "responses": 3, "model": "btl"}, "use --model plackett-luce"),
        ({"kind": "thumbs", "model": "btl"}, "use both or none; got --model btl and --kind thumbs"),
        (
            {"kind": "pairs", "model": "thumbs"},
            "use both or none; got --model thumbs and --kind pairs",
        ),
        ({**THUMBS, "responses": 3}, "--kind thumbs has one: leave it out"),
        ({**THUMBS, "labels": "randomized"}, "not about thumbs"),
        ({**THUMBS, "strategy": "els"}, "takes judgements one by one"),
        ({**THUMBS, "strategy": "group"}, "takes judgements one by one"),
        ({**THUMBS, "strategy": "local-label", "adjacency": "replace-labels"}, "one by one"),
        ({**THUMBS, "strategy": "label-moment", "adjacency": "replace-labels"}, "one by one"),
        (
            {**THUMBS, "strategy": "objective-perturbation", "adjacency": "replace-labels"},
            "takes judgements one by one",
        ),
        ({"strategy": "els", "local_steps": 2}, "--local-steps is for --strategy dp-fedavg"),
        ({"strategy": "uls", "local_rate": 2.0}, "--local-rate is for --strategy dp-fedavg"),
        ({"strategy": "els", "sampling": "blt"}, "--sampling is for --strategy uls and dp-fedavg"),
        ({"strategy": "els", "adjacency": "replace"}, "no guarantee under replace"),
        ({"strategy": "local-label", "adjacency": "add-remove"}, "use --adjacency replace-labels"),
    ],
)
def test_options_that_a_strategy_does_not_have(settings, message):
    with pytest.raises(InputError, match=message):
        RunConfig.from_run_config(settings)


@pytest.mark.parametrize("task", ["text", "sft"])
@pytest.mark.parametrize("strategy", sorted(registry.solved()))
def test_strategies_that_solve_learn_from_no_next_tokens(task, strategy):
    adjacency = "replace-labels" if strategy not in ("survey", "exponential") else "zero-out"
    with pytest.raises(InputError, match=r"--task|--base"):
        RunConfig(base="b", task=task, strategy=strategy, adjacency=adjacency)


@pytest.mark.parametrize(
    ("strategy", "variant", "adjacency"),
    [
        ("aup-corrected", "centred", "zero-out"),
        ("aup", "published", "replace"),
        ("nonprivate", "centred", "zero-out"),
        ("local-label", "centred", "replace-labels"),
        ("uls", "centred", "add-remove"),
    ],
)
def test_what_has_no_sum_to_mask(strategy, variant, adjacency):
    own = {"variant": variant} if strategy == "aup" else {}
    with pytest.raises(ValueError, match="--secure-aggregation"):
        RunConfig(strategy=strategy, adjacency=adjacency, secure_aggregation=True, **own)


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


def test_what_a_report_says_is_any_short_line():
    config = RunConfig(note="Ärzte & Co, 2026")
    assert RunConfig.from_run_config(config.to_run_config()) == config


def test_a_setting_beside_a_strategys_own_is_taken():
    config = RunConfig(strategy="aup", variant="above-threshold")
    assert replace(config, variant="centred").own == RunConfig(strategy="aup").own
    assert RunConfig(own=config.own, strategy="aup", epsilon=1.0).own == config.own
    with pytest.raises(InputError, match="are no settings of --strategy uls"):
        RunConfig(own=config.own)
