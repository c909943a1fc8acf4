"""Losses on randomized labels: gradients, unbiasedness in closed form and by chance, minima."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import optimize

from murmuration.preference.estimation.debiased import LOSSES, fit
from murmuration.preference.estimation.randomized_labels import RandomizedLabels, link_of, logistic
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse

FROM_COINS = [("debiased", "btl"), ("debiased", "thurstone"), ("square", "btl")]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed)).double()


def pairs(rows: int, epsilon: float, *, seed: int = 0, dimension: int = 3, problems: int = 0):
    """θ*, clean labels and randomized ones."""
    leading = (problems,) if problems else ()
    truth_D = normal(*leading, dimension, seed=seed)
    x_JD = normal(*leading, rows, dimension, seed=seed + 1)
    chance_J = torch.sigmoid((x_JD @ truth_D.unsqueeze(-1)).squeeze(-1))
    first_J = torch.rand(chance_J.shape, generator=generator(seed + 2)) < chance_J
    channel = RandomizedResponse(epsilon)
    told_J = first_J ^ (
        torch.rand(chance_J.shape, generator=generator(seed + 3)) < channel.flip_probability
    )
    return (
        truth_D,
        RandomizedLabels.of_pairs(x_JD, first_J, 0.0),
        RandomizedLabels.of_pairs(x_JD, told_J, channel.flip_probability),
    )


def choices(judgements: int, width: int, flip: float, seed: int = 0) -> RandomizedLabels:
    options_J = torch.randint(2, width + 2, (judgements,), generator=generator(seed))
    choice_J = torch.randint(0, 10**6, (judgements,), generator=generator(seed + 1)) % options_J
    return RandomizedLabels.of_choices(
        normal(judgements, width, 3, seed=seed + 2), choice_J, flip, options_J
    )


def by_contrast(labels: RandomizedLabels) -> RandomizedLabels:
    """Each counts r as much, which is how L eq. 4 to 6 and A eq. 1 are scaled."""
    return replace(labels, weight_J=labels.weight_J * labels.contrast_J)


def slopes(labels, theta_D, loss, link=logistic):
    """Derivative of each judgement's loss by its logits, unweighted, (…, J, W)."""
    pi_JK, slopes_JKW = link(labels.logits(theta_D), labels.present_JW)
    by_pi_JK = LOSSES[loss].slope(labels, pi_JK)
    return (by_pi_JK.unsqueeze(-1) * slopes_JKW).sum(-2) * labels.present_JW


def gradient(labels, theta_D, loss, link=logistic):
    """Of the weighted sum of all judgements' losses, (…, D)."""
    slopes_JW = slopes(labels, theta_D, loss, link) * labels.weight_J.unsqueeze(-1)
    return torch.einsum("...jw,...jwd->...d", slopes_JW, labels.x_JWD)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("link", "width"), [("btl", 1), ("plackett-luce", 3), ("thurstone", 1)])
