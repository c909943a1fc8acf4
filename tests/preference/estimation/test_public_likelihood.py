"""The likelihood without labels: derivatives, identities, and minima against the plain ones."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.estimation import public_likelihood
from murmuration.preference.estimation.public_likelihood import (
    PublicLikelihood,
    averaged,
    label_linear_model,
    minimise,
)
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.models import ABSENT


def random_examples(width=1, users=12, dimension=4, seed=0):
    """Examples in float64, the best of width + 1 with some missing; labels at random."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(1, 6, (users,), generator=generator)
    start_U = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    judgements = int(start_U[-1])
    x_RD = torch.randn(judgements * width, dimension, generator=generator, dtype=torch.float64)
    y_JW = torch.ones(judgements, width, dtype=torch.float64)
    if width > 1:
        gone = torch.rand(judgements, width, generator=generator) < 0.2
        gone[:, 0] = False
        y_JW[gone] = ABSENT
        x_RD[gone.reshape(-1)] = 0.0
    else:
        y_JW = (torch.rand(judgements, 1, generator=generator) < 0.6).double()
    kind = "pairs" if width == 1 else "top-1"
    return PairExamples(x_RD, y_JW.reshape(-1), start_U, width, kind=kind)


def made(width=1, **more):
    examples = random_examples(width, **more)
    weight_U = torch.linspace(0.5, 2.0, len(examples.counts_U), dtype=torch.float64)
    name = "btl" if width == 1 else "plackett-luce"
    return PublicLikelihood(examples, label_linear_model(name, examples), weight_U)


@pytest.mark.parametrize("width", [1, 3])
def test_derivatives(width):
    loss, theta_D = made(width), torch.linspace(-1.0, 1.0, 4, dtype=torch.float64)
    step = 1e-5
    for direction in torch.eye(4, dtype=torch.float64):
        up, down = theta_D + step * direction, theta_D - step * direction
        slope = (loss.value(up) - loss.value(down)) / (2 * step)
        assert float(loss.gradient(theta_D) @ direction) == pytest.approx(slope, abs=1e-8)
        bend_D = (loss.gradient(up) - loss.gradient(down)) / (2 * step)
        np.testing.assert_allclose(loss.hessian(theta_D)(direction), bend_D, atol=1e-8)


@pytest.mark.parametrize("width", [1, 3])
def test_axes_are_those_of_the_curvature_at_zero(width):
    loss = made(width)
    values_D, axes_DD = loss.axes
    matrix = (axes_DD * values_D) @ axes_DD.T
    zero_D = torch.zeros(4, dtype=torch.float64)
    found = torch.stack([loss.hessian(zero_D)(e) for e in torch.eye(4, dtype=torch.float64)])
    np.testing.assert_allclose(matrix, found, atol=1e-10)
    again = loss.reweighted(torch.ones(len(loss.examples.counts_U)))
    assert torch.equal(again.axes[0], values_D)


@pytest.mark.parametrize("width", [1, 3])
def test_lengths_are_those_of_drawn_labels(width):
    """Root mean square over labels from the model: every answer to every judgement, enumerated."""
    loss = made(width, users=5)
    theta_D = torch.linspace(-0.5, 1.0, 4, dtype=torch.float64)
    p_JW, examples = loss.others(theta_D), loss.examples
    x_JWD = examples.x_RD.view(*p_JW.shape, 4)
    expected = []
    for first, last in itertools.pairwise(examples.start_U.tolist()):
        total = 0.0
        for judgement in range(first, last):
            p_W, x_WD = p_JW[judgement], x_JWD[judgement]
            answers = [(1.0 - float(p_W.sum()), torch.zeros(4, dtype=torch.float64))]
            answers += [(float(p), x_D) for p, x_D in zip(p_W, x_WD, strict=True)]
            mean_D = p_W @ x_WD
            total += sum(chance * float((x_D - mean_D).square().sum()) for chance, x_D in answers)
        expected.append(math.sqrt(total) / (last - first))
    np.testing.assert_allclose(loss.spread_U(theta_D), expected, rtol=1e-9)


def with_labels(examples, theta_D):
    """Gradient of the mean log loss with the true labels, summed over users."""
    x, y = examples.x_RD.numpy(), examples.y_R.numpy()
    counts = np.repeat(examples.counts_U.numpy(), examples.counts_U.numpy())
    return ((1 / (1 + np.exp(-x @ theta_D)) - y) / counts) @ x


