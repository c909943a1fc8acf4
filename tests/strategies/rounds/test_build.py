"""From settings to a strategy: options reach the plan, defaults come from the strategy."""

import math

import pytest

from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.strategies import nonprivate, registry, sums, uls
from murmuration.strategies.config import RunConfig
from murmuration.strategies.nonprivate import NonPrivate
from murmuration.strategies.protocol.stated_plan import StatedPlan
from murmuration.strategies.steps.step_size import noise_limited_rate
from murmuration.strategies.uls import Uls

CONFIG = RunConfig(epsilon=0.5, delta=1e-3, rounds=4, cohort=20)


@pytest.fixture
def made(build_from, quick_runs):
    """A function: what is built from settings, for 80 users to train on of 100."""

    def make(share=None, **changes):
        config = CONFIG.changed(**changes)
        budget = config.epsilon if config.strategy == "uls" else None
        share = share or config.heldout
        return build_from(config, 100, held_out=20, share=share, budget=budget)

    return make


def test_uls(made):
    built = made(clip_norm=0.4, group_size=3, adjacency="zero-out", timeout=9.0)
    strategy = built.strategy
    assert isinstance(strategy, Uls)
    plan = strategy.plan
    assert (plan.users, plan.cohort, plan.rounds, plan.delta) == (80, 20, 4, 1e-3)
    assert (plan.clip.norm, plan.group_size) == (0.4, 3) == (built.clip_norm, built.group_size)
    assert plan.adjacency is Adjacency.ZERO_OUT
    assert 0.499 < plan.epsilon() <= 0.5
    rounds = {PoissonGaussian(0.25, built.noise_multiplier): 4}
    assert built.charges == rounds | HoldOut(0.2, 0.25).charges
    assert built.noise == pytest.approx(built.noise_multiplier * 0.4 / 20)
    assert strategy.sampler == plan.mechanism.sampler
    assert strategy.timeout == 9.0
    assert strategy.features == '{"kind": "hashing"}'
    assert strategy.optimizer.theta_D.tolist() == [0.0] * 9


def test_uls_defaults(made):
    built = made()
    plan = built.strategy.plan
    assert (plan.clip.norm, plan.group_size) == (uls.DEFAULT_CLIP, sums.DEFAULT_GROUP_SIZE)
    settings = built.strategy.optimizer.settings
    assert settings.rate == pytest.approx(
        noise_limited_rate(plan.noise, settings, uls.RATE_CEILING / plan.clip.norm)
    )
    assert (settings.rounds, settings.momentum) == (4, CONFIG.momentum)


@pytest.mark.parametrize(
    ("loss", "longest"), [("", 1_000.0), ("robust-dpo", 1_000.0), ("square-chipo", 4_000.0)]
)
def test_a_policy_s_step_is_shorter_where_nothing_holds_it(made, loss, longest):
    of_layers = {"task": "policy", "base": "some-base", "train": "lora", "loss": loss, "cohort": 80}
    assert made(**of_layers, epsilon=300.0).strategy.optimizer.settings.rate == longest
    assert made(**of_layers, epsilon=0.1).strategy.optimizer.settings.rate < 1_000.0


def test_optimizer_options_reach_the_optimizer(made):
    settings = made(optimizer="adam", learning_rate=0.7, momentum=0.5).strategy.optimizer.settings
    assert (settings.kind, settings.rate) == ("adam", 0.7)
    assert settings.momentum == 0.5


def test_a_nominal_number_of_users_counts_instead_of_the_registry(made):
    built = made(users=160)
    assert built.strategy.plan.users == 160
    assert next(iter(built.charges)).probability == 0.125


def test_cohort_beyond_those_who_train(made):
    for strategy in set(registry.strategies()) - set(registry.solved()):
        with pytest.raises(ValueError, match="--cohort 90 is more than the 80 users"):
            made(cohort=90, strategy=strategy, group_size=2)


def test_nonprivate(made):
    built = made(strategy="nonprivate")
    assert isinstance(built.strategy, NonPrivate)
    assert (built.charges, built.noise_multiplier, built.noise) == ({}, 0.0, 0.0)
    assert built.clip_norm is None
    assert built.group_size == sums.DEFAULT_GROUP_SIZE
    assert built.strategy.optimizer.settings.kind == "adam"
    assert built.strategy.optimizer.settings.rate == nonprivate.RATE


def test_every_strategy_can_be_built(made):
    # Some ask nodes when they are built; of a small cohort no filtered mean could be released.
    for name in set(registry.strategies()) - {*registry.solved(), "aup-corrected"}:
        built = made(strategy=name, group_size=2)
        assert built.strategy.name in (name, f"{name}-centred")
        assert (built.gradients > 0, built.bytes_per_user > 0) == (True, True)
        # What nodes are told of it pays for as many releases as there are rounds.
        adjacency = Adjacency(CONFIG.adjacency)
        plan = StatedPlan.of("r", adjacency, CONFIG.delta, CONFIG.rounds, built.charges)
        assert math.isfinite(plan.epsilon()) == (name != "nonprivate")


def test_noise_for_coins_that_nobody_tossed_is_refused(made):
    """A plan that counts on a hold-out would have too little noise where all are trained on."""
    with pytest.raises(ValueError, match=r"held out with probability 0\.3, and they are with 0\.2"):
        made(heldout=0.3, share=0.2)
    made(heldout=0.3, share=0.2, test="others.jsonl")
