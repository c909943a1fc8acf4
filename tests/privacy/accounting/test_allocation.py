"""Tests of `murmuration.privacy.accounting.allocation`: against integrals, draws and faults."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from murmuration.privacy.accounting import accountant, events, recompute
from murmuration.privacy.accounting.allocation import AllocatedGaussian, AllocatedLater
from murmuration.privacy.accounting.composition import composition
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.events import Event, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency, Unsupported

INTERVAL = 1e-4
ADD_REMOVE = Adjacency.ADD_REMOVE


def divergence(loss: DiscretePMF, epsilon: float) -> float:
    above = np.maximum(0.0, -np.expm1(epsilon - loss.index_N * INTERVAL))
    return loss.infinite + float(loss.mass_N @ above)


def two_rounds(sigma: float, epsilon: float, *, removed: bool) -> float:
    """H of a block of two rounds by an integral over the first noise, the second in closed form."""
    c = 1.0 / sigma

    def inner(y: float) -> float:
        first = math.exp(c * y - c**2 / 2.0)
        # E (± (S − α'))₊ over the second, X lognormal: S − α' = (X − k)/2.
        level = math.exp(epsilon) if removed else math.exp(-epsilon)
        k = 2.0 * level - first
        if k <= 0.0:
            mean = (1.0 - k) / 2.0 if removed else 0.0
        else:
            at = (math.log(k) + c**2 / 2.0) / c
            mean = stats.norm.sf(at - c) - k * stats.norm.sf(at)
            mean = (mean if removed else k * stats.norm.cdf(at) - stats.norm.cdf(at - c)) / 2.0
        return stats.norm.pdf(y) * (mean if removed else math.exp(epsilon) * mean)

    return integrate.quad(inner, -12.0, 12.0 + c, limit=500, epsabs=1e-14, epsrel=1e-10)[0]


@pytest.mark.parametrize("sigma", [0.6, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.6])
def test_two_rounds_are_what_an_integral_says(sigma: float, epsilon: float) -> None:
    removed, added = AllocatedGaussian(2, sigma).loss(ADD_REMOVE, INTERVAL)
    for loss, way in ((removed, True), (added, False)):
        exact = two_rounds(sigma, epsilon, removed=way)
        assert exact - 1e-14 <= divergence(loss, epsilon) <= exact * 1.01 + 1e-9


@pytest.mark.parametrize(("rounds", "sigma"), [(3, 0.8), (7, 1.5), (40, 0.7)])
def test_blocks_are_what_draws_say(rounds: int, sigma: float) -> None:
    c, draws = 1.0 / sigma, 400_000
    y = np.random.default_rng(0).standard_normal((draws, rounds))
    loss_off = np.log(np.exp(c * y - c**2 / 2.0).mean(axis=1))
    y[:, 0] += c
    loss_on = np.log(np.exp(c * y - c**2 / 2.0).mean(axis=1))
    removed, added = AllocatedGaussian(rounds, sigma).loss(ADD_REMOVE, INTERVAL)
    for loss, drawn in ((removed, loss_on), (added, -loss_off)):
        for epsilon in (0.0, 0.1, 0.3):
            each = np.maximum(0.0, -np.expm1(epsilon - drawn))
            error = 5.0 * each.std() / math.sqrt(draws)
            assert each.mean() - error <= divergence(loss, epsilon) <= each.mean() + error + 1e-5


@pytest.mark.parametrize("sigma", [0.5, 2.0, 50.0])
def test_a_block_of_one_round_is_a_gaussian(sigma: float) -> None:
    terms = {"adjacency": ADD_REMOVE, "delta": 1e-5}
    ours = accountant.epsilon([(AllocatedGaussian(1, sigma), 3)], **terms)
    exact = accountant.epsilon([(PoissonGaussian(1.0, sigma), 3)], **terms)
    assert exact - 1e-6 <= ours <= exact * 1.001 + 1e-4


@pytest.mark.parametrize(
    ("rounds", "times", "share"),
    [(5, 20, 0.116), (5, 50, 0.067), (10, 100, 0.067), (5, 200, 0.019)],
)
def test_less_noise_than_poisson_by_what_is_known(rounds: int, times: int, share: float) -> None:
    terms = {"delta": 1e-5, "adjacency": ADD_REMOVE}
    poisson = accountant.noise_multiplier_for(3.0, probability=1 / rounds, rounds=times, **terms)
    charges = {AllocatedGaussian(rounds, poisson * (1.0 - share)): times // rounds}
    assert accountant.epsilon(charges.items(), **terms) <= 3.0


def test_masses_are_a_pair_of_distributions() -> None:
    for rounds, sigma in itertools.product((2, 33), (0.7, 3.0, 1000.0)):
        removed, added = AllocatedGaussian(rounds, sigma).loss(ADD_REMOVE, INTERVAL)
        for loss in (removed, added):
            assert 1.0 <= loss.mass_N.sum() + loss.infinite <= 1.0 + 1e-8
            assert loss.mass_N @ np.exp(-loss.index_N * INTERVAL) <= 1.0 + 1e-8


@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE, Adjacency.REPLACE_LABELS])
def test_nothing_is_said_of_users_who_are_replaced(adjacency: Adjacency) -> None:
    with pytest.raises(Unsupported, match="add-remove or zero-out"):
        AllocatedGaussian(5, 1.0).loss(adjacency, INTERVAL)


@pytest.mark.parametrize("kind", [AllocatedGaussian, AllocatedLater])
@pytest.mark.parametrize("fields", [(0, 1.0), (2.0, 1.0), (10_001, 1.0), (2, 0.0), (2, math.inf)])
def test_parameters_out_of_range(kind: Callable[..., Event], fields: tuple) -> None:
    with pytest.raises(ValueError, match=r"block has|noise multiplier"):
        kind(*fields)


BLOCK, LATER = AllocatedGaussian(3, 2.0), AllocatedLater(3, 2.0)


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        ([], "without the first"),
        ([(AllocatedGaussian(3, 9.0), 1)], "without the first"),
        ([(BLOCK, 2)], "without the first"),
        ([(BLOCK, 1), (LATER, 2)], "second time"),
        ([(BLOCK, 1), (BLOCK, 2)], "without the first"),
    ],
)
def test_a_ledger_takes_no_round_that_was_not_paid(
    tmp_path: Path, before: list[tuple[Event, int]], refused: str
) -> None:
    with Ledger(tmp_path / "ledger.jsonl", adjacency=ADD_REMOVE, delta=1e-5, budget=None) as ledger:
        for event, round_ in before:
            ledger.charge(event, round_=round_, covers="sum")
        with pytest.raises(ValueError, match=refused):
            ledger.charge(LATER, round_=2, covers="sum")
        assert len(ledger.charges) == len(before)


def test_a_ledger_takes_the_rounds_of_a_block(tmp_path: Path) -> None:
    charged = [(BLOCK, 1), (LATER, 2), (BLOCK, 3), (LATER, 4), (LATER, 5), (BLOCK, 6)]
    with Ledger(tmp_path / "ledger.jsonl", adjacency=ADD_REMOVE, delta=1e-5, budget=None) as ledger:
        for event, round_ in charged:
            ledger.charge(event, round_=round_, covers="sum")
        with pytest.raises(ValueError, match="without the first"):
            ledger.charge(LATER, round_=9, covers="sum")
        blocks = accountant.epsilon([(BLOCK, 3)], adjacency=ADD_REMOVE, delta=1e-5)
        assert ledger.epsilon() == pytest.approx(blocks, abs=2e-4)


def test_what_others_are_given_to_recompute_names_rounds_that_nothing_paid() -> None:
    def stated(later: int) -> list:
        return [(events.to_json(BLOCK), 2), (events.to_json(LATER), later)]

    assert events.from_json(events.to_json(LATER)) == LATER
    assert recompute.unpaid(stated(4)) == 0
    assert recompute.unpaid(stated(5)) == 1
    assert len(recompute.by_our_rules(stated(4))) == 2


def test_blocks_compose_with_other_releases() -> None:
    both = composition([(BLOCK, 2), (PoissonGaussian(1.0, 5.0), 1)], adjacency=ADD_REMOVE)
    alone = composition([(BLOCK, 2)], adjacency=ADD_REMOVE)
    assert both and alone
    assert both.epsilon(1e-5) > alone.epsilon(1e-5)
