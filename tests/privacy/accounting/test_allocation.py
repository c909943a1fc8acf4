"""Tests of `murmuration.privacy.accounting.allocation`: against integrals, draws and faults."""

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from murmuration.privacy.accounting import accountant, events, recompute
from murmuration.privacy.accounting.allocation import (
    AllocatedGaussian,
    AllocatedLater,
    blocks_of,
)
from murmuration.privacy.accounting.composition import composition
from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.events import Event, ParallelEvent, PoissonGaussian
from murmuration.privacy.accounting.grid_noise import DiscretizedGaussian
from murmuration.privacy.accounting.ledger import Ledger, LedgerLoss
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


@pytest.mark.parametrize(("rounds", "released", "sigma"), [(3, 2, 0.8), (7, 3, 1.5), (40, 9, 0.7)])
def test_blocks_that_are_broken_off_are_what_draws_say(
    rounds: int, released: int, sigma: float
) -> None:
    c, draws = 1.0 / sigma, 400_000
    y = np.random.default_rng(1).standard_normal((draws, released))

    def ratio(y: np.ndarray) -> np.ndarray:
        return (np.exp(c * y - c**2 / 2.0).sum(axis=1) + rounds - released) / rounds

    loss_off = np.log(ratio(y))
    here = np.random.default_rng(2).random(draws) < released / rounds
    y[here, 0] += c
    loss_on = np.log(ratio(y))
    removed, added = AllocatedGaussian(rounds, sigma, released).loss(ADD_REMOVE, INTERVAL)
    for loss, drawn in ((removed, loss_on), (added, -loss_off)):
        for epsilon in (0.0, 0.1, 0.2):
            each = np.maximum(0.0, -np.expm1(epsilon - drawn))
            error = 5.0 * each.std() / math.sqrt(draws)
            assert each.mean() - error <= divergence(loss, epsilon) <= each.mean() + error + 1e-5


@pytest.mark.parametrize(("rounds", "sigma"), [(2, 0.7), (5, 1.5), (50, 0.6)])
def test_a_single_round_of_a_block_is_a_poisson_sampled_gaussian(rounds: int, sigma: float) -> None:
    """From another accountant: who is in one round with probability 1/b is Poisson-sampled."""
    terms = {"adjacency": ADD_REMOVE, "delta": 1e-5}
    for times in (1, 10):
        ours = accountant.epsilon([(AllocatedGaussian(rounds, sigma, 1), times)], **terms)
        exact = accountant.epsilon([(PoissonGaussian(1.0 / rounds, sigma), times)], **terms)
        assert exact - 1e-6 <= ours <= exact * 1.001 + 2e-4


#: Rounds, noise, blocks, and lower and upper bounds on ε at δ = 1e-5 by PLD_accounting 2.0 (PyPI):
#: ``gaussian_allocation_epsilon_configurable`` with ``AllocationSchemeConfig(
#: loss_discretization=0.01, convolution_method=ConvolutionMethod.GEOM)``; of the last 0.003.
BY_PLD_ACCOUNTING = [
    (5, 1.43, 4, 3.000111168523686, 3.006970104365924),
    (5, 0.8, 4, 7.839629258988242, 7.844711619703277),
    (10, 1.56, 10, 2.9820589934372506, 2.9896884807009636),
    (3, 2.0, 2, 1.713226132207379, 1.7152561464730027),
]


@pytest.mark.parametrize(("rounds", "sigma", "blocks", "least", "most"), BY_PLD_ACCOUNTING)
def test_another_library_agrees(
    rounds: int, sigma: float, blocks: int, least: float, most: float
) -> None:
    charges = [(AllocatedGaussian(rounds, sigma), blocks)]
    assert least <= accountant.epsilon(charges, adjacency=ADD_REMOVE, delta=1e-5) <= most
    charges = [(AllocatedGaussian(rounds, sigma * 1.005), blocks)]  # far enough to be seen
    assert accountant.epsilon(charges, adjacency=ADD_REMOVE, delta=1e-5) < least


def test_less_of_a_block_costs_less_and_always_less_than_coins() -> None:
    terms = {"adjacency": ADD_REMOVE, "delta": 1e-5}
    costs = [accountant.epsilon([(AllocatedGaussian(6, 1.0, r), 1)], **terms) for r in range(6)]
    whole, *parts = costs
    assert parts == sorted(parts)
    assert parts[-1] < whole
    for rounds, cost in enumerate(parts[1:], start=2):
        assert cost < accountant.epsilon([(PoissonGaussian(1 / 6, 1.0), rounds)], **terms)


def test_rounds_as_blocks() -> None:
    assert blocks_of(5, 2.0, 15) == {AllocatedGaussian(5, 2.0): 3}
    assert blocks_of(5, 2.0, 12) == {AllocatedGaussian(5, 2.0): 2, AllocatedGaussian(5, 2.0, 2): 1}
    assert blocks_of(5, 2.0, 3) == {AllocatedGaussian(5, 2.0, 3): 1}
    assert AllocatedGaussian(5, 2.0) == AllocatedGaussian(5, 2.0, 5)


