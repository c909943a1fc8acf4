"""The corrected filter as a strategy: plan, invariance, faults at nodes, failing tests."""

import dataclasses
import math

import numpy as np
import pytest

from murmuration.privacy.adjacency import Adjacency
from murmuration.research.strategies import aup_corrected
from murmuration.research.strategies.aup_corrected import AupCorrected, CorrectedPlan
from murmuration.research.strategies.filtered_mean import TestedGaussian
from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer

PLAN = {
    "users": 2500,
    "cohort": 500,
    "rounds": 50,
    "delta": 1e-5,
    "adjacency": Adjacency.ADD_REMOVE,
}


def plan(**changes):
    return CorrectedPlan(**{**PLAN, "noise_multiplier": 2.0, **changes})


@pytest.fixture
def world(make_filter_world, make_examples):
    """A function: a world where everybody is near to everybody, unless changed."""

    def make(counts=None, *, rounds=10, rate=1.0, nodes=1, seed=0, wrap=None, scale=1.0, **changes):
        counts = counts or [3] * 60
        users = len(counts)
        fields = {"users": users, "cohort": users, "rounds": rounds, "radius": 50.0}
        made = plan(**{**fields, "noise_multiplier": 0.2, **changes})
        settings = OptimizerSettings("sgd", rate, rounds, momentum=0.0, averaging=0.0)
        examples = make_examples(counts, scale=scale)
        optimizer = ServerOptimizer(settings, np.zeros(examples.dimension, dtype=np.float32))
        return make_filter_world(
            examples, AupCorrected, made, optimizer, nodes=nodes, seed=seed, wrap=wrap
        )

    return make


def test_a_plan_binds_everything():
    made = plan()
    mechanism = made.mechanism
    assert mechanism.event == TestedGaussian(0.2, 2.0, 0.1 * 1e-5 / 50)
    assert made.charges == {mechanism.event: 50}
    assert (
        made.noise
        == mechanism.std
        == pytest.approx(
            4 * 0.5 / mechanism.least_weight * 2.0 / math.sqrt(1 - mechanism.test_share)
        )
    )
    # A cohort as heavy as counted on lies two standard deviations above the bar.
    assert mechanism.bar + 2 * mechanism.test_std == pytest.approx(0.6 * 500)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.radius = 9.0


def test_the_split_is_the_best_one():
    made = plan()
    for share in (made.mechanism.test_share + 0.03, made.mechanism.test_share - 0.03):
        other = dataclasses.replace(made.mechanism, test_share=share)
        room = other.bar - other.least_weight + 2 * other.test_std
        other = dataclasses.replace(other, least_weight=0.6 * 500 - room)
        assert other.std > made.noise


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_for_epsilon_meets_its_target_from_below(adjacency):
    made = CorrectedPlan.for_epsilon(1.0, **{**PLAN, "adjacency": adjacency, "cohort": 1500})
    assert 0.999 < made.epsilon() <= 1.0


def test_a_cohort_that_cannot_pass_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"--cohort 30 cannot pass .* raise --cohort or --epsilon"):
        CorrectedPlan.for_epsilon(0.1, **{**PLAN, "cohort": 30})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort": 3000}, "--cohort 3000 is more"),
        ({"rounds": 0}, "--rounds must be"),
        ({"delta": 1.5}, "--delta must be between"),
        ({"radius": 0.0}, "radius must be"),
        ({"noise_multiplier": 0.0}, "noise multiplier"),
    ],
)
def test_impossible_plans_cannot_be_built(changes, message):
    with pytest.raises((ValueError, ZeroDivisionError), match=message):
        plan(**changes)


def test_where_everybody_agrees_it_is_gradient_descent_on_the_mean(world, make_examples, oracle):
    made = world(noise_multiplier=1e-4, rounds=3)
    made.run(3)
    theta_D, examples = np.zeros(5), make_examples([3] * 60)
    for round_ in range(1, 4):
        means = [oracle(examples, theta_D, slice(3 * u, 3 * u + 3)).numpy() for u in range(60)]
        settings = made.strategy.optimizer.settings
        theta_D -= settings.rate * settings.factor(round_) * np.mean(means, axis=0)
    np.testing.assert_allclose(made.strategy.optimizer.result_D, theta_D, atol=0.02)
    assert made.strategy.notes() == []


