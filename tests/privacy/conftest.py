"""Checks of mechanisms, each of which takes what is tested as a callable.

Seeds are fixed, so an outcome never changes from run to run.

Legend: T rounds, N users, B users in a chunk, D dimensions.
"""

import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency

_SPEC = importlib.util.spec_from_file_location(
    "exact_sums", Path(__file__).with_name("mechanisms") / "exact_sums.py"
)
assert _SPEC is not None and _SPEC.loader is not None
exact_sums = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(exact_sums)

RARE = 1e-6  # an honest mechanism fails a check for about one seed in a million
FAR = 5.0  # the same for a standard normal score


def two_sided(statistic, freedom, name):
    """A chi-square statistic that is neither too large nor too small."""
    below = float(stats.chi2.cdf(statistic, freedom))
    above = float(stats.chi2.sf(statistic, freedom))
    assert min(below, above) > RARE, f"{name}: chi2 = {statistic:.1f} at {freedom} degrees"


def near_zero(score, name):
    assert abs(score) < FAR, f"{name}: score {score:.1f}"


def poisson_cohorts(draw, *, users, probability, rounds):
    """``draw(round)`` includes each user by an independent coin, every round anew."""
    z_TN = np.full((rounds, users), -probability)
    sizes_T = np.empty(rounds, dtype=int)
    for round_ in range(rounds):
        cohort = draw(round_)
        assert len(np.unique(cohort)) == len(cohort), "a user was drawn twice"
        z_TN[round_, cohort] += 1.0
        sizes_T[round_] = len(cohort)
    z_TN /= math.sqrt(probability * (1 - probability))
    users_N = z_TN.sum(axis=0) / math.sqrt(rounds)
    two_sided(float((users_N**2).sum()), users, "marginals")
    assert np.abs(users_N).max() < FAR, "one user's marginal"
    products = (z_TN.T @ z_TN / math.sqrt(rounds))[np.triu_indices(users, k=1)]
    near_zero(products.sum() / math.sqrt(len(products)), "mean pairwise covariance")
    near_zero(((products**2).mean() - 1) * math.sqrt(len(products) / 2), "pairwise independence")
    lagged = float((z_TN[1:] * z_TN[:-1]).sum()) / math.sqrt((rounds - 1) * users)
    near_zero(lagged, "independence of successive rounds")
    binomial_sizes(sizes_T, users, probability)


def binomial_sizes(sizes_T, users, probability):
    """Cohort sizes are Binomial(users, probability): chi-square over bins of about equal mass."""
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 13)[1:-1], users, probability))
    mass = np.diff(np.concatenate([[0.0], stats.binom.cdf(edges, users, probability), [1.0]]))
    seen = np.bincount(np.searchsorted(edges, sizes_T, side="left"), minlength=len(mass))
    two_sided(
        float(((seen - len(sizes_T) * mass) ** 2 / (len(sizes_T) * mass)).sum()),
        len(mass) - 1,
        "cohort sizes",
    )


def gaussian_noise(noise_D, std):
    """``noise_D`` looks like independent N(0, std²) in every coordinate: not more, not less."""
    z_D = noise_D / std
    two_sided(float((z_D**2).sum()), len(z_D), "noise scale")
    near_zero(z_D.sum() / math.sqrt(len(z_D)), "noise mean")
    near_zero((z_D[1:] * z_D[:-1]).sum() / math.sqrt(len(z_D) - 1), "neighbouring coordinates")
    assert stats.kstest(z_D, "norm").pvalue > RARE, "not a normal distribution"


def unrelated(a_D, b_D):
    """Two noise vectors have nothing in common."""
    cosine = float(a_D @ b_D) / float(np.linalg.norm(a_D) * np.linalg.norm(b_D))
    near_zero(cosine * math.sqrt(len(a_D)), "correlated noise")


