"""Settings: the same keys everywhere, and messages that name the option."""

import dataclasses
import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from preference.judgements import InputError
from server.config import RunConfig, parse_delta

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_round_trip():
    config = RunConfig(data="d", epsilon=0.5, rounds=7, resume=True, seed=3, out="o", group_size=4)
    assert RunConfig.from_run_config(config.to_run_config()) == config
    assert RunConfig.from_run_config({}) == RunConfig()


def test_keys_and_defaults_are_those_of_pyproject():
    """Flower refuses an override of a key that is not in pyproject.toml."""
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    expected = RunConfig().to_run_config()
    assert settings == expected
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


BAD = {
    "train": ["half"],
    "lora_rank": [-1],
    "max_tokens": [-1],
    "batch_tokens": [-1],
    "user_memory": [-1],
    "strategy": ["", "dp"],
    "model": ["", "elo"],
    "epsilon": [0.0, -1.0, math.nan, math.inf],
    "delta": [1.0, -1e-5, math.nan],
    "adjacency": ["", "remove"],
    "rounds": [-3],
    "cohort": [0, -1],
    "users": [-1],
    "clip": [-0.1, math.nan, math.inf],
    "group_size": [-1],
    "heldout": [0.0, 1.0, 1.5, math.nan],
    "on_bad_rows": ["", "repair"],
    "retain": [-1],
    "sampling_probability": [-0.1, 1.1, math.nan],
    "local_steps": [-1],
    "local_rate": [-0.1, math.nan, math.inf],
    "variant": ["", "best"],
    "adaptation": ["", "guess"],
    "quantile": [-0.1, 1.0, math.nan],
    "ridge": [-0.1, math.nan, math.inf],
    "ball": [-0.1, math.nan, math.inf],
    "calibration": ["guess"],
    "phases": [-1],
    "schedule": ["", "fast"],
    "optimizer": ["lion"],
    "learning_rate": [-1.0, math.nan],
    "momentum": [1.0, -0.1, math.nan],
    "warmup": [-0.1, 1.1, math.nan],
    "averaging": [-0.1, 1.1, math.nan],
    "noise": ["laplace", "Discrete"],
    "seed": [-2],
    "timeout": [0.0, -1.0, math.inf],
    "estimator": ["best"],
    "level": ["house"],
    "label_cap": [-1],
    "label_delta": [-0.1, 1e-4, math.nan],
    "label_weights": ["many"],
    "sgd_steps": ["long"],
    "least_nodes": [-1],
    "refresh": [-1],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_bad_values_name_their_option(name, value):
    with pytest.raises(InputError) as caught:
        RunConfig(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"--{name.replace('_', '-')} must be ")
    assert repr(value) in message
    assert "\n" not in message


def test_every_option_with_limits_is_tested_here():
    free = {"secure_aggregation", "sum_zero"}
    free |= {"data", "test", "columns", "features", "normalized", "out", "resume"}
    free |= {"base", "lora_targets"}
    assert {field.name for field in dataclasses.fields(RunConfig)} - free == set(BAD)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "uls", "sampling_probability": 0.1}, "--sampling-probability is for"),
        (
            {"strategy": "local-label", "adjacency": "replace-labels", "users": 9, "refresh": 1},
            "--refresh has no meaning for --strategy local-label",
        ),
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
        RunConfig(**settings)


def test_delta_by_the_number_of_users():
    assert parse_delta("1e-6") == 1e-6
    config = RunConfig(delta=parse_delta("n^-1.1"))
    assert config.settled(2000).delta == pytest.approx(2000**-1.1)
    assert replace(config, users=10**5).settled(2000).delta == pytest.approx(1e-5 * 10**-0.5)
    assert RunConfig().settled(2000) == RunConfig()
    for text in ("0", "1", "-1e-5", "nan", "n^-2", ""):
        with pytest.raises(InputError, match="--delta must be"):
            parse_delta(text)


def test_promise_is_what_decides_the_result_or_its_cost():
    names = {field.name for field in dataclasses.fields(RunConfig)}
    assert set(RunConfig(seed=5).promise()) == names - {
        "out",
        "resume",
        "timeout",
        "seed",
        "least_nodes",
    }