def test_zero_gradients_give_noise_of_the_promised_length(world, checks):
    made = world(scale=0.0)
    for gradient_D in made.run(6):
        checks.released_noise(gradient_D, made.strategy.plan.noise)
    assert made.ledger.spent() == {made.strategy.plan.mechanism.event: 6}


def test_users_may_be_on_any_nodes(world):
    counts = np.random.default_rng(0).integers(1, 9, size=60).tolist()
    found = []
    for nodes in (1, 2, 9):
        made = world(counts, nodes=nodes, radius=2.0)
        made.run(10)
        found.append(made.strategy.optimizer.result_D)
        assert made.left_out == []
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)


def test_a_test_that_fails_releases_nothing_is_charged_and_reported(world):
    made = world(radius=1e-3)
    released = made.run(4)
    assert not np.any(released)
    assert sum(made.ledger.spent().values()) == 4
    assert "In 4 of 4 rounds" in made.strategy.notes()[0]
    again = world(radius=1e-3).strategy
    again.restore(made.strategy.state())
    assert again.failed_tests == 4


def test_an_outlier_cannot_move_the_model(world, make_examples, make_filter_world):
    examples = make_examples([3] * 60)
    examples.x_RD[:3] = 1e6
    plain, shifted = world(radius=8.0), None
    optimizer = ServerOptimizer(plain.strategy.optimizer.settings, np.zeros(5, dtype=np.float32))
    shifted = make_filter_world(examples, AupCorrected, plain.strategy.plan, optimizer)
    plain_D, shifted_D = plain.run(1)[0], shifted.run(1)[0]
    assert np.linalg.norm(plain_D - shifted_D) < 1.0
    assert plain.strategy.failed_tests == shifted.strategy.failed_tests == 0


def test_a_node_that_lies_or_falls_silent_makes_its_users_absent(world, monkeypatch):
    def spoil(message, reply):
        sums = reply.content.array_records["sums"]
        from flwr.app import Array

        sums["stack"] = Array(sums["stack"].numpy()[:-1])
        return reply

    class Faulty:
        def __init__(self, grid):
            self._grid = grid

        def __getattr__(self, name):
            return getattr(self._grid, name)

        def pull_messages(self, ids):
            found = list(self._grid.pull_messages(ids))
            return [
                spoil(None, m)
                if m.metadata.message_type == "train" and m.metadata.src_node_id == 1
                else m
                for m in found
            ]

    made = world(nodes=3, wrap=Faulty)
    seen = []
    monkeypatch.setattr(
        aup_corrected.contributions,
        "those_present",
        lambda totals, real=aup_corrected.contributions.those_present: (
            seen.append(totals) or real(totals)
        ),
    )
    made.run(1)
    assert any("shapes" in reason for reason in made.left_out)
    assert seen[0]["present"].tolist() == [0.0] * 20 + [1.0] * 40
    assert not seen[0]["stack"][:20].any()


def test_a_resumed_run_repeats_bit_for_bit_and_is_charged_once(world):
    whole = world()
    whole.run(6)
    part = world()
    part.run(3)
    state = {name: value.copy() for name, value in part.strategy.state().items()}
    ledger = part.ledger
    again = world()
    again.strategy.restore(state)
    again.strategy.rounds_done, again.strategy.ledger = 3, ledger
    again.run(6)
    assert len(ledger.charges) == 6
    np.testing.assert_array_equal(
        again.strategy.optimizer.result_D, whole.strategy.optimizer.result_D
    )


def test_golden_trajectory(world):
    made = world(nodes=3, radius=2.0)
    made.run(10)
    golden = [0.1793934, -0.3018315, 0.0964625, 0.1757199, 0.0023706]
    np.testing.assert_allclose(made.strategy.optimizer.result_D, golden, atol=2e-5)
