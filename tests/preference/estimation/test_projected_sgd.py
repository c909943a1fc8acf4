"""One pass of SGD over randomized labels: the paper's update, projections, averages."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.preference.estimation.projected_sgd import DECAYING, PUBLISHED, Steps, one_pass
from murmuration.preference.estimation.randomized_labels import RandomizedLabels
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from tests.preference.estimation.test_debiased import pairs


def papers_gradient(log_p, told: int, epsilon: float, theta_D: torch.Tensor) -> torch.Tensor:
    """ĝ of Algorithm 1 and of §4.4, from log-probabilities of all labels as a function of θ."""
    jacobian_KD = torch.autograd.functional.jacobian(log_p, theta_D)
    return jacobian_KD.sum(0) / (math.exp(epsilon) + len(jacobian_KD) - 1) - jacobian_KD[told]


@pytest.mark.parametrize("options", [2, 4])
def test_the_update_is_that_of_the_paper(options):
    epsilon, generator = 0.7, torch.Generator().manual_seed(3)
    phi_JKD = torch.randn(30, options, 3, generator=generator).double()
    told_J = torch.randint(0, options, (30,), generator=generator)
    x_JWD = phi_JKD[:, :1] - phi_JKD[:, 1:]
    flip = RandomizedResponse(epsilon, options).flip_probability
    labels = RandomizedLabels.of_choices(x_JWD, told_J, flip)
    theta_D = torch.zeros(3).double()
    for t in range(30):
        rows_KD = phi_JKD[t]
        step = papers_gradient(
            lambda theta, rows=rows_KD: torch.log_softmax(rows @ theta, -1),
            int(told_J[t]),
            epsilon,
            theta_D,
        )
        theta_D = theta_D - 0.1 * step
        theta_D = theta_D * min(1.0, 1.5 / float(theta_D.norm()))
    assert torch.allclose(one_pass(labels, ball=1.5, steps=PUBLISHED), theta_D, atol=1e-9)


def test_padding_changes_nothing():
    generator = torch.Generator().manual_seed(1)
    x_JWD = torch.randn(50, 2, 3, generator=generator).double()
    choice_J = torch.randint(0, 3, (50,), generator=generator)
    alone = RandomizedLabels.of_choices(x_JWD, choice_J, 0.2)
    padded = RandomizedLabels.of_choices(
        torch.cat([x_JWD, torch.full((50, 2, 3), 9.0).double()], 1),
        choice_J,
        0.2,
        torch.full((50,), 3),
    )
    assert torch.allclose(one_pass(alone, ball=3.0), one_pass(padded, ball=3.0), atol=1e-12)


def test_prefixes_and_problems_are_what_they_would_be_alone():
    _, _, labels = pairs(120, 1.0, problems=3)
    path = one_pass(labels, ball=2.0, at=[40, 120])
    assert path.shape == (2, 3, 3)
    assert torch.allclose(path[1], one_pass(labels, ball=2.0))
    # A prefix shorter than what gauges the steps would gauge them otherwise.
    fixed = Steps(rate=0.3)
    assert torch.allclose(
        one_pass(labels, ball=2.0, steps=fixed, at=[40])[0],
        one_pass(labels.head(40), ball=2.0, steps=fixed),
    )
    alone = RandomizedLabels.of_pairs(
        labels.x_JWD[1, :, 0], labels.stated_JK[1, :, 0], labels.flip_J[1]
    )
    assert torch.allclose(one_pass(alone, ball=2.0), path[1][1])


@pytest.mark.parametrize("steps", [DECAYING, PUBLISHED])
def test_it_stays_in_the_ball(steps):
    _, _, labels = pairs(300, 0.1, problems=1)
    found_D = one_pass(labels, ball=0.4, steps=steps)[0]
    assert found_D.norm() <= 0.4 * (1 + 1e-12)


def test_decaying_steps_come_close_and_the_published_ones_do_not():
    truth_PD, _, labels = pairs(20_000, 1.0, problems=20)
    few, many = (
        (theta_PD - truth_PD).norm(dim=-1).mean()
        for theta_PD in one_pass(labels, ball=4.0, at=[1000, 20_000])
    )
    assert many < 0.45 * few  # √(1/20) = 0.22
    early, late = (
        (theta_PD - truth_PD).norm(dim=-1).mean()
        for theta_PD in one_pass(labels, ball=4.0, steps=PUBLISHED, at=[1000, 20_000])
    )
    assert late > 0.8 * early
    assert late > 2 * many


def test_steps_do_not_depend_on_the_scale_of_weights():
    _, _, labels = pairs(200, 1.0, problems=1)
    scaled = replace(labels, weight_J=labels.weight_J * labels.contrast_J)
    assert torch.allclose(one_pass(labels, ball=2.0), one_pass(scaled, ball=2.0))


@pytest.mark.parametrize("ball", [0.0, math.inf, math.nan])
def test_there_is_always_a_ball(ball):
    _, _, labels = pairs(5, 1.0, problems=1)
    with pytest.raises(ValueError, match="ball must be positive and finite"):
        one_pass(labels, ball=ball)


@pytest.mark.parametrize(("rate", "power"), [(-1.0, 0.5), (np.inf, 0.5), (1.0, 1.5), (1.0, -0.1)])
def test_impossible_steps_are_refused(rate, power):
    with pytest.raises(ValueError, match="step"):
        Steps(rate, power)
