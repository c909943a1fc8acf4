"""The table of what is proven: each row by its neighbours, and everything beside it refused.

Legend: N points, K judgements or candidates, T rounds, J buckets.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats

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
from murmuration.privacy.mechanisms import median
from murmuration.privacy.mechanisms.above_threshold import AboveThreshold
from murmuration.privacy.mechanisms.clipping import ExampleClip, LabelClip, NoClip, UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.distributed import DistributedNoise
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, JointSum
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.sampling import CyclicSampler, ExampleSampler, PoissonSampler
from murmuration.privacy.mechanisms.tally import STEPS, Tally, TallyRelease
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
    "random-stopping": lambda sigma: RandomStopping(0.0, 0.2, (CandidateCost(0.1, sigma, 10),)),
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
    charges = [(CHARGED[kind](8.0), 40)]
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
        return JointSum(poisson, clip, 2.0, adjacency, noise, count_noise=1.0)
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
            discrete=DiscreteNoise(3),
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


# What an attacker sees of two bad neighbours, computed from the constants of a row's mechanism and
# not from its event: its charge covers that, and what a slip would charge does not.

Z_N = np.linspace(-32.0, 32.0, 6401)
#: The same where two numbers are seen.
Y_N = np.linspace(-20.0, 20.0, 801)
ROUNDS = 4
SCORED = HoldOut(0.2, 1.0)
STOPPING = RandomStopping(0.0, 0.001, (CandidateCost(0.1, 2.0, 1),))
DEARER_IF_REPLACED = {"poisson-gaussian", "group-gaussian", "blt-gaussian", "hold-out"}
#: By how much a field of an event is made cheaper.
SLIPS = {"noise_multiplier": 2.0, "probability": 0.5, "epsilon": 0.5, "group_size": 1 / 3}


def normal(mean, std, at_N=Z_N):
    """The masses of N(mean, std²), (N,)."""
    return stats.norm.pdf(at_N, mean, std) * (at_N[1] - at_N[0])


def laplace(mean, scale):
    """The masses of Laplace noise between points and beyond, (N + 1,)."""
    return np.diff(stats.laplace.cdf(Y_N, mean, scale), prepend=0.0, append=1.0)


def sampled(probability, mean, std, at_N=Z_N):
    """The masses of a noisy sum that is moved with this probability, (N,)."""
    return probability * normal(mean, std, at_N) + (1.0 - probability) * normal(0.0, std, at_N)


def of_sum(mechanism, user):
    """The masses of a release to which a user adds all they may, times ``user``: −1, 0 or 1."""
    length, std = user * mechanism.clip.norm, mechanism.std
    if isinstance(mechanism.sampler, ExampleSampler):
        size, probability = mechanism.sampler.group_size, mechanism.sampler.probability
        weights_K = stats.binom.pmf(np.arange(size + 1), size, probability)
        return sum(weight * normal(k * length, std) for k, weight in enumerate(weights_K))
    if isinstance(mechanism, CorrelatedSum):
        # Row by row a run reveals C x + z: all that is said of a user lies along columns of C.
        factor, turns = mechanism.factor, range(0, ROUNDS, mechanism.factor.groups)
        columns = [np.pad(factor.row_T(ROUNDS - turn), (turn, 0)) for turn in turns]
        if factor.mechanism is Mechanism.BUFFERED:
            return normal(length * np.linalg.norm(sum(columns)), std)
        q = mechanism.sampler.of_group.probability
        return np.outer(*(sampled(q, length * np.linalg.norm(c_T), std, Y_N) for c_T in columns))
    q = mechanism.sampler.probability
    if isinstance(mechanism, GaussianSum):
        return sampled(q, length, std)
    count = mechanism.count_noise
    there = np.outer(normal(length, std, Y_N), normal(user / 2.0, count, Y_N))
    return q * there + (1.0 - q) * np.outer(normal(0.0, std, Y_N), normal(0.0, count, Y_N))


def of_labels(adjacency):
    """All answers of a user whose every label is the one or the other."""
    promise = LabelPromise(1.5)
    one, other = RandomizedResponse(promise.per_label(3)).matrix()
    both = tuple(np.multiply.outer(np.outer(each, each), each) for each in (one, other))
    return both, {RandomizedLabels(promise.epsilon, promise.delta): 1}


def of_queries(adjacency):
    """All queries but the last pass; a user raises them, and by replacing another lowers that."""
    swapped = adjacency.vectors_changed == 2
    mechanism = AboveThreshold(0.0, 1.0, 1.0, adjacency, monotone=not swapped)

    def outcome(values, last):
        passes = [stats.laplace.sf(Z_N, value, mechanism.query_scale) for value in (values, last)]
        chance_N = stats.laplace.pdf(Z_N, mechanism.threshold, mechanism.threshold_scale)
        ended = np.trapezoid(passes[0] ** 20 * (1.0 - passes[1]) * chance_N, Z_N)
        return np.array([ended, 1.0 - ended])

    return (outcome(1.0, 0.0), outcome(0.0, float(swapped))), {mechanism.event: 1}


def of_median(adjacency):
    """Most users are in the last bucket; one more joins it, or is in the first instead."""
    users_J, bucket_JJ = np.zeros(len(median.GRID)), np.eye(len(median.GRID))
    users_J[[8, -1]] = 1.0, 4.0
    other_J = users_J + bucket_JJ[0] if adjacency.vectors_changed == 2 else users_J
    both = users_J + bucket_JJ[-1], other_J
    return tuple(median.probabilities(u_J, 1.0, adjacency) for u_J in both), {PureChoice(1.0): 1}


def of_held_out(adjacency):
    """A user is in the sum or, held out, in a figure; who replaces them is in another figure."""
    share, run = SCORED.share, GaussianSum(PoissonSampler(0.1), UserClip(0.5), 4.0, adjacency)
    scale = float(TallyRelease(SCORED, adjacency, Tally()).scale) / STEPS
    none_N, figure_N, nobody_N = normal(0.0, run.std), laplace(1.0, scale), laplace(0.0, scale)
    charges = {run.event: 1, **SCORED.charges}
    if adjacency.vectors_changed == 1:
        with_user = (1.0 - share) * np.outer(of_sum(run, 1), nobody_N)
        return (with_user + share * np.outer(none_N, figure_N), np.outer(none_N, nobody_N)), charges
    both = (  # to somebody who knows the assignment
        np.append((1.0 - share) * of_sum(run, user), share * np.outer(*figures))
        for user, figures in ((1, (figure_N, nobody_N)), (-1, (nobody_N, figure_N)))
    )
    return tuple(both), charges


def of_best(adjacency):
    """The largest of a random number of noisy sums, each with the user or without."""
    (cost,), gamma = STOPPING.candidates, STOPPING.gamma
    below_N, moved_N = (stats.norm.cdf(Z_N, mean, cost.noise_multiplier) for mean in (0.0, 1.0))
    moved_N = cost.probability * moved_N + (1.0 - cost.probability) * below_N
    # Of a logarithmic number K: E[s^K] = log(1 − (1 − γ) s) / log γ.
    both = (np.log1p(-(1.0 - gamma) * each_N) / math.log(gamma) for each_N in (moved_N, below_N))
    return tuple(np.diff(all_N, prepend=0.0, append=1.0) for all_N in both), {STOPPING: 1}


OF_NO_SUM = {
    "randomized-labels": of_labels,
    "pure-dp": of_queries,
    "pure-choice": of_median,
    "hold-out": of_held_out,
    "random-stopping": of_best,
    "unprotected": lambda _: (np.eye(2), {Unprotected(): 1}),
}


def attack(row, adjacency):
    """What is seen of a row's two neighbours, as two arrays of masses, and what is charged."""
    mechanism = built(row, adjacency)
    if mechanism is None:
        return OF_NO_SUM[row.event](adjacency)
    both = of_sum(mechanism, 1), of_sum(mechanism, -1 if adjacency.vectors_changed == 2 else 0)
    run = isinstance(mechanism, CorrelatedSum)
    return both, mechanism.charges(ROUNDS) if run else {mechanism.event: 1}


