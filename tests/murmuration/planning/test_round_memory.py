"""``murmuration plan --base``: the memory of a round, in each mode of users' passes."""

import json

import pytest

from murmuration import TrainConfig, plan
from murmuration.preference.data.errors import InputError

pytest.importorskip("peft")

GIVEN = {"users": 4000, "cohort": 400, "rounds": 20, "delta": 1e-5, "noise_multiplier": 20.0}
GIB = {"memory_isolated_gib", "memory_shared_gib", "memory_server_gib"}


def test_a_base_has_the_memory_of_each_mode(language_model):
    base = str(language_model("gpt2"))
    planned = plan(**GIVEN, base=base, group_size=2)
    assert 0.7 < planned["memory_isolated_gib"] < planned["memory_shared_gib"] < 2.0
    assert planned["memory_shared"].startswith("Memory of a round of shared passes, GiB at most on")
    assert all(f" {part} " in planned["memory_isolated"] for part in ("network", "rows", "server"))
    more = plan(**GIVEN, base=base, group_size=8, train="full")
    assert all(more[name] > planned[name] for name in GIB)
    assert planned["epsilon"] == more["epsilon"]  # a group size costs nothing there


def test_it_is_that_of_a_run_with_these_settings(language_model):
    settings = {"base": str(language_model("gpt2")), "group_size": 2, "max_tokens": 30}
    config = TrainConfig(data="d", rounds=20, cohort=400, users=4000, delta=1e-5, **settings)
    of_config = plan(config, noise_multiplier=20.0)
    assert {name: of_config[name] for name in GIB} == {
        name: value for name, value in plan(**GIVEN, **settings).items() if name in GIB
    }


@pytest.mark.parametrize("settings", [{}, {"base": "gpt2", "train": "head"}])
def test_without_layers_to_train_there_is_none(language_model, settings):
    if settings:
        settings = settings | {"base": str(language_model(settings["base"]))}
    assert not GIB & plan(**GIVEN, **settings).keys()


def test_the_table_prints_it(cli, language_model):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in GIVEN.items()]
    base = ["--base", language_model("gpt2")]
    code, out, _ = cli("plan", *options, *base)
    assert code == 0
    assert "memory isolated gib" in out and "Memory of a round of isolated passes" in out
    assert json.loads(cli("plan", *options, *base, "--json")[1]).keys() >= GIB


def test_a_base_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no such folder"):
        plan(**GIVEN, base="./nowhere")
