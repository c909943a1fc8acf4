"""From moments to a model: the correction for clipping, the ridge rule, several moments."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.preference.estimation.public_likelihood import PublicLikelihood, label_linear_model
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.research.reproductions.btl import Population, without_labels
from murmuration.strategies.solved.moment_solver import (
    Moment,
    MomentSolver,
    _draw,
    noise_aware_ridge,
)


@pytest.fixture(scope="module")
def crowd():
    return Population.draw(1, users=400, each=4, dimension=4)


def solver(crowd, **more):
    return MomentSolver(without_labels(crowd.examples), **more)


def moment(noisy_D, clip=0.8, std=1.0, centre_D=None):
    dimension = len(noisy_D)
    centre_D = np.zeros(dimension) if centre_D is None else centre_D
    return Moment(np.asarray(noisy_D, dtype=float), centre_D, UserClip(clip), std)


def expected_clipped(examples, theta_D, clip, draws=400):
    """E of the clipped sum under labels drawn at θ, by simulation of its own, centre 0."""
    generator = np.random.default_rng(5)
    x_RD, counts = examples.x_RD.double().numpy(), examples.counts_U.numpy()
    user_R = np.repeat(np.arange(len(counts)), counts)
    length_U = np.sqrt(np.bincount(user_R, 0.25 * (x_RD**2).sum(axis=1))) / counts
    p_R = 1 / (1 + np.exp(-x_RD @ theta_D))
    total_D = np.zeros(x_RD.shape[1])
    for _ in range(draws):
        pull_R = (generator.random(len(p_R)) < p_R) - 0.5
        sums_UD = np.zeros((len(counts), x_RD.shape[1]))
        np.add.at(sums_UD, user_R, pull_R[:, None] * x_RD)
        sums_UD /= (counts * length_U)[:, None]
        norms_U = np.linalg.norm(sums_UD, axis=1, keepdims=True)
        total_D += (sums_UD * np.minimum(1.0, clip / np.maximum(norms_U, 1e-12))).sum(axis=0)
    return total_D / draws


@pytest.mark.parametrize("clip", [0.1, 0.8, 5.0])
def test_weights_and_correction_say_what_clipping_does_to_the_expected_sum(crowd, clip):
    """Weighted gradients plus the correction are the expectation, found in another way."""
    theta_D, made = torch.from_numpy(crowd.truth_D), solver(crowd)
    weight_U, extra_D = made._clipped(moment(np.zeros(4), clip), theta_D)
    loss = PublicLikelihood(made.examples, label_linear_model("btl", made.examples), weight_U)
    zero_D = torch.zeros(4, dtype=torch.float64)
    found_D = (loss.gradient(theta_D) - loss.gradient(zero_D) + extra_D).numpy()
    expected_D = expected_clipped(made.examples, crowd.truth_D, clip)
    np.testing.assert_allclose(found_D, expected_D, atol=0.05 * np.linalg.norm(expected_D))
    if clip == 5.0:
        assert not extra_D.abs().max() > 1e-9


def test_the_expected_sum_gives_the_truth_back(crowd):
    for clip in (0.1, 0.8):
        made = solver(crowd, ridge=1e-3)
        exact_D = expected_clipped(made.examples, crowd.truth_D, clip, draws=1500)
        found_D = made.solve([moment(exact_D, clip, 1e-3)])
        assert np.linalg.norm(found_D - crowd.truth_D) < 0.2


def test_several_moments_count_by_their_noise(crowd):
    made = solver(crowd, ridge=0.5)
    good_D = expected_clipped(made.examples, crowd.truth_D, 0.8, draws=200)
    sharp, blurred = moment(good_D, std=0.1), moment(-good_D, std=10.0)
    alone_D, both_D = made.solve([sharp]), made.solve([sharp, blurred])
    np.testing.assert_allclose(alone_D, both_D, atol=0.01)
    halves_D = made.solve([moment(good_D, std=1.0)] * 2)
    np.testing.assert_allclose(halves_D, alone_D, atol=1e-3)
    twice = made._noise([moment(good_D, std=1.0)] * 2)
    assert twice == pytest.approx(1 / math.sqrt(2))


def test_the_solver_is_deterministic_and_looks_at_no_label(crowd):
    made = solver(crowd)
    scrambled = replace(made.examples, y_R=torch.zeros_like(made.examples.y_R))
    given = [moment([1.0, 2.0, -3.0, 0.5])]
    first = made.solve(given)
    assert MomentSolver(scrambled).solve(given).tolist() == first.tolist()
    assert solver(crowd).solve(given).tolist() == first.tolist()


def test_the_ridge_grows_with_the_noise_and_is_near_the_best_for_weights_like_its_own(crowd):
    made = solver(crowd)
    ridges = [made.ridge_for([moment(np.zeros(4), std=std)]) for std in (0.1, 1.0, 10.0, 100.0)]
    assert (np.diff(ridges) >= -1e-9 * ridges[0]).all()
    assert ridges[-1] > 10 * ridges[0]
    assert solver(crowd, ridge=3.0).ridge_for([moment(np.zeros(4))]) == 3.0

    # Linearised: errors of log-odds with ridges around the chosen one.
    loss, noise, generator = made._base, 60.0, np.random.default_rng(0)
    chosen = noise_aware_ridge(loss, noise, 0.0)
    bends_D = loss.axes[0].numpy()
    scale = 1.0 / math.sqrt(float((made.examples.lengths_R**2).mean()))
    weights_ND = scale * generator.standard_normal((4000, 4))
    noise_ND = noise * generator.standard_normal((4000, 4))

    def risk(ridge):
        found = (bends_D * weights_ND + noise_ND) / (bends_D + ridge)
        return float((bends_D * (found - weights_ND) ** 2).sum(axis=1).mean())

    assert risk(chosen) <= min(risk(0.3 * chosen), risk(3.0 * chosen))


def test_noise_moves_the_solution_about_as_far_as_it_says(crowd):
    made, generator = solver(crowd, ridge=1.0), np.random.default_rng(0)
    still_D = made.solve([moment(np.zeros(4), std=0.5)])
    moved = [
        np.linalg.norm(made.solve([moment(0.5 * generator.standard_normal(4), std=0.5)]) - still_D)
        for _ in range(40)
    ]
    said = made.noise_length([moment(np.zeros(4), clip=5.0, std=0.5)])
    # Clipping to 0.8 shrinks curvature, about as much as moments.
    assert 0.8 < math.sqrt(np.mean(np.square(moved))) / said < 2.0


def test_draws_are_those_of_the_chances():
    chances_JW = torch.tensor([[0.2, 0.5], [0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    generator = np.random.default_rng(0)
    drawn = torch.stack([_draw(chances_JW, generator) for _ in range(4000)])
    assert (drawn.sum(2) <= 1).all()
    np.testing.assert_allclose(drawn.mean(0), chances_JW, atol=0.03)


def test_the_best_of_several_is_found():
    generator = torch.Generator().manual_seed(0)
    truth_D = torch.tensor([1.0, -1.5, 0.5], dtype=torch.float64)
    phi_JKD = torch.randn(3000, 3, 3, generator=generator, dtype=torch.float64)
    chances = torch.softmax(phi_JKD @ truth_D, dim=1)
    best_J = torch.multinomial(chances, 1, generator=generator)[:, 0]
    start_U = torch.arange(0, 3001, 3)
    public = PairExamples(
        (phi_JKD[:, :1] - phi_JKD[:, 1:]).reshape(-1, 3),
        torch.ones(6000, dtype=torch.float64), start_U, 2, kind="top-1",
    )  # fmt: skip
    pull_JD = phi_JKD[torch.arange(3000), best_J] - phi_JKD.mean(dim=1)
    spread_J = (phi_JKD - phi_JKD.mean(dim=1, keepdim=True)).square().sum(2).mean(1)
    u = pull_JD.view(1000, 3, 3).sum(1) / spread_J.view(1000, 3).sum(1).sqrt()[:, None]
    clipped = u * (0.8 / u.norm(dim=1)).clamp_max(1.0)[:, None]
    made = MomentSolver(public, "plackett-luce", ridge=1e-3)
    found_D = made.solve([moment(clipped.sum(0).numpy(), std=1e-6)])
    assert np.linalg.norm(found_D - truth_D.numpy()) < 0.2


def test_nobody_was_shown_anything_to_tell_apart():
    empty = PairExamples(torch.zeros(4, 2), torch.ones(4), torch.tensor([0, 2, 4]))
    found_D = MomentSolver(empty).solve([moment([0.3, 0.4])])
    assert np.isfinite(found_D).all()
