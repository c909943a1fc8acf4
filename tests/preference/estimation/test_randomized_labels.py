"""Labels behind randomized response: unbiased labels, contrasts, links."""

import math

import pytest
import torch

from murmuration.preference.estimation.randomized_labels import (
    RandomizedLabels,
    link_of,
    logistic,
    of_pairs,
)
from murmuration.preference.linear.likelihoods import Gaussian
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse


def choices(
    options: int, epsilon: float, padding: int = 0
) -> tuple[RandomizedLabels, torch.Tensor]:
    """One judgement for each response that can be stated, and the channel's matrix."""
    channel = RandomizedResponse(epsilon, options)
    x_JWD = torch.randn(
        options, options - 1 + padding, 3, generator=torch.Generator().manual_seed(1)
    )
    labels = RandomizedLabels.of_choices(
        x_JWD.double(),
        torch.arange(options),
        channel.flip_probability,
        torch.full((options,), options),
    )
    return labels, torch.from_numpy(channel.matrix())


@pytest.mark.parametrize("options", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0])
@pytest.mark.parametrize("padding", [0, 2])
def test_the_expected_label_is_the_true_one(options, epsilon, padding):
    labels, told_truth = choices(options, epsilon, padding)
    expected = told_truth @ labels.unbiased_JK  # row: the truth
    wanted = torch.nn.functional.pad(torch.eye(options).double(), (0, padding))
    assert torch.allclose(expected, wanted, atol=1e-12)
    assert torch.allclose(labels.unbiased_JK.sum(-1), torch.ones(options).double())


def test_contrast_of_pairs_is_one_over_c():
    flip = RandomizedResponse(0.7).flip_probability
    labels = RandomizedLabels.of_pairs(torch.zeros(1, 2), torch.ones(1), flip)
    c = (math.exp(0.7) + 1) / (math.exp(0.7) - 1)
    assert labels.contrast_J.item() == pytest.approx(1 / c, rel=1e-12)
    assert labels.unbiased_JK[0, 0].item() == pytest.approx(0.5 + c / 2, rel=1e-12)


def test_clean_labels_are_left_as_they_are():
    labels = RandomizedLabels.of_pairs(torch.zeros(3, 2), torch.tensor([1.0, 0.0, 0.5]), 0.0)
    assert torch.equal(labels.unbiased_JK, labels.stated_JK)
    assert (labels.weighted_by_information().weight_J == 1).all()


def test_information_is_one_over_the_variance_of_a_label():
    for options in (2, 4):
        labels, told_truth = choices(options, 0.8)
        share = told_truth.mean(0)  # every response is the true one as often
        variance = (share @ labels.unbiased_JK**2) - (share @ labels.unbiased_JK) ** 2
        clean = (1 / options) * (1 - 1 / options)
        assert torch.allclose(clean / variance, labels.weighted_by_information().weight_J[0])


def test_weights_and_heads():
    labels = RandomizedLabels.of_pairs(
        torch.randn(4, 2), torch.ones(4), torch.tensor([0.0, 0.1, 0.25, 0.4])
    )
    assert torch.allclose(labels.weighted_by_information().weight_J, (1 - 2 * labels.flip_J) ** 2)
    assert torch.allclose(labels.contrast_J, 1 - 2 * labels.flip_J)
    head = labels.weighted_by_information().head(2)
    assert len(labels) == 4 and len(head) == 2 and head.dimension == 2
    assert head.weight_J.tolist() == pytest.approx([1.0, 0.64])


@pytest.mark.parametrize("flip", [-0.1, 0.5, 0.9, math.nan])
def test_labels_that_say_nothing_are_refused(flip):
    with pytest.raises(ValueError, match="below 1/2"):
        RandomizedLabels.of_pairs(torch.zeros(2, 2), torch.ones(2), flip)


def test_what_does_not_fit_is_refused():
    x_JWD = torch.zeros(2, 2, 3).double()
    with pytest.raises(ValueError, match="not among those that were shown"):
        RandomizedLabels.of_choices(x_JWD, torch.tensor([0, 2]), 0.1, torch.tensor([3, 2]))
    with pytest.raises(ValueError, match="finite"):
        RandomizedLabels.of_choices(x_JWD * math.nan, torch.tensor([0, 0]), 0.1)
    good = RandomizedLabels.of_choices(x_JWD, torch.tensor([0, 1]), 0.1)
    with pytest.raises(ValueError, match="one more response than rows"):
        RandomizedLabels(x_JWD, good.stated_JK[:, :2], good.flip_J, good.options_J, good.weight_J)
    with pytest.raises(ValueError, match="weight_J must have shape"):
        RandomizedLabels(x_JWD, good.stated_JK, good.flip_J, good.options_J, good.weight_J[:1])


@pytest.mark.parametrize(("name", "width"), [("btl", 1), ("plackett-luce", 3), ("thurstone", 1)])
def test_links_give_probabilities_and_their_derivatives(name, width):
    logits_JW = torch.randn(5, width, generator=torch.Generator().manual_seed(2)).double() * 3
    present_JW = torch.ones(5, width, dtype=torch.bool)
    if width > 1:
        present_JW[0, 1:] = False
    pi_JK, slopes_JKW = link_of(name)(logits_JW, present_JW)
    assert torch.allclose(pi_JK.sum(-1), torch.ones(5).double())
    assert (pi_JK[:, 1:][~present_JW] == 0).all()
    step = 1e-6
    for w in range(width):
        moved = logits_JW.clone()
        moved[:, w] += step
        difference = (link_of(name)(moved, present_JW)[0] - pi_JK) / step
        here = present_JW[:, w]
        assert torch.allclose(difference[here], slopes_JKW[here, :, w], atol=1e-5)


def test_two_responses_are_bradley_terry_luce():
    logits_J1 = torch.tensor([[-2.0], [0.0], [50.0], [-50.0]]).double()
    pi_JK, _ = logistic(logits_J1, torch.ones(4, 1, dtype=torch.bool))
    assert torch.allclose(pi_JK[:, 0], torch.sigmoid(logits_J1[:, 0]), rtol=1e-12, atol=0)


def test_models_of_pairs_refuse_more():
    with pytest.raises(ValueError, match="plackett-luce"):
        of_pairs(Gaussian())(torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool))
