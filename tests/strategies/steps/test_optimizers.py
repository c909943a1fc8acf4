"""The server's optimizer: against torch, its schedule, and exact restoring."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from murmuration.preference.choices import OPTIMIZERS
from murmuration.strategies.aup.schedule import Phase
from murmuration.strategies.steps.optimizers import (
    OptimizerSettings,
    PhasedSettings,
    PhasedSgd,
    ServerOptimizer,
    SolvedModel,
)


def settings(kind="sgd", **changes):
    return OptimizerSettings(**{"kind": kind, "rate": 0.2, "rounds": 12, **changes})


def gradients(rounds=12, dimension=4, seed=0):
    return np.random.default_rng(seed).normal(size=(rounds, dimension))


def run(optimizer, found, first=1):
    for round_, gradient_D in enumerate(found, start=first):
        optimizer.step(round_, gradient_D)
    return optimizer


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_equal_to_torch(kind, momentum):
    config = settings(kind, momentum=momentum, averaging=0.0)
    theta = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([theta], betas=(momentum, 0.99))
    velocity = torch.zeros(4, dtype=torch.float64)
    for round_, gradient_D in enumerate(gradients(), start=1):
        rate = config.rate * config.factor(round_)
        if kind == "adam":
            adam.param_groups[0]["lr"] = rate
            theta.grad = torch.from_numpy(gradient_D)
            adam.step()
        else:  # an average of gradients: the first counts as little as any other
            velocity = momentum * velocity + (1 - momentum) * torch.from_numpy(gradient_D)
            theta = theta.detach() - rate * velocity
    found = run(ServerOptimizer(config, np.zeros(4)), gradients())
    np.testing.assert_allclose(found.theta.numpy(), theta.detach().numpy(), rtol=1e-12)
    assert found.result_D.tolist() == found.theta_D.tolist()
    assert found.theta_D.dtype == np.float32


def test_starts_where_it_is_told():
    start_D = np.array([1.0, -2.0], dtype=np.float32)
    assert ServerOptimizer(settings(), start_D).theta_D.tolist() == [1.0, -2.0]


def test_schedule():
    config = settings(rounds=100, rate=1.0)
    factors = [config.factor(t) for t in range(1, 101)]
    cosine = [0.5 * (1 + math.cos(math.pi * t / 100)) for t in range(100)]
    assert factors[4:] == pytest.approx(cosine[4:])
    rising = [t / 5 for t in range(1, 6)]
    assert factors[:5] == pytest.approx(np.multiply(rising, cosine[:5]).tolist())
    assert factors[-1] < 1e-3
    assert settings(rounds=1).factor(1) == 1.0


@given(st.integers(1, 500))
def test_schedule_is_positive_and_at_most_one(rounds):
    config = settings(rounds=rounds)
    assert all(0 < config.factor(t) <= 1 for t in (1, rounds // 2 + 1, rounds))


@pytest.mark.parametrize(("averaging", "last"), [(0.25, 3), (1.0, 12), (0.5, 6)])
def test_result_is_the_mean_of_the_last_iterates(averaging, last):
    optimizer, iterates = ServerOptimizer(settings(averaging=averaging), np.zeros(4)), []
    for round_, gradient_D in enumerate(gradients(), start=1):
        optimizer.step(round_, gradient_D)
        iterates.append(optimizer.theta.clone())
    expected = torch.stack(iterates[-last:]).mean(0)
    np.testing.assert_allclose(optimizer.result_D, expected.numpy(), rtol=1e-6)
    assert optimizer.theta_D.tolist() == pytest.approx(iterates[-1].tolist(), rel=1e-6)


def test_result_of_a_run_that_stopped_early_is_its_last_iterate():
    optimizer = run(ServerOptimizer(settings(), np.zeros(4)), gradients(5))
    assert optimizer.result_D.tolist() == optimizer.theta_D.tolist()


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("done", [0, 1, 5, 11])
def test_restoring_is_exact(kind, done):
    found = gradients()
    whole = run(ServerOptimizer(settings(kind), np.zeros(4)), found)
    first = run(ServerOptimizer(settings(kind), np.zeros(4)), found[:done])
    state = load(save(first.state()))  # as a checkpoint holds it
    second = ServerOptimizer(settings(kind), np.zeros(4))
    second.restore(state)
    run(second, found[done:], first=done + 1)
    assert second.theta.tolist() == whole.theta.tolist()
    assert second.result_D.tolist() == whole.result_D.tolist()
    for name, value in whole.state().items():
        np.testing.assert_array_equal(second.state()[name], value)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_state_has_no_array_that_says_nothing(kind):
    """What is as long as the model is written in every round."""
    optimizer = ServerOptimizer(settings(kind), np.zeros(4))
    assert "average" not in optimizer.state()
    run(optimizer, gradients())
    assert "average" in optimizer.state()
    plain = run(ServerOptimizer(settings("sgd", momentum=0.0), np.zeros(4)), gradients()[:2])
    assert {name for name, value in plain.state().items() if value.size > 1} == {"theta"}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_going_back_to_before_the_average_and_what_is_restored_is_its_own(kind):
    found = gradients()
    whole = run(ServerOptimizer(settings(kind), np.zeros(4)), found)
    first = run(ServerOptimizer(settings(kind), np.zeros(4)), found[:3])
    early = {name: value.copy() for name, value in first.state().items()}
    run(first, found[3:], first=4)
    first.restore(early)
    second = ServerOptimizer(settings(kind), np.zeros(4))
    second.restore(first.state())
    for optimizer in (first, second):  # one after the other: they share nothing
        run(optimizer, found[3:], first=4)
        assert optimizer.result_D.tolist() == whole.result_D.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "lion"}, "must be one of sgd, adam"),
        ({"rate": 0.0}, "learning rate"),
        ({"rate": math.inf}, "learning rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"averaging": -0.1}, "averaging"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(**changes)


PHASES = (Phase(10, 5, 2, 0.5, 1.0), Phase(20, 5, 3, 0.25, 1.0))


def made():
    return PhasedSgd(PHASES, np.zeros(2, dtype=np.float32))


def by_hand(gradients, halted_at=()):
    """Algorithm 2 for each phase, literally; a phase that halts returns its average so far."""
    theta, round_ = np.zeros(2), 0
    for phase in PHASES:
        point, visited = theta.copy(), []
        for _ in range(phase.rounds):
            round_ += 1
            if round_ in halted_at or visited is None:
                theta, visited = (np.mean(visited, axis=0) if visited else theta), None
                continue
            visited.append(point)
            point = point - phase.rate * gradients[round_ - 1]
        if visited:
            theta = np.mean(visited, axis=0)
    return theta


def run_phases(optimizer, gradients, halted_at=(), first=1):
    for round_, gradient_D in enumerate(gradients[first - 1 :], start=first):
        if round_ in halted_at:
            optimizer.halted = True
        optimizer.step(round_, np.zeros(2) if optimizer.halted else gradient_D)
    return optimizer


GRADIENTS = np.random.default_rng(0).normal(size=(5, 2))


@pytest.mark.parametrize("halted_at", [(), (1,), (2,), (3,), (4,), (1, 3), (2, 5)])
def test_it_is_algorithm_2_in_phases(halted_at):
    found = run_phases(made(), GRADIENTS, halted_at)
    np.testing.assert_allclose(found.result_D, by_hand(GRADIENTS, halted_at), atol=1e-6)
    assert not found.halted


def test_step_sizes_are_constant_in_each_phase():
    settings = PhasedSettings.of(PHASES)
    assert [settings.rate * settings.factor(t) for t in range(1, 7)] == [
        *[0.5] * 2,
        *[0.25] * 3,
        0.0,
    ]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("halted_at", [(), (3,)])
def test_it_goes_on_from_its_state(at, halted_at):
    first = run_phases(made(), GRADIENTS[:at], halted_at)
    second = made()
    second.restore(first.state())
    run_phases(second, GRADIENTS, halted_at, first=at + 1)
    np.testing.assert_array_equal(
        second.result_D, run_phases(made(), GRADIENTS, halted_at).result_D
    )


# A model without an optimizer.


def test_it_holds_what_was_set():
    model = SolvedModel(3)
    assert not model.theta_D.any()
    assert model.set(np.array([3.0, 0.0, 4.0])) == pytest.approx(5.0)
    assert model.set(np.array([3.0, 0.0, 4.0])) == 0.0
    assert model.theta_D.dtype == model.result_D.dtype == np.float32
    assert model.result_D.tolist() == [3.0, 0.0, 4.0]
    assert model.rate() is None
    assert model.rate(1) is None


def test_state_restores_to_the_last_bit():
    model, other = SolvedModel(2), SolvedModel(2)
    model.set(np.array([1 / 3, 1e-20]))
    other.restore(model.state())
    assert other.theta.tolist() == model.theta.tolist()


def test_what_is_not_finite_is_refused_and_nothing_changes():
    model = SolvedModel(2)
    model.set(np.ones(2))
    with pytest.raises(ValueError, match="not finite"):
        model.set(np.array([1.0, np.nan]))
    assert model.theta.tolist() == [1.0, 1.0]