def cheapened(event, kind, name):
    """An event of this kind, or the same about a part or on a grid, with a field made cheaper."""
    if inner := getattr(event, "event", None):
        return dataclasses.replace(event, event=cheapened(inner, kind, name))
    value = getattr(event, name, 0)
    slip = {name: type(value)(value * SLIPS[name])} if event.kind == kind and value else {}
    return dataclasses.replace(event, **slip)


def slips(row, adjacency, charges):
    """What a slip would charge, and under which adjacency: other charges, or another's."""
    yield {event: times - 1 for event, times in charges.items()}, adjacency
    for name in SLIPS:
        yield {cheapened(event, row.event, name): n for event, n in charges.items()}, adjacency
    if row.unit is Unit.VECTOR_AND_BIT:  # the bit for nothing
        yield {built(dataclasses.replace(row, unit=Unit.VECTOR), adjacency).event: 1}, adjacency
    if row.event == "random-stopping":  # one candidate
        yield STOPPING.candidates[0].charges, adjacency
    if adjacency.vectors_changed == 2 and row.event in DEARER_IF_REPLACED:
        yield charges, Adjacency.ADD_REMOVE


@pytest.mark.parametrize(
    ("row", "adjacency"),
    [(row, a) for row in TABLE for a in Adjacency if a in row.adjacencies],
    ids=str,
)
def test_a_charge_covers_bad_neighbours_and_nothing_cheaper_does(row, adjacency):
    if row.status is Status.CLAIMED:
        assert built(row, adjacency) is None
        return
    (first, second), charges = attack(row, adjacency)
    assert first.sum() == pytest.approx(1.0) and second.sum() == pytest.approx(1.0)

    def covered(charges, adjacency):
        spent = accountant.epsilon(charges.items(), adjacency=adjacency, delta=DELTA)
        ratio = math.exp(min(spent, 500.0))
        pairs = (first, second), (second, first)
        told_apart = max(np.maximum(one - ratio * other, 0.0).sum() for one, other in pairs)
        return spent == math.inf or told_apart <= DELTA * (1.0 + 1e-3)

    assert covered(charges, adjacency)
    cheaper = [slip for slip in slips(row, adjacency, charges) if slip != (charges, adjacency)]
    assert cheaper and not any(itertools.starmap(covered, cheaper))


def test_rows_are_found_by_their_parts():
    assert {row.mechanism for row in select(Unit.VECTOR, Participation.POISSON)} == set(NOISES)
    (published,) = select(Unit.NEIGHBOURHOODS, status=Status.CLAIMED)
    assert not select(Unit.NEIGHBOURHOODS)
    assert published.audit == "aup:published"
    assert theorems.listed(frozenset({Adjacency.REPLACE, Adjacency.ZERO_OUT})) == (
        "zero-out or replace"
    )
