"""The table of what is proven: each row by its neighbours, and everything beside it refused."""

import itertools
import math

import numpy as np
import pytest

from murmuration.privacy import theorems
from murmuration.privacy.accounting import accountant, second_opinion
from murmuration.privacy.accounting.events import (
    BandedGaussian,
    BufferedGaussian,
    GroupGaussian,
    MixtureGaussian,
    PoissonGaussian,
    PureChoice,
    PureDp,
    RandomizedLabels,
    Unprotected,
)
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.continual.correlated_sum import CorrelatedSum
from murmuration.privacy.continual.toeplitz import Workload
from murmuration.privacy.mechanisms.clipping import ExampleClip, LabelClip, NoClip, UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, JointSum
from murmuration.privacy.mechanisms.sampling import CyclicSampler, ExampleSampler, PoissonSampler
from murmuration.privacy.selection.random_stopping import CandidateCost, RandomStopping
from murmuration.privacy.theorems import TABLE, Mechanism, Participation, Status, Unit, find, select

DELTA = 1e-5
#: What a release of each kind may be charged as, from a noise multiplier.
CHARGED = {
    "poisson-gaussian": lambda sigma: PoissonGaussian(0.1, sigma),
    "mixture-gaussian": lambda sigma: MixtureGaussian(sigma, 2, 0.05),
    "group-gaussian": lambda sigma: GroupGaussian(sigma, 2, 0.01),
    "banded-gaussian": lambda sigma: BandedGaussian(4, 0.4, sigma),
    "blt-gaussian": lambda sigma: BufferedGaussian(8, 4, sigma),
    "randomized-labels": lambda sigma: RandomizedLabels(1.0 / sigma),
    "pure-dp": lambda sigma: PureDp(1.0 / sigma),
    "pure-choice": lambda sigma: PureChoice(1.0 / sigma),
    "hold-out": lambda sigma: HoldOut(0.2, 1.0 / sigma),
    "random-stopping": lambda sigma: RandomStopping(
        0.0, 0.2, (CandidateCost(0.1, sigma, 10, 0.0, 0.0, 0.0),)
    ),
    "unprotected": lambda sigma: Unprotected(),
}
NOISES = {
    Mechanism.GAUSSIAN: None,
    Mechanism.DISCRETE_GAUSSIAN: DiscreteNoise(3),
    Mechanism.SHARES: DistributedNoise(3, 4),
}


def epsilon(event, adjacency, times=1):
    return accountant.epsilon([(event, times)], adjacency=adjacency, delta=DELTA)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_row_says_all_that_a_reader_needs(row):
    assert row.says.endswith(".") and row.adjacencies
    if row.status is Status.PROVEN:
        assert row.source and row.audit


def test_no_two_rows_are_of_the_same_parts_and_charge():
    keys = [(*row.parts, row.event) for row in TABLE]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("kind", CHARGED)
def test_a_charge_has_a_loss_where_a_row_holds_and_nowhere_else(kind, adjacency):
    """A ledger that somebody else wrote may name any charge under any adjacency."""
    held = {a for row in TABLE if row.event == kind for a in row.adjacencies}
    event = CHARGED[kind](2.0)
    if adjacency in held or kind == "pure-choice":  # any mechanism that is so private
        assert epsilon(event, adjacency) >= 0.0
        return
    with pytest.raises(Unsupported, match=f"no guarantee under {adjacency}"):
        epsilon(event, adjacency)


