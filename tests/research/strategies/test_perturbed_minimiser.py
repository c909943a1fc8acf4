"""Objective perturbation over arrays: noise, caps, and what it refuses."""

import math

import numpy as np
import pytest

from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.research.reproductions.btl import Population
from murmuration.research.strategies import perturbed_minimiser as module
from murmuration.research.strategies.objective_noise import FullObjective, LabelObjective
from murmuration.research.strategies.perturbed_minimiser import perturbed_minimiser

TERMS = {"epsilon": 1.0, "delta": 1e-5, "length": 2.0}


class Silent:
    """A generator whose noise is nothing."""

    def standard_normal(self, size):
        return np.zeros(size)


class Recorder:
    """A generator that is nothing but a record of how much was asked."""

    def __init__(self):
        self.sizes = []

    def standard_normal(self, size):
        self.sizes.append(size)
        return np.ones(size)


def crowd(each=1, users=500):
    population = Population.draw(2, users=users, each=each, dimension=5)
    x_RD = population.examples.x_RD.double().numpy()
    return population, x_RD, np.ones(len(x_RD)), population.examples.start_U.numpy()


@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE_LABELS, Adjacency.REPLACE])
def test_without_noise_it_is_ridge_regression(adjacency):
    _, x_RD, y_R, start_U = crowd(each=3)
    more = {} if adjacency is Adjacency.REPLACE_LABELS else {"cap": 3}
    ridge = 20.0
    theta_D = perturbed_minimiser(
        x_RD, y_R, **TERMS, start_U=start_U, adjacency=adjacency, ridge=ridge,
        generator=Silent(), **more,
    )  # fmt: skip
    p = 1 / (1 + np.exp(-x_RD @ theta_D))
    np.testing.assert_allclose((p - 1) @ x_RD / 3 + ridge * theta_D, 0.0, atol=1e-3)


@pytest.mark.parametrize("calibration", ["analytic", "paper"])
@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE_LABELS, Adjacency.REPLACE])
def test_noise_is_as_promised_not_more_and_not_less(adjacency, calibration):
    """Known noise of one per coordinate shows the scale in the stationarity of the result."""
    _, x_RD, y_R, _ = crowd()
    plan = (LabelObjective if adjacency is Adjacency.REPLACE_LABELS else FullObjective)(
        **TERMS, calibration=calibration
    )
    recorder = Recorder()
    theta_D = perturbed_minimiser(
        x_RD, y_R, **TERMS, adjacency=adjacency, ridge=400.0, generator=recorder,
        calibration=calibration,
    )  # fmt: skip
    if isinstance(plan, FullObjective):
        assert recorder.sizes == [5, 5]
        output = FullObjective(**TERMS, tolerance=module.TOLERANCE, calibration=calibration)
        theta_D = theta_D - output.output_std
        sign = -1.0
    else:
        assert recorder.sizes == [5]
        sign = 1.0
    p = 1 / (1 + np.exp(-x_RD @ theta_D))
    left_D = (p - 1) @ x_RD + 400.0 * theta_D
    np.testing.assert_allclose(left_D, sign * plan.std, rtol=1e-3)


def test_more_privacy_costs_accuracy_and_none_is_the_likeliest():
    population, x_RD, y_R, _ = crowd(users=4000)
    generator = np.random.default_rng(0)
    errors = [
        population.error(
            perturbed_minimiser(
                x_RD, y_R, epsilon=epsilon, delta=1e-5, length=2.0, generator=generator
            )
        )
        for epsilon in (0.05, 0.5, 50.0)
    ]
    assert errors[0] > errors[1] > 0.9 * errors[2]
    assert errors[2] == pytest.approx(population.error(population.likeliest()), abs=0.05)


def test_a_label_is_worth_a_length_and_a_user_no_more():
    """Sensitivity of what is noised, through the whole function: flip everything of one user."""
    seen = []

    def watched(examples, pull_R, weight_U=None):
        seen.append(summed(examples, pull_R, weight_U))
        return seen[-1]

    summed, (_, x_RD, _, start_U) = module.summed, crowd(each=4, users=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "summed", watched)
        for y in (1.0, 0.0):
            y_R = np.ones(24)
            y_R[8:12] = y
            perturbed_minimiser(
                3 * x_RD, y_R, epsilon=1.0, delta=1e-5, length=0.5, start_U=start_U,
                generator=Silent(), ridge=1.0,
            )  # fmt: skip
    assert float((seen[0] - seen[1]).norm()) <= 0.5


def test_under_replace_judgements_beyond_the_cap_and_length_beyond_the_bound_do_not_count():
    _, x_RD, y_R, start_U = crowd(each=4, users=50)
    terms = {**TERMS, "length": 0.5, "adjacency": Adjacency.REPLACE, "generator": Silent()}
    theta_D = perturbed_minimiser(x_RD, y_R, start_U=start_U, cap=2, **terms)
    used_R = np.arange(len(y_R)) % 4 < 2
    short = x_RD[used_R] * np.minimum(
        1.0, 0.5 / np.linalg.norm(x_RD[used_R], axis=1, keepdims=True)
    )
    other = perturbed_minimiser(short, y_R[used_R], start_U=np.arange(0, 101, 2), cap=2, **terms)
    np.testing.assert_allclose(theta_D, other, atol=1e-6)


def test_an_inexact_minimum_is_not_released(monkeypatch):
    _, x_RD, y_R, _ = crowd()
    recorder = Recorder()
    monkeypatch.setattr(module, "TOLERANCE", 1e-300)
    # The tolerance is the only number it says: the gradient's length would be data without noise.
    alone = r"^the minimisation stopped with a gradient above [^0-9]*1e-300; nothing is released$"
    with pytest.raises(ValueError, match=alone):
        perturbed_minimiser(x_RD, y_R, **TERMS, adjacency=Adjacency.REPLACE, generator=recorder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adjacency": Adjacency.ADD_REMOVE}, "no guarantee under add-remove"),
        ({"adjacency": Adjacency.REPLACE, "start_U": np.array([0, 2])}, "name a cap"),
        ({"adjacency": Adjacency.REPLACE, "ridge": 1e-6}, "ridge of at least"),
        (
            {"adjacency": Adjacency.REPLACE, "start_U": np.array([0, 2]), "cap": 2,
             "calibration": "paper"},
            "one judgement a user",
        ),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"length": math.inf}, "bound on rows"),
    ],
)  # fmt: skip
def test_refusals(changes, message):
    with pytest.raises(ValueError, match=message):
        perturbed_minimiser(
            np.ones((2, 2)), np.ones(2), **{**TERMS, "generator": Silent(), **changes}
        )
    with pytest.raises(ValueError, match="finite"):
        perturbed_minimiser(np.full((1, 2), np.nan), np.ones(1), **TERMS, generator=Silent())
    with pytest.raises(ValueError, match="labels in"):
        perturbed_minimiser(np.ones((1, 2)), np.full(1, 2.0), **TERMS, generator=Silent())
    assert issubclass(Unsupported, ValueError)