def clips(clip_sum, norm):
    """Alone or among others, finite or not, no user's term is longer than ``norm``."""
    generator = torch.Generator().manual_seed(0)
    for dimensions in (1, 7, 10_000, 300_000):
        for scale in (1e-30, 1e-3, 1.0, 1e6, 1e30):
            row_D = torch.randn(dimensions, generator=generator) * scale
            _within(clip_sum(row_D[None]), norm, f"D = {dimensions}, scale {scale:g}")
        for value in (0.61, 0.77, 1.83):  # equal entries: rounding errors all go one way
            _within(clip_sum(torch.full((1, dimensions), value)), norm, f"constant, D {dimensions}")
    zero = clip_sum(torch.zeros(2, 5))
    assert zero.tolist() == [0.0] * 5, "users with nothing to say"
    others_BD = torch.randn(3, 5, generator=generator)
    alone_D = clip_sum(others_BD).double()
    for bad in (math.nan, math.inf, -math.inf):
        for where in (0, 1, 3):
            row_D = torch.ones(5)
            row_D[where] = bad
            grads_BD = torch.cat([others_BD[:where], row_D[None], others_BD[where:]])
            sum_D = clip_sum(grads_BD).double()
            assert torch.allclose(sum_D, alone_D, rtol=1e-6), f"a user with {bad} reached the sum"


def _within(sum_D, norm, name):
    length = float(torch.linalg.vector_norm(sum_D.double()))
    assert length <= norm, f"{name}: length {length!r} with a clip norm of {norm!r}"


def bounded_influence(aggregate, *, bound):
    """Taking any one user away moves ``aggregate(grads_BD, judgements of each)`` by ≤ bound."""
    generator = torch.Generator().manual_seed(1)
    ones_D = torch.ones(4)
    cases = [
        (torch.randn(6, 4, generator=generator) * 10, [1, 1, 1, 1, 1, 99]),
        (torch.stack([ones_D, ones_D, -ones_D]) * 10, [1, 1, 1]),
        (torch.stack([ones_D, torch.full((4,), math.nan)]), [1, 1]),
        (torch.stack([ones_D * 1e-3, -ones_D * 1e-3]), [3, 1]),
    ]
    for grads_BD, counts in cases:
        everyone_D = aggregate(grads_BD, counts).double()
        assert bool(torch.isfinite(everyone_D).all()), "not finite"
        for user in range(len(counts)):
            rest = [i for i in range(len(counts)) if i != user]
            rest_D = aggregate(grads_BD[rest], [counts[i] for i in rest]).double()
            moved = float(torch.linalg.vector_norm(everyone_D - rest_D))
            assert moved <= bound * (1 + 1e-9), f"one user moved the result by {moved / bound:.1f}C"


def charged_before_it_exists(release, folder):
    """``release(ledger, drawing)`` calls ``drawing`` to draw noise: the line is on disk by then.

    A crash at that moment must leave the charge behind.
    """
    path = folder / "ledger.jsonl"

    class Crash(BaseException):
        pass

    def drawing():
        assert path.read_bytes().count(b'"covers"') == 1, (
            "noise was drawn before the charge was written"
        )
        raise Crash

    with promise(path) as ledger, pytest.raises(Crash):
        release(ledger, drawing)
    with promise(path) as ledger:
        assert len(ledger.charges) == 1


def promise(path, **changes):
    """A ledger without a budget, unless changed."""
    terms = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5, "budget": None}
    return Ledger(path, **{**terms, **changes})


EVENT = PoissonGaussian(0.1, 4.0)

_CHECKS = SimpleNamespace(
    **{f.__name__: f for f in (
        two_sided, near_zero, poisson_cohorts, binomial_sizes,
        gaussian_noise, unrelated, clips, bounded_influence,
        exact_sums.dominates_exactly, exact_sums.survives_a_narrow_window,
        charged_before_it_exists, promise,
    )}
)  # fmt: skip


@pytest.fixture(scope="session")
def checks():
    """The functions above."""
    return _CHECKS