def test_labels_are_a_linear_term():
    """Public likelihood plus ⟨c, θ⟩, c from one gradient with labels, has the labels' minimum."""
    examples = random_examples(users=60)
    loss = PublicLikelihood(examples, label_linear_model("btl", examples))
    at_D = torch.linspace(-0.3, 0.4, 4, dtype=torch.float64)
    linear_D = torch.from_numpy(with_labels(examples, at_D.numpy())) - loss.gradient(at_D)
    found = minimise(loss, linear_D, ridge=0.1, tolerance=1e-10)
    assert found.residual <= 1e-10
    gradient_D = with_labels(examples, found.theta_D.numpy()) + 0.1 * found.theta_D.numpy()
    np.testing.assert_allclose(gradient_D, 0.0, atol=1e-9)


def test_noise_far_beyond_the_data_is_solved_for():
    loss = made()
    linear_D = torch.full((4,), 1e6, dtype=torch.float64)
    found = minimise(loss, linear_D, ridge=1.0, tolerance=1e-3)
    assert torch.isfinite(found.theta_D).all()
    assert found.residual <= 1e-3


def test_float32_features_come_close():
    exact = made(users=40)
    examples = exact.examples
    rough = replace(examples, x_RD=examples.x_RD.float(), y_R=examples.y_R.float())
    loss = PublicLikelihood(rough, label_linear_model("btl", rough), exact.weight_U)
    linear_D = torch.tensor([0.5, -0.3, 0.8, 0.1], dtype=torch.float64)
    first, other = (minimise(part, linear_D, ridge=0.2).theta_D for part in (exact, loss))
    np.testing.assert_allclose(first, other, atol=1e-5)


def test_users_with_nothing_to_say():
    examples = replace(random_examples(), x_RD=torch.zeros_like(random_examples().x_RD))
    loss = PublicLikelihood(examples, label_linear_model("btl", examples))
    assert not loss.spread_U(torch.zeros(4, dtype=torch.float64)).any()
    found = minimise(loss, torch.ones(4, dtype=torch.float64), ridge=2.0, tolerance=1e-9)
    np.testing.assert_allclose(found.theta_D, -0.5)


def test_refusals():
    examples = random_examples()
    with pytest.raises(InputError, match="--model thurstone"):
        label_linear_model("thurstone", examples)
    with pytest.raises(InputError, match="--kind ranking"):
        label_linear_model("plackett-luce", replace(random_examples(2), kind="ranking"))
    with pytest.raises(InputError, match="pairs"):
        label_linear_model("btl", random_examples(2))
    for ridge in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="no minimum"):
            minimise(made(), torch.ones(4, dtype=torch.float64), ridge=ridge)


# Users' averaged rows, against a loop.


@pytest.mark.parametrize("chunk", [1, 40, 10_000])
@pytest.mark.parametrize("width", [1, 3])
def test_averages_of_each_user_whatever_the_chunks(make_examples, monkeypatch, chunk, width):
    monkeypatch.setattr(public_likelihood, "CHUNK_NUMBERS", chunk)
    counts = [2, 1, 7, 3]
    flat = make_examples([count * width for count in counts])
    start_U = torch.tensor([0, 2, 3, 10, 13])
    examples = PairExamples(flat.x_RD, torch.ones(13 * width), start_U, width)
    kept = examples.x_RD.clone()
    slopes_JW = torch.randn(13, width, generator=torch.Generator().manual_seed(1))
    found = list(averaged(examples, slopes_JW))
    assert [part.start for part, _ in found] == [0, *(part.stop for part, _ in found[:-1])]
    rows_UD = torch.cat([rows for _, rows in found])
    assert rows_UD.dtype == torch.float64
    weighted = kept.double().numpy() * slopes_JW.double().reshape(-1, 1).numpy()
    edges = np.array([0, 2, 3, 10, 13]) * width
    for user, count in enumerate(counts):
        expected = weighted[edges[user] : edges[user + 1]].sum(axis=0) / count
        np.testing.assert_allclose(rows_UD[user].numpy(), expected, atol=1e-9)
    assert torch.equal(kept, examples.x_RD)


def test_arguments_in_float64_are_not_changed_either(make_examples):
    examples = make_examples([3, 4])
    examples = replace(examples, x_RD=examples.x_RD.double())
    kept = examples.x_RD.clone()
    list(averaged(examples, torch.full((7, 1), 2.0)))
    assert torch.equal(kept, examples.x_RD)


def test_nobody(make_examples):
    nobody = make_examples([2]).select(np.empty(0, dtype=np.int64))
    assert list(averaged(nobody, torch.ones(0, 1))) == []
