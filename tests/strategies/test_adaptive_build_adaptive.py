"""Adaptive clipping and centred AUP from settings: options reach the plan."""

import numpy as np
import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.adaptive import Adaptive, AdaptivePlan
from murmuration.strategies.aup.centred import AupCentred
from murmuration.strategies.aup.threshold import AupThreshold, ThresholdPlan
from murmuration.strategies.base import Participants
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import RegistryEntry
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.registry import build, named
from murmuration.strategies.spec import RunContext

CONFIG = RunConfig(
    test="others.jsonl", strategy="aup", epsilon=0.5, delta=1e-3, rounds=4, cohort=20
)


@pytest.fixture
def made(tmp_path):
    """A function: what is built from settings, for 80 users."""

    def make(dimension=9, **changes):
        config = CONFIG.changed(**changes)
        registry = Registry.of({1: RegistryEntry(0, np.arange(80, dtype=np.uint64), None)})
        context = RunContext(
            strategy=named(config.strategy),
            config=config,
            participants=Participants.all(registry),
            source=Randomness(0),
            features="{}",
            dimension=dimension,
            log=print,
            grid=LocalGrid(client_app, 1, {}),
            once=lambda name, release: release(),
        )
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        terms = {"adjacency": Adjacency(config.adjacency), "delta": config.delta}
        with Ledger(path, budget=config.epsilon, **terms) as ledger:
            return build(context, ledger)

    return make


@pytest.mark.parametrize(
    ("changes", "strategy", "plan"),
    [
        ({"strategy": "adaptive"}, Adaptive, AdaptivePlan),
        ({}, AupCentred, AdaptivePlan),
        ({"adaptation": "above-threshold"}, AupThreshold, ThresholdPlan),
    ],
)
def test_options_reach_the_plan(made, changes, strategy, plan):
    built = made(clip_norm=0.7, group_size=3, retain=5, adjacency="replace", **changes)
    assert type(built.strategy) is strategy
    found = built.strategy.plan
    assert type(found) is plan
    assert (found.users, found.cohort, found.rounds, found.delta) == (80, 20, 4, 1e-3)
    assert (found.start, found.group_size, found.retain) == (0.7, 3, 5)
    assert found.adjacency is Adjacency.REPLACE
    assert built.charges == found.charges
    assert (built.clip_norm, built.group_size) == (0.7, 3)
    assert built.noise == pytest.approx(found.noise_multiplier / 20)
    assert 0.499 < found.epsilon() <= 0.5
    assert "(0.5, 0.001)" in built.guarantee
    assert built.account


def test_the_quantile_is_an_option_where_there_is_one(made):
    for strategy in ("aup", "adaptive"):
        assert made(strategy=strategy, quantile=0.6).strategy.plan.rule.quantile == 0.6
        assert made(strategy=strategy).strategy.plan.rule.quantile == 0.15
    with pytest.raises(InputError, match="--quantile is for --adaptation quantile"):
        made(adaptation="above-threshold", quantile=0.6)
    with pytest.raises(InputError, match="--quantile is for --strategy adaptive and aup"):
        CONFIG.changed(strategy="uls", quantile=0.6)
    with pytest.raises(InputError, match="--adaptation must be one of"):
        CONFIG.changed(adaptation="above")


def test_few_even_dimensions_shorten_steps_and_a_given_step_stays(made):
    few, many = made(dimension=1), made(dimension=10_000)
    assert few.strategy.least_unit == pytest.approx(10_000 * many.strategy.least_unit)
    assert few.strategy.least_unit > 0
    assert made(dimension=1, learning_rate=2.0).strategy.least_unit == 0.0
    assert made(dimension=1, optimizer="adam").strategy.least_unit == 0.0


def test_centred_users_send_as_much_and_get_a_centre_more(made):
    adaptive, centred = made(strategy="adaptive"), made()
    # Down 4 bytes a number, and 4 more for the centre; up 4.
    assert centred.bytes_per_user == pytest.approx(12 / 8 * adaptive.bytes_per_user)
