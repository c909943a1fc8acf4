"""Constants of objective perturbation, and the two inequalities that they rest on."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from murmuration.research.strategies.objective_noise import FullObjective, LabelObjective


def test_label_constants():
    """3.73 lengths by the analytic Gaussian, 5.04 by Theorem 5.2 (with length = 2L)."""
    assert LabelObjective(1.0, 1e-5, 1.0).std == pytest.approx(3.7306, abs=1e-4)
    bound = 0.7  # L, of one response's features
    paper = bound * math.sqrt(8 * math.log(2 / 1e-5) + 4 * 1.0) / 1.0
    assert LabelObjective(1.0, 1e-5, 2 * bound, "paper").std == pytest.approx(paper)
    assert LabelObjective(1.0, 1e-5, 1.0, "paper").std == pytest.approx(5.041, abs=1e-3)


def test_full_constants_of_the_paper():
    bound, epsilon, delta = 0.7, 1.0, 1e-5
    found = FullObjective(epsilon, delta, 2 * bound, calibration="paper")
    kept, left = 0.99 * epsilon, 0.99 * delta  # the rest is for the approximate minimiser
    assert found.std == pytest.approx(
        4 * bound * math.sqrt(8 * math.log(4 / left) + 2 * kept) / kept
    )
    assert found.ridge == pytest.approx(4 * bound**2 / kept)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
@pytest.mark.parametrize("cap", [1, 16, 1000])
def test_full_constants_spend_the_whole_budget_and_no_more(epsilon, cap):
    delta, length = 1e-6, 1.7
    found = FullObjective(epsilon, delta, length, cap)
    z = norm.isf(0.99 * delta / (2 * cap))
    jacobians = length**2 / (4 * found.ridge)
    gaussians = 2 * z * length / found.std + 2 * (length / found.std) ** 2
    assert jacobians + gaussians == pytest.approx(0.99 * epsilon)


def test_ours_is_half_the_papers_at_one_judgement_a_user():
    ours, paper = (FullObjective(1.0, 1e-5, 1.0, calibration=c).std for c in ("analytic", "paper"))
    assert 0.45 < ours / paper < 0.52


def worst_jacobian_ratio(generator, rows, dimension, length, ridge):
    """ln det(A + H) / det(A + H′) for users with so many rows, at logits of zero."""

    def hessian():
        x = generator.standard_normal((rows, dimension))
        x *= length / np.linalg.norm(x, axis=1, keepdims=True)
        return x.T @ x / rows / 4

    others = sum(hessian() for _ in range(generator.integers(0, 4))) + ridge * np.eye(dimension)
    above, below = (np.linalg.slogdet(others + hessian())[1] for _ in range(2))
    return above - below


def test_jacobians_do_not_depend_on_the_rank():
    generator, length, ridge = np.random.default_rng(0), 2.0, 0.8
    found = [
        worst_jacobian_ratio(generator, rows, 6, length, ridge)
        for rows in (1, 2, 5, 40)
        for _ in range(200)
    ]
    assert max(found) <= length**2 / (4 * ridge)
    # Attained in the limit of a strong ridge: one row against nothing.
    x = np.array([[length, 0.0]])
    alone = math.log(np.linalg.det(1e3 * np.eye(2) + x.T @ x / 4) / 1e6)
    assert alone == pytest.approx(length**2 / 4e3, rel=1e-3)


@pytest.mark.parametrize("y", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_rows_beyond_z_are_as_rare_as_promised_for_any_label(y):
    """max of −r·(w·x) over r in [−y, 1 − y] exceeds z with probability at most Q(z)."""
    for z in (1.0, 2.0, 4.4):
        up = norm.sf(z / (1 - y)) if y < 1 else 0.0
        down = norm.sf(z / y) if y > 0 else 0.0
        assert up + down <= norm.sf(z) * (1 + 1e-12)


def test_the_gaussian_part_covers_the_loss_of_the_worst_user():
    """Simulated: a user with gradient as far along the noise as rows allow, replaced by another."""
    generator, cap, length, delta = np.random.default_rng(1), 3, 1.0, 0.02
    plan = FullObjective(1.0, delta, length, cap)
    x_2KD = generator.standard_normal((2, cap, 4))
    x_2KD *= length / np.linalg.norm(x_2KD, axis=2, keepdims=True)
    noise = plan.std * generator.standard_normal((20_000, 4))
    along = noise @ x_2KD.reshape(-1, 4).T  # (draws, 2·cap)
    # The residuals that hurt most: −1 to 0 for the old user, 0 to 1 for the new.
    worst = np.maximum(along.reshape(-1, 2, cap), 0.0).mean(axis=2).sum(axis=1)
    loss = worst / plan.std**2 + 2 * (length / plan.std) ** 2
    allowed = 0.99 - length**2 / (4 * plan.ridge)
    assert (loss > allowed + 1e-12).mean() <= delta


def test_output_noise_is_that_of_a_gaussian_for_the_difference():
    plan = FullObjective(1.0, 1e-5, 1.0, tolerance=1e-4)
    apart = 2 * 1e-4 / plan.ridge
    z = plan.output_std / apart
    first = norm.cdf(0.5 / z - 0.01 * z) - math.exp(0.01) * norm.cdf(-0.5 / z - 0.01 * z)
    assert first <= 1e-7 * (1 + 1e-6)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (LabelObjective, {"epsilon": 0.0}, "epsilon must be"),
        (LabelObjective, {"length": math.inf}, "bound on rows"),
        (LabelObjective, {"delta": 0.0}, "delta must be"),
        (LabelObjective, {"calibration": "guess"}, "analytic or paper"),
        (FullObjective, {"cap": 0}, "at least 1"),
        (FullObjective, {"cap": 2, "calibration": "paper"}, "one judgement a user"),
        (FullObjective, {"tolerance": 0.0}, "tolerance"),
        (FullObjective, {"delta": 0.59}, "delta must be at most 0.29 for each of the 2"),
    ],
)
def test_impossible_plans(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(**{"epsilon": 1.0, "delta": 1e-5, "length": 1.0, **changes})


@pytest.mark.parametrize(("delta", "cap"), [(0.58, 1), (0.9, 2), (1e-5, 3)])
def test_a_tie_is_beyond_the_bound_no_oftener_than_another_row(delta, cap):
    FullObjective(1.0, delta, 1.0, cap)
    z = norm.isf(delta / (2 * cap))
    assert 2 * norm.sf(2 * z) <= norm.sf(z)