@pytest.mark.parametrize("released", [-1, 6, 2.0, True])
def test_a_part_of_a_block_is_a_part(released: int) -> None:
    with pytest.raises(ValueError, match="1 to all are run"):
        AllocatedGaussian(5, 1.0, released)


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
        ([(AllocatedGaussian(3, 2.0, 1), 1)], "without the first"),
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


def test_a_block_with_noise_on_a_grid_pays_for_its_later_rounds(tmp_path: Path) -> None:
    """One about a part of the users pays for nothing."""
    first, of_part = DiscretizedGaussian(BLOCK, 7, 28), ParallelEvent(0, BLOCK)
    with Ledger(tmp_path / "ledger.jsonl", adjacency=ADD_REMOVE, delta=1e-5, budget=None) as ledger:
        ledger.charge(first, round_=1, covers="sum")
        ledger.charge(LATER, round_=2, covers="sum")
        ledger.charge(of_part, round_=4, covers="sum")
        with pytest.raises(ValueError, match="without the first"):
            ledger.charge(LATER, round_=5, covers="sum")
        with pytest.raises(ValueError, match="everybody"):
            ledger.charge(ParallelEvent(0, LATER), round_=3, covers="sum")
    assert LATER.latest_block([(first, 1), (LATER, 2), (of_part, 4)]) == (1, {3})
    assert LATER.latest_block([(AllocatedGaussian(3, 2.5), 1)]) == (0, set())


@pytest.mark.parametrize("change", ["removed", "edited", "reordered", "repeated"])
def test_a_ledger_of_blocks_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, adjacency=ADD_REMOVE, delta=1e-5, budget=None) as ledger:
        for event, round_ in [(BLOCK, 1), (LATER, 2), (LATER, 3), (BLOCK, 4), (LATER, 5)]:
            ledger.charge(event, round_=round_, covers="sum")
    lines = path.read_text().splitlines(keepends=True)
    if change == "removed":
        del lines[1]
    elif change == "edited":
        lines[4] = lines[4].replace("allocated-gaussian", "allocated-later")
    elif change == "reordered":
        lines[1], lines[2] = lines[2], lines[1]
    else:
        lines.insert(3, lines[2])
    path.write_text("".join(lines))
    with pytest.raises(LedgerLoss):
        Ledger(path, adjacency=ADD_REMOVE, delta=1e-5, budget=None)


@pytest.mark.parametrize("sigma", [0.05, 0.09])
def test_noise_too_small_to_account_for_promises_nothing(sigma: float) -> None:
    cost = accountant.epsilon([(AllocatedGaussian(4, sigma), 1)], adjacency=ADD_REMOVE, delta=1e-5)
    assert cost == math.inf
    assert accountant.epsilon(
        [(AllocatedGaussian(4, 0.1), 1)], adjacency=ADD_REMOVE, delta=1e-5
    ) < 200.0  # fmt: skip


def test_a_coarse_grid_errs_upward() -> None:
    for rounds, sigma in ((5, 1.5), (40, 0.7)):
        fine, coarse = (
            accountant.epsilon(
                [(AllocatedGaussian(rounds, sigma), 3)],
                adjacency=ADD_REMOVE,
                delta=1e-5,
                interval=interval,
            )
            for interval in (1e-4, 1e-3)
        )
        assert fine <= coarse <= 1.02 * fine


def test_what_others_are_given_to_recompute_names_rounds_that_nothing_paid() -> None:
    def stated(later: int) -> list:
        return [(events.to_json(BLOCK), 2), (events.to_json(LATER), later)]

    assert events.from_json(events.to_json(LATER)) == LATER
    assert recompute.unpaid(stated(4)) == 0
    assert recompute.unpaid(stated(5)) == 1
    on_grid = (events.to_json(DiscretizedGaussian(BLOCK, 7, 28)), 1)
    assert recompute.unpaid([*stated(6), on_grid]) == 0
    assert recompute.unpaid([*stated(7), on_grid]) == 1
    broken_off = (events.to_json(AllocatedGaussian(3, 2.0, 2)), 3)
    assert recompute.unpaid([*stated(7), broken_off]) == 0
    assert recompute.unpaid([*stated(8), broken_off]) == 1
    # As a ledger of an earlier version has it.
    former = {"kind": "allocated-gaussian", "rounds": 3, "noise_multiplier": 2.0}
    assert events.from_json(former) == BLOCK
    assert recompute.unpaid([(former, 1), (events.to_json(LATER), 3)]) == 1
    assert len(recompute.by_our_rules(stated(4))) == 2


def test_blocks_compose_with_other_releases() -> None:
    both = composition([(BLOCK, 2), (PoissonGaussian(1.0, 5.0), 1)], adjacency=ADD_REMOVE)
    alone = composition([(BLOCK, 2)], adjacency=ADD_REMOVE)
    assert both and alone
    assert both.epsilon(1e-5) > alone.epsilon(1e-5)