def test_gradients_are_the_derivatives_of_the_losses(loss, link, width):
    labels = by_contrast(choices(20, width, 0.3))
    theta_D = normal(3, seed=9).requires_grad_()
    pi_JK, _ = link_of(link)(labels.logits(theta_D), labels.present_JW)
    total = (labels.weight_J * LOSSES[loss].value(labels, pi_JK)).sum()
    (wanted_D,) = torch.autograd.grad(total, theta_D)
    found_D = gradient(labels, theta_D.detach(), loss, link_of(link))
    assert torch.allclose(found_D, wanted_D, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("loss", "link"), FROM_COINS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_pairs_slopes_are_unbiased_in_closed_form(loss, link, epsilon):
    channel = RandomizedResponse(epsilon)
    x_JD, theta_D = normal(7, 3), normal(3, seed=5)
    for truth in (0.0, 1.0):
        clean = RandomizedLabels.of_pairs(x_JD, torch.full((7,), truth), 0.0)
        told = [
            RandomizedLabels.of_pairs(x_JD, torch.full((7,), side), channel.flip_probability)
            for side in (truth, 1.0 - truth)
        ]
        kept, flipped = (slopes(labels, theta_D, loss, link_of(link)) for labels in told)
        p = channel.flip_probability
        # Under the square loss, of clean labels too, the second moment of q is not in the slope.
        wanted = slopes(clean, theta_D, loss, link_of(link))
        assert torch.allclose((1 - p) * kept + p * flipped, wanted, atol=1e-12)


@pytest.mark.parametrize("loss", ["debiased", "square"])
@pytest.mark.parametrize("options", [2, 3, 5])
def test_choices_slopes_are_unbiased_in_closed_form(loss, options):
    channel = RandomizedResponse(0.5, options)
    told_truth = torch.from_numpy(channel.matrix())
    x_JWD = normal(1, options + 1, 3).expand(options, -1, -1)  # two rows more than there are
    every, shown = torch.arange(options), torch.full((options,), options)
    theta_D = normal(3, seed=3)
    told = RandomizedLabels.of_choices(x_JWD, every, channel.flip_probability, shown)
    clean = RandomizedLabels.of_choices(x_JWD, every, 0.0, shown)
    expected = told_truth @ slopes(told, theta_D, loss)
    assert torch.allclose(expected, slopes(clean, theta_D, loss), atol=1e-12)
    assert (expected[:, options - 1 :] == 0).all()


@pytest.mark.parametrize(("loss", "options"), [("debiased", 2), ("debiased", 4), ("square", 3)])
def test_the_randomizers_labels_give_the_clean_gradient_on_average(loss, options):
    channel, draws = RandomizedResponse(0.6, options), 40_000
    x_JWD, truth = normal(5, options - 1, 3), np.array([0, 1, 1, options - 1, 0])
    theta_D = normal(3, seed=7)
    words = np.random.default_rng(3).integers(0, 2**64, (draws, 5), dtype=np.uint64)
    told = channel.answer(np.tile(truth, draws), words.reshape(-1)).reshape(draws, 5)
    labels = RandomizedLabels.of_choices(
        x_JWD.expand(draws, -1, -1, -1), torch.from_numpy(told), channel.flip_probability
    )
    found = gradient(labels, theta_D.expand(draws, 3), loss)
    clean = RandomizedLabels.of_choices(x_JWD, torch.from_numpy(truth), 0.0)
    wanted = gradient(clean, theta_D, loss)
    deviation = found.std(0) / math.sqrt(draws)
    assert ((found.mean(0) - wanted).abs() < 4 * deviation).all()
    plain = gradient(replace(labels, flip_J=torch.zeros_like(labels.flip_J)), theta_D, loss)
    assert ((plain.mean(0) - wanted).abs() > 4 * deviation).any()  # forgetting the coins shows


def test_the_likelihood_is_right_where_the_model_is():
    """Its expected slope over labels and coins is zero at the truth; the plain one's is not."""
    flip, x_JD, truth_D = 0.3, normal(6, 3), normal(3, seed=4)
    first_J = torch.sigmoid(x_JD @ truth_D)
    told_J = (1 - flip) * first_J + flip * (1 - first_J)
    expected = {}
    for loss in ("mle", "plain"):
        sides = [
            slopes(RandomizedLabels.of_pairs(x_JD, torch.full((6,), s), flip), truth_D, loss)
            for s in (1.0, 0.0)
        ]
        expected[loss] = told_J * sides[0].squeeze(-1) + (1 - told_J) * sides[1].squeeze(-1)
    assert torch.allclose(expected["mle"], torch.zeros(6).double(), atol=1e-12)
    assert expected["plain"].abs().min() > 1e-3


@pytest.mark.parametrize("told", [0.0, 1.0])
def test_the_losses_are_those_of_the_papers(told):
    epsilon, z = 0.8, normal(9)
    labels = RandomizedLabels.of_pairs(
        z.unsqueeze(-1), torch.full((9,), told), 1 / (math.exp(epsilon) + 1)
    )
    pi_JK, _ = link_of("btl")(z.unsqueeze(-1), labels.present_JW)
    keep = 1 / (1 + math.exp(-epsilon))  # σ(ε)
    s, one = torch.sigmoid(z), torch.ones(9).double()
    # L eq. 4 and 5.
    score = {1.0: s**keep / (1 - s) ** (1 - keep), 0.0: (1 - s) ** keep / s ** (1 - keep)}[told]
    ours = labels.contrast_J * LOSSES["debiased"].value(labels, pi_JK)
    assert torch.allclose(ours, -torch.log(score), rtol=1e-10)
    # L eq. 3.
    likely = s * keep + (1 - s) * (1 - keep)
    likely = likely if told else one - likely
    assert torch.allclose(LOSSES["mle"].value(labels, pi_JK), -torch.log(likely), rtol=1e-10)
    # S eq. 6.
    c = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    paper = (2 * s - 1 - c * (2 * told - 1)) ** 2
    assert torch.allclose(4 * LOSSES["square"].value(labels, pi_JK), paper, rtol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
def test_minima_against_a_reference(loss):
    _, _, labels = pairs(400, 2.0)
    found = fit(labels, loss, ball=3.0)
    assert found.converged

    def value(theta):
        pi_JK, _ = link_of("btl")(labels.logits(torch.from_numpy(theta)), labels.present_JW)
        return float(LOSSES[loss].value(labels, pi_JK).sum())

    reference = optimize.minimize(
        value,
        np.zeros(3),
        jac=lambda t: gradient(labels, torch.from_numpy(t), loss).numpy(),
        constraints={"type": "ineq", "fun": lambda t: 9.0 - t @ t, "jac": lambda t: -2 * t},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 300},
    )
    assert value(found.theta_D.numpy()) <= reference.fun + 1e-7


def test_many_problems_at_once_are_each_their_own():
    _, _, labels = pairs(200, 1.0, problems=3)
    together = fit(labels, ball=4.0)
    for problem in range(3):
        alone = fit(
            RandomizedLabels.of_pairs(
                labels.x_JWD[problem, :, 0], labels.stated_JK[problem, :, 0], labels.flip_J[problem]
            ),
            ball=4.0,
        )
        assert torch.allclose(together.theta_D[problem], alone.theta_D, atol=1e-6)


@pytest.mark.parametrize("loss", ["debiased", "mle", "square"])
def test_the_truth_is_found_and_the_plain_loss_misses_it(loss):
    truth_D, _, labels = pairs(40_000, 1.0, seed=20)
    assert (fit(labels, loss, ball=8.0).theta_D - truth_D).norm() < 0.15
    plain_D = fit(labels, "plain", ball=8.0).theta_D
    assert plain_D.norm() < 0.6 * truth_D.norm()


def test_choices_among_several():
    truth_D, x_JWD = normal(3, seed=2), normal(20_000, 3, 3, seed=3)
    clean = RandomizedLabels.of_choices(x_JWD, torch.zeros(20_000, dtype=torch.int64), 0.0)
    pi_JK, _ = link_of("plackett-luce")(clean.logits(truth_D), clean.present_JW)
    best_J = torch.multinomial(pi_JK, 1, generator=generator(4)).squeeze(-1)
    channel = RandomizedResponse(1.5, 4)
    words = np.random.default_rng(5).integers(0, 2**64, 20_000, dtype=np.uint64)
    told_J = torch.from_numpy(channel.answer(best_J.numpy(), words))
    labels = RandomizedLabels.of_choices(x_JWD, told_J, channel.flip_probability)
    for loss in ("debiased", "mle", "square"):
        found = fit(labels, loss, ball=8.0)
        assert found.converged and (found.theta_D - truth_D).norm() < 0.15


def test_without_a_bound_the_debiased_loss_falls_for_ever():
    """A de-biased label that no probability can reach; the ball or a ridge ends the fall."""
    labels = RandomizedLabels.of_pairs(torch.ones(1, 1), torch.ones(1), 0.4)
    far = []
    for z in (10.0, 100.0, 500.0):
        pi_JK, _ = link_of("btl")(torch.full((1, 1), z).double(), labels.present_JW)
        far.append(LOSSES["debiased"].value(labels, pi_JK))
    assert far[0] > far[1] > far[2] and far[2] < -500
    found = fit(labels, ball=7.0)
    assert found.on_sphere and found.theta_D.item() == pytest.approx(7.0)
    ridged = fit(labels, ball=math.inf, ridge=0.5)
    assert ridged.converged and not ridged.on_sphere
    # σ(θ) − q + θ/2 = 0 with q = 3
    theta = ridged.theta_D.item()
    assert 1 / (1 + math.exp(-theta)) + theta / 2 == pytest.approx(3.0, abs=1e-6)


def test_a_linear_term_is_added():
    _, clean, _ = pairs(500, 2.0)
    tilt_D = torch.tensor([5.0, -3.0, 1.0]).double()
    found = fit(clean, "plain", ball=50.0, tilt_D=tilt_D)
    assert torch.allclose(gradient(clean, found.theta_D, "plain"), -tilt_D, atol=1e-4)
