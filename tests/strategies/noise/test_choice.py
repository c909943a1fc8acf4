"""Which noise a run draws: what is chosen, what is refused, and what the report then says."""

from dataclasses import replace

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.discrete_gaussian import MOST_COORDINATES, DiscreteNoise
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.noise import choice
from murmuration.strategies.noise.choice import NoiseChoice

CENTRED = [("uls", ""), ("dp-fedavg", ""), ("els", ""), ("adaptive", ""), ("aup", "centred")]


@pytest.fixture(autouse=True)
def with_the_library(monkeypatch):
    monkeypatch.setattr(choice, "installed", lambda: True)


def config(strategy="uls", variant="", **more):
    own = {"variant": variant or "centred"}
    return RunConfig.from_run_config({"strategy": strategy, **own, **more})


def choose(settings, dimension, **more):
    return choice.choose_noise(settings, registry.named(settings.strategy), dimension, **more)


@pytest.mark.parametrize(("strategy", "variant"), CENTRED)
def test_discrete_noise_is_the_default_where_nothing_is_seeded(strategy, variant):
    found = choose(config(strategy, variant), 1025, seeded=False, nodes=5)
    assert found == NoiseChoice("discrete")
    assert found.on(1025) == DiscreteNoise(1025)
    seeded = choose(config(strategy, variant, seed=3), 1025, seeded=True, nodes=5)
    assert seeded == NoiseChoice("gaussian")
    assert seeded.on(1025) is None


@pytest.mark.parametrize(
    ("settings", "dimension", "why"),
    [
        ({"strategy": "group"}, 9, "--strategy group"),
        ({"strategy": "aup", "variant": "published"}, 9, "--variant published"),
        (
            {"strategy": "objective-perturbation", "adjacency": "replace-labels"},
            9,
            "--strategy objective-perturbation",
        ),
        ({}, MOST_COORDINATES + 1, "100,001 weights, more than 100,000"),
        ({"noise": "gaussian"}, 9, "--noise gaussian was asked for"),
    ],
)
def test_floating_point_without_a_seed_is_said_in_the_report(settings, dimension, why):
    found = choose(config(**settings), dimension, seeded=False, nodes=5)
    assert found.kind == "gaussian"
    assert why in found.warning
    assert "not covered" in found.warning


def test_without_the_library_the_report_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(choice, "installed", lambda: False)
    found = choose(config(), 9, seeded=False, nodes=5)
    assert found.kind == "gaussian"
    assert "pip install 'murmuration-rlhf[secure]'" in found.warning
    with pytest.raises(ValueError, match="needs OpenDP"):
        RunConfig(noise="discrete")


def test_it_is_looked_for_by_its_name(monkeypatch):
    from murmuration.privacy.mechanisms import discrete_gaussian

    monkeypatch.setattr(discrete_gaussian.importlib.util, "find_spec", lambda name: None)
    assert not discrete_gaussian.installed()


def test_what_is_asked_for_is_given_or_refused():
    assert (
        choose(config(noise="discrete"), MOST_COORDINATES, seeded=False, nodes=5).kind == "discrete"
    )
    with pytest.raises(ValueError, match="at most 100,000 weights"):
        choose(config(noise="discrete"), MOST_COORDINATES + 1, seeded=False, nodes=5)


def test_the_non_private_twin_draws_none():
    assert choose(config("nonprivate"), 9, seeded=False, nodes=5) == NoiseChoice("gaussian")


@pytest.mark.parametrize("seeded", [True, False])
def test_randomized_response_is_not_called_noise_in_floating_point(seeded):
    found = choose(config("local-label", adjacency="replace-labels"), 9, seeded=seeded, nodes=5)
    assert found == NoiseChoice("randomized response")
    assert found.on(9) is None


MASKED = {
    "secure_aggregation": True,
    "test": "public.jsonl",
    "noise": "distributed",
    "adjacency": "zero-out",
}


def test_noise_in_shares_is_of_as_many_as_must_stay_or_are_said_to_be_honest():
    asked = config(**MASKED)
    found = choose(asked, 33, seeded=False, nodes=8)
    assert found.parties == 6  # more than two thirds
    assert found.on(33) == DistributedNoise(33, 6)
    assert choose(replace(asked, honest_nodes=3), 33, seeded=False, nodes=8).parties == 3
    with pytest.raises(ValueError, match="more than the 8 nodes"):
        choose(replace(asked, honest_nodes=9), 33, seeded=False, nodes=8)
    with pytest.raises(ValueError, match="needs 3 nodes"):
        choose(asked, 33, seeded=False, nodes=2)
    with pytest.raises(ValueError, match="--noise distributed is for at most"):
        choose(asked, MOST_COORDINATES + 1, seeded=False, nodes=8)


def test_nodes_add_the_noise_where_the_server_is_told_no_exact_numbers():
    for good in ({"group_size": 4, "strategy": "els"}, {"strategy": "adaptive"}):
        config(**{**MASKED, **good})
    for bad in ({"strategy": "els"}, {"strategy": "group"}, {"test": ""}, {"seed": 3}):
        with pytest.raises(InputError, match="--noise distributed"):
            config(**{**MASKED, **bad})
