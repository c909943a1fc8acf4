import numpy as np
import pytest

from murmuration.strategies.aup.schedule import Phase
from murmuration.strategies.optimizers import PhasedSettings, PhasedSgd

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


def run(optimizer, gradients, halted_at=(), first=1):
    for round_, gradient_D in enumerate(gradients[first - 1 :], start=first):
        if round_ in halted_at:
            optimizer.halted = True
        optimizer.step(round_, np.zeros(2) if optimizer.halted else gradient_D)
    return optimizer


GRADIENTS = np.random.default_rng(0).normal(size=(5, 2))


@pytest.mark.parametrize("halted_at", [(), (1,), (2,), (3,), (4,), (1, 3), (2, 5)])
def test_it_is_algorithm_2_in_phases(halted_at):
    found = run(made(), GRADIENTS, halted_at)
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
    first = run(made(), GRADIENTS[:at], halted_at)
    second = made()
    second.restore(first.state())
    run(second, GRADIENTS, halted_at, first=at + 1)
    np.testing.assert_array_equal(second.result_D, run(made(), GRADIENTS, halted_at).result_D)