@pytest.mark.parametrize("row", TABLE, ids=str)
def test_more_noise_costs_less_and_a_replaced_user_more(row):
    if row.status is Status.NONE:
        assert epsilon(CHARGED[row.event](1.0), Adjacency.ZERO_OUT) == math.inf
        return
    for adjacency in row.adjacencies:
        little, much = (epsilon(CHARGED[row.event](sigma), adjacency) for sigma in (1.0, 2.0))
        assert 0.0 < much < little
    if row.adjacencies >= {Adjacency.ADD_REMOVE, Adjacency.REPLACE}:
        event = CHARGED[row.event](1.0)
        assert epsilon(event, Adjacency.REPLACE) >= epsilon(event, Adjacency.ADD_REMOVE)
        assert epsilon(event, Adjacency.ZERO_OUT) == epsilon(event, Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("kind", CHARGED)
def test_the_fields_reference_agrees_where_it_knows_the_charge(kind, adjacency):
    held = {a for row in TABLE if row.event == kind for a in row.adjacencies}
    if adjacency not in held or kind in ("group-gaussian", "unprotected"):
        return
    charges = [(CHARGED[kind](2.0), 4)]
    opinion = second_opinion.of_run(charges, adjacency=adjacency, delta=DELTA)
    if opinion.theirs is not None:
        assert opinion.ours == pytest.approx(opinion.theirs, rel=1e-5)
    else:
        assert kind not in ("poisson-gaussian", "mixture-gaussian"), opinion.why


def built(row, adjacency):
    """The mechanism of a sum's row, or None of a row that is about no single sum."""
    noise, clip, poisson = NOISES.get(row.mechanism), UserClip(0.5), PoissonSampler(0.1)
    if row.mechanism is Mechanism.BANDED:
        return CorrelatedSum(CyclicSampler(0.1, 2), clip, 2.0, adjacency, Banded((0.8, 0.6)))
    if row.mechanism is Mechanism.BUFFERED:
        factor = BufferedToeplitz.chosen(Workload.of_matrix(np.tri(8)), 2)
        return CorrelatedSum(CyclicSampler(0.5, 2), clip, 2.0, adjacency, factor)
    if row.mechanism not in NOISES or row.status is not Status.PROVEN:
        return None
    if row.unit is Unit.EXAMPLES:
        kinds = {kind.kind: kind for kind in (MixtureGaussian, GroupGaussian)}
        sampler = ExampleSampler(0.1, 3, kinds[row.event])
        return GaussianSum(sampler, ExampleClip(0.5), 2.0, adjacency, noise)
    if row.unit is Unit.VECTOR_AND_BIT:
        return JointSum(poisson, clip, 2.0, adjacency, noise, count_noise=8.0)
    clip = LabelClip(0.5) if row.unit is Unit.LABELS else clip
    return GaussianSum(poisson, clip, 2.0, adjacency, noise)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("row", TABLE, ids=str)
def test_a_mechanism_can_be_built_where_its_row_holds_and_nowhere_else(row, adjacency):
    if adjacency in row.adjacencies:
        mechanism = built(row, adjacency)
        assert mechanism is None or mechanism.theorem == row
        return
    if row.mechanism in {*NOISES, Mechanism.BANDED}:
        with pytest.raises(Unsupported, match=f"no guarantee under {adjacency}"):
            built(row, adjacency)


def test_what_is_not_in_the_table_cannot_be_found():
    known = {row.parts for row in TABLE if row.status is Status.PROVEN}
    combinations = set(itertools.product(Unit, Participation, Mechanism)) - known
    assert len(combinations) > 500
    for parts in combinations:
        with pytest.raises(Unsupported, match="nothing is proven of"):
            find(*parts, Adjacency.ZERO_OUT)


@pytest.mark.parametrize(
    "build",
    [
        lambda: GaussianSum(CyclicSampler(0.1, 2), UserClip(0.5), 2.0, Adjacency.ZERO_OUT),
        lambda: GaussianSum(PoissonSampler(0.1), NoClip(), 2.0, Adjacency.ZERO_OUT),
        lambda: GaussianSum(
            ExampleSampler(0.1, 3, GroupGaussian),
            ExampleClip(0.5),
            2.0,
            Adjacency.ZERO_OUT,
            DiscreteNoise(3),
        ),
        lambda: GaussianSum(
            ExampleSampler(0.1, 3, GroupGaussian),
            ExampleClip(0.5),
            2.0,
            Adjacency.ZERO_OUT,
            DistributedNoise(3, 4),
        ),
        lambda: GaussianSum(ExampleSampler(0.1, 3), UserClip(0.5), 2.0, Adjacency.ZERO_OUT),
        lambda: GaussianSum(PoissonSampler(0.1), ExampleClip(0.5), 2.0, Adjacency.ZERO_OUT),
        lambda: JointSum(
            CyclicSampler(0.1, 2), UserClip(0.5), 2.0, Adjacency.ZERO_OUT, count_noise=8.0
        ),
        lambda: JointSum(
            ExampleSampler(0.1, 3), ExampleClip(0.5), 2.0, Adjacency.ZERO_OUT, count_noise=8.0
        ),
        lambda: CorrelatedSum(
            CyclicSampler(0.1, 2), LabelClip(0.5), 2.0, Adjacency.REPLACE_LABELS, Banded((0.8, 0.6))
        ),
        lambda: CorrelatedSum(
            CyclicSampler(0.1, 2),
            UserClip(0.5),
            2.0,
            Adjacency.ZERO_OUT,
            Banded((0.8, 0.6)),
            DiscreteNoise(3),
        ),
    ],
    ids=[
        "turns",
        "unclipped",
        "group-grid",
        "group-shares",
        "users",
        "examples",
        "joint-turns",
        "joint-examples",
        "labels",
        "correlated-grid",
    ],
)
def test_parts_that_nobody_has_proven_together_are_refused(build):
    with pytest.raises(Unsupported, match="nothing is proven of"):
        build()


def test_the_sampled_gaussian_costs_its_worst_neighbours():
    """Numbers 0 and 1 are the neighbours: the hockey-stick divergence, integrated."""
    sigma, q = 1.3, 0.2
    z = np.linspace(-20, 20, 400_001)
    density = np.exp(-0.5 * (z / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    moved = np.exp(-0.5 * ((z - 1.0) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))
    mixed = (1 - q) * density + q * moved
    spent = epsilon(PoissonGaussian(q, sigma), Adjacency.ADD_REMOVE)

    def delta(first, second, at):
        return np.trapezoid(np.maximum(first - math.exp(at) * second, 0.0), z)

    worst = max(delta(mixed, density, spent), delta(density, mixed, spent))
    assert worst == pytest.approx(DELTA, rel=1e-2)
    assert worst <= DELTA * (1 + 1e-6)


def test_rows_are_found_by_their_parts():
    assert {row.mechanism for row in select(Unit.VECTOR, Participation.POISSON)} == set(NOISES)
    (published,) = select(Unit.NEIGHBOURHOODS, status=Status.CLAIMED)
    assert not select(Unit.NEIGHBOURHOODS)
    assert published.audit == "aup:published"
    assert theorems.listed(frozenset({Adjacency.REPLACE, Adjacency.ZERO_OUT})) == (
        "zero-out or replace"
    )
