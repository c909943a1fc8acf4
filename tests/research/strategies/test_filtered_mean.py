import dataclasses
import itertools
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from by_dp_accounting import loss_of
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.research.strategies.filtered_mean import (
    WEIGHT_CHANGE,
    FilteredMean,
    TestedGaussian,
    majority_weights,
    mean_movement,
    near,
    there,
    weighted_mean,
)
from murmuration.research.theory.analytic_gaussian import delta_of
from murmuration.strategies.aup.published import (
    concentration_score,
    degrees,
    distances,
    keep_probabilities,
)

D = 5_000
AGREEING = np.zeros((200, D)) + 0.25


def made(**changes):
    fields = {
        "sampler": PoissonSampler(0.2),
        "radius": 0.5,
        "least_weight": 50.0,
        "noise_multiplier": 2.0,
        "test_share": 0.2,
        "failure": 1e-7,
        "adjacency": Adjacency.ADD_REMOVE,
    }
    return FilteredMean(**{**fields, **changes})


@pytest.fixture
def ledger(checks, tmp_path):
    with checks.promise(tmp_path / "ledger") as ledger:
        yield ledger


def release(ledger, rows_SD=AGREEING, *, round_=1, seed=0, **changes):
    return made(**changes).release(
        rows_SD, round_=round_, covers="mean", ledger=ledger, source=Randomness(seed)
    )


def test_test_and_mean_together_are_as_noisy_as_is_charged():
    for share in (0.01, 0.2, 0.9):
        mechanism = made(test_share=share)
        weight_shift = 2.0 / mechanism.test_std
        mean_shift = (4 * 0.5 / 50.0) / mechanism.std
        assert mean_shift * mechanism.std < mean_movement(0.5, 50.0)  # which counts rounding
        assert math.hypot(weight_shift, mean_shift) == pytest.approx(1 / 2.0)
        assert (weight_shift * 2.0) ** 2 == pytest.approx(share)
    assert made().event == TestedGaussian(0.2, 2.0, 1e-7)


def test_the_bar_leaves_room_for_neighbours_of_light_cohorts():
    mechanism = made()
    passing = stats.norm.sf(mechanism.bar - (50.0 + 4.0), scale=mechanism.test_std)
    assert passing == pytest.approx(1e-7)


def test_the_noise_on_the_mean_is_that_of_the_plan_not_more_not_less(checks, ledger):
    noise_D = release(ledger) - 0.25
    checks.gaussian_noise(noise_D, made().std)
    for factor in (0.95, 1.05):
        with pytest.raises(AssertionError, match="noise scale"):
            checks.gaussian_noise(noise_D, made().std * factor)


def test_the_noise_on_the_weight_is_that_of_the_plan():
    # A cohort whose weight lies one standard deviation above the bar passes five times in six.
    mechanism = made(least_weight=2.0)
    users = round(mechanism.bar + mechanism.test_std)
    expected = stats.norm.cdf((users - mechanism.bar) / mechanism.test_std)
    free = SimpleNamespace(
        adjacency=Adjacency.ADD_REMOVE, charge=lambda *_, **__: SimpleNamespace(attempt=0)
    )
    passed = sum(
        release(free, np.zeros((users, 1)), seed=seed, least_weight=2.0) is not None
        for seed in range(300)
    )
    assert abs(passed - 300 * expected) < 5 * math.sqrt(300 * expected * (1 - expected))
    assert 0.75 < expected < 0.9


def test_nothing_is_released_where_too_few_agree_and_it_is_charged(ledger):
    scattered = np.arange(200.0)[:, None] * np.ones((1, 4))
    few = np.zeros((10, 4))
    nobody = np.zeros((0, 4))
    halves = np.repeat([[0.0], [9.0]], 100, axis=0)
    for round_, rows_SD in enumerate((scattered, few, nobody, halves), start=1):
        assert release(ledger, rows_SD, round_=round_) is None
    assert sum(ledger.spent().values()) == 4


def test_outliers_do_not_reach_the_mean(ledger):
    rows_SD = np.vstack([AGREEING, np.full((20, D), 1e9)])
    assert np.abs(release(ledger, rows_SD) - 0.25).max() < 10 * made().std


@pytest.mark.parametrize("bad", [1e13, 1e150, 1e308, math.nan, math.inf])
def test_vectors_too_long_to_be_added_up_are_not_there(checks, ledger, tmp_path, bad):
    """However many agree on them: rounding at their length would exceed the noise."""
    alone_D = release(ledger, AGREEING[:199])
    one = np.vstack([AGREEING[:199], np.full((1, D), bad)])
    with checks.promise(tmp_path / "other") as other:
        assert np.array_equal(release(other, one), alone_D)
    assert release(ledger, np.full((200, 3), bad), round_=2) is None


def test_every_release_is_charged_and_drawn_anew(checks, ledger):
    first_D = release(ledger)
    checks.unrelated(first_D - 0.25, release(ledger) - 0.25)
    for _ in range(2):
        other_D = release(ledger, AGREEING + 1.0, seed=None)
        checks.unrelated(first_D - 0.25, other_D - 1.25)
    assert [charge.attempt for charge in ledger.charges] == [0, 1, 2, 3]


def test_the_charge_is_on_disk_before_any_noise_exists(checks, tmp_path, monkeypatch):
    def run(ledger, drawing):
        monkeypatch.setattr(Randomness, "stream", lambda *_: drawing())
        return release(ledger, seed=None)

    checks.charged_before_it_exists(run, tmp_path)


def test_nothing_is_drawn_when_budget_or_relation_refuses(checks, tmp_path, monkeypatch):
    drawn = []
    with checks.promise(tmp_path / "l", budget=0.01) as ledger:
        monkeypatch.setattr(Randomness, "stream", lambda *name: drawn.append(name))
        with pytest.raises(BudgetExceeded):
            release(ledger, seed=None)
        with pytest.raises(ValueError, match="ledger is for add-remove"):
            release(ledger, seed=None, adjacency=Adjacency.REPLACE)
    assert drawn == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"radius": 0.0}, "radius must be"),
        ({"radius": math.nan}, "radius must be"),
        ({"radius": 1e-200}, "radius must be"),
        ({"radius": 1e200}, "radius must be"),
        ({"least_weight": 1.9}, "at least 2"),
        ({"test_share": 0.0}, "share must be"),
        ({"test_share": 1.0}, "share must be"),
        ({"failure": 0.0}, "failure probability"),
        ({"noise_multiplier": 0.0}, "noise multiplier"),
    ],
)
def test_impossible_mechanisms_cannot_be_made(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        made().radius = 9.0


# The filters: the corrected one against everything, the published one as the control.


def majority(rows_SD, radius=1.0):
    """Weights, W and mean of the product's filter."""
    whole_S = majority_weights(degrees(near(rows_SD, radius)))
    return whole_S / max(1, len(rows_SD)), *weighted_mean(rows_SD, whole_S)


def any_mean(rows_SD, weights_S):
    """W and the mean with any weights."""
    total = float(weights_S.sum())
    return total, (weights_S @ rows_SD) / (total or 1.0)


def insertion(rows_SD, weigh=majority):
    """With the last row and without: Σ|Δw|, the larger W, how far the mean moves."""
    with_S, with_w, with_D = weigh(rows_SD)
    without_S, without_w, without_D = weigh(rows_SD[:-1])
    change = float(np.abs(with_S[:-1] - without_S).sum() + with_S[-1])
    return change, with_w, without_w, float(np.linalg.norm(with_D - without_D))


def bounded(rows_SD):
    change, with_w, without_w, moved = insertion(rows_SD)
    assert change < WEIGHT_CHANGE
    assert abs(with_w - without_w) <= change + 1e-9
    if min(with_w, without_w) > 0:
        assert moved < mean_movement(1.0, max(with_w, without_w)) * (1 + 1e-9)


def clusters(sizes, places):
    return np.repeat(np.array(places, dtype=float)[:, None], sizes, axis=0)


COORDINATES = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 50.0]), st.floats(-3, 3, width=32)
)


@given(st.lists(st.tuples(COORDINATES, COORDINATES), min_size=1, max_size=14))
@example([(0.0, 0.0)] * 5 + [(50.0, 0.0)] * 6)
@example([(0.0, 0.0)] * 6 + [(1.0, 0.0)] * 6 + [(0.5, 0.0)])
def test_no_user_who_comes_or_goes_breaks_the_bounds(points):
    bounded(np.array(points))


@given(
    st.lists(st.tuples(COORDINATES, COORDINATES), min_size=2, max_size=12),
    st.tuples(COORDINATES, COORDINATES),
)
def test_a_user_who_is_swapped_moves_twice_as_much_at_most(points, other):
    rows_SD = np.array(points)
    swapped_SD = np.vstack([rows_SD[:-1], other])
    _, first_w, first_D = majority(rows_SD)
    _, second_w, second_D = majority(swapped_SD)
    assert abs(first_w - second_w) < 2 * WEIGHT_CHANGE
    if min(first_w, second_w) >= 2.0:
        moved = float(np.linalg.norm(first_D - second_D))
        assert moved < mean_movement(1.0, first_w) + mean_movement(1.0, second_w)


def climb(worth, rows_SD, generator, steps):
    """Move points about for as long as ``worth`` does not fall."""
    best = worth(rows_SD)
    for _ in range(steps):
        tried_SD, at = rows_SD.copy(), generator.integers(len(rows_SD))
        if generator.random() < 0.4:
            tried_SD[at] = tried_SD[generator.integers(len(rows_SD))]
        tried_SD[at] += generator.normal(size=rows_SD.shape[1]) * generator.choice([0, 0.02, 0.5])
        found = worth(tried_SD)
        if found >= best:
            rows_SD, best = tried_SD, found
    return best


def test_a_directed_search_for_violations_comes_close_and_no_closer():
    generator, changes, moves = np.random.default_rng(0), [], []

    def change(rows_SD):
        return insertion(rows_SD)[0]

    def move(rows_SD):
        _, with_w, without_w, moved = insertion(rows_SD)
        return moved * max(with_w, without_w) if min(with_w, without_w) > 0 else 0.0

    for size, dimension in itertools.product((4, 7, 10), (1, 2)):
        start_SD = generator.normal(size=(size, dimension))
        changes.append(climb(change, start_SD, generator, 500))
        moves.append(climb(move, start_SD, generator, 500))
    assert 1.6 < max(changes) < WEIGHT_CHANGE
    assert 1.0 < max(moves) < 2 * WEIGHT_CHANGE


@pytest.mark.parametrize("size", [1, 2, 9, 10, 50])
def test_the_change_of_weights_is_nearly_attained(size):
    # Half of the pairs are near; whoever joins is near to all.
    half = (size + 1) // 2
    rows_SD = np.vstack([clusters([half, size - half], [0.0, 1.5]), [[0.75]]])
    change, *_ = insertion(rows_SD)
    assert 1.0 <= change < WEIGHT_CHANGE
    if size == 50:
        assert change > 1.95


def test_kept_points_are_near_to_each_other_and_to_the_next_cohorts():
    generator = np.random.default_rng(1)
    for size in (5, 6, 11, 12):
        for _ in range(200):
            rows_SD = generator.normal(size=(size, 2)) * generator.choice([0.4, 0.7, 1.0])
            with_S = majority(rows_SD)[0] > 0
            without_S = np.append(majority(rows_SD[:-1])[0] > 0, False)
            kept_SD = rows_SD[with_S | without_S]
            assert not len(kept_SD) or distances(kept_SD).max() <= 2.0


def test_two_far_clusters_are_never_both_kept_whatever_the_nominal_cohort():
    for sizes in ((55, 55), (56, 54), (50, 51), (3, 3)):
        weights_S, _, mean_D = majority(clusters(sizes, [0.0, 1e6]))
        assert min(weights_S[0], weights_S[-1]) == 0.0
        assert min(abs(mean_D[0]), abs(mean_D[0] - 1e6)) < 1e-3


def test_an_agreeing_crowd_keeps_its_weight_and_outliers_get_none():
    rows_SD = np.vstack([np.random.default_rng(0).normal(size=(40, 3)) * 0.1, [[9.0, 9.0, 9.0]]])
    weights_S, total, mean_D = majority(rows_SD)
    assert weights_S[-1] == 0.0
    assert total == pytest.approx(40 * (2 * 40 / 41 - 1))
    np.testing.assert_allclose(mean_D, rows_SD[:-1].mean(axis=0))


def test_a_score_of_four_fifths_leaves_three_fifths_of_the_weight():
    generator = np.random.default_rng(0)
    for spread in (0.4, 0.6, 0.8):
        rows_SD = generator.normal(size=(60, 2)) * spread
        near_SS = near(rows_SD, 1.0)
        assert (
            majority_weights(degrees(near_SS)).sum() / 60
            >= 2 * concentration_score(near_SS, 60) - 60 - 1e-9
        )


@pytest.mark.parametrize("rows", [np.zeros((0, 3)), np.zeros((1, 3)), np.array([[0.0], [9.0]])])
def test_few_users_and_no_agreement(rows):
    weights_S, total, mean_D = majority(rows)
    assert len(weights_S) == len(rows)
    assert np.isfinite(mean_D).all()
    assert total == (1.0 if len(rows) == 1 else 0.0)


def test_whether_two_users_are_near_depends_on_nobody_else():
    # A matrix product would round differently with other rows around; f would move by more than 1.
    generator = np.random.default_rng(0)
    rows_SD = generator.normal(size=(70, 33)).astype(np.float32)
    whole = distances(rows_SD)
    for others in ([0, 5], [5, 0], [*range(30, 70), 5, 0]):
        np.testing.assert_array_equal(distances(rows_SD[others]), whole[np.ix_(others, others)])


@given(
    st.lists(st.tuples(COORDINATES, COORDINATES), min_size=1, max_size=9),
    st.sampled_from([0.0, 1e3, 7e5, 1.04e6, 1e13, 1e150, 1e308, np.nan, np.inf]),
    st.integers(0, 8),
    st.tuples(st.floats(-1, 1), st.floats(-1, 1)),
)
def test_the_mean_as_computed_stays_within_the_bound_at_any_length(points, length, some, direction):
    """In rational numbers, with all users, or some, moved far away to where rounding is coarse."""
    rows_SD, (x, y) = np.array(points), direction
    with np.errstate(all="ignore"):
        rows_SD[: 1 + some] += np.array([length * x, length * y])
        rows_SD[1 + some :] += np.array([length, -length])

    def weigh(found_SD):
        found_SD = found_SD[there(found_SD, 1.0)]
        whole_S = majority_weights(degrees(near(found_SD, 1.0)))
        return weighted_mean(found_SD, whole_S)

    (with_w, with_D), (without_w, without_D) = weigh(rows_SD), weigh(rows_SD[:-1])
    assert np.isfinite([*with_D, *without_D]).all()
    assert abs(with_w - without_w) < WEIGHT_CHANGE
    if min(with_w, without_w) > 0:
        pairs = zip(with_D.tolist(), without_D.tolist(), strict=True)
        square = sum((Fraction(one) - Fraction(other)) ** 2 for one, other in pairs)
        assert square < Fraction(mean_movement(1.0, max(with_w, without_w))) ** 2


def test_a_mean_of_long_vectors_is_rounded_once():
    rows_SD = 2.0**20 - np.arange(1000.0)[:, None] * 2.0**-20
    whole_S = np.arange(1, 1001)
    exact = sum(int(k) * Fraction(x) for k, (x,) in zip(whole_S, rows_SD.tolist(), strict=True))
    _, (mean,) = weighted_mean(rows_SD, whole_S)
    assert abs(Fraction(mean) - exact / int(whole_S.sum())) <= Fraction(2**20) / 2**51


@pytest.mark.parametrize("bad", [1.05e6, 1e13, 1e150, 1e308, np.nan, np.inf, -np.inf])
def test_who_is_there_depends_on_nobody_else(bad):
    rows_SD = np.array([[0.0, 0.0], [bad, 0.0], [7e5, 7e5]])
    assert there(rows_SD, 1.0).tolist() == [True, False, True]
    assert there(rows_SD[::-1], 1.0).tolist() == [True, False, True]
    assert there(rows_SD[:0], 1.0).tolist() == []


# As published: the control.


def keeping(rows_SD, nominal, radius=0.5):
    return keep_probabilities(degrees(near(rows_SD, 2 * radius)), nominal)


def test_published_filter_with_an_odd_cohort_lets_one_user_move_the_mean_anywhere():
    before = clusters([51, 50], [0.0, 1e6])
    after = clusters([50, 51], [0.0, 1e6])  # one user of 101 has changed sides
    kept_before, kept_after = keeping(before, 101), keeping(after, 101)
    assert kept_before[0] > 0 and kept_before[-1] == 0
    assert kept_after[0] == 0 and kept_after[-1] > 0
    anybody = 1 - (1 - kept_before[0]) ** 51
    assert 0.77 < anybody < 0.79
    # An even cohort of exactly ñ users has no such pair.
    for first in range(1, 99):
        one = keeping(clusters([first, 100 - first], [0.0, 1e6]), 100)
        two = keeping(clusters([first + 1, 99 - first], [0.0, 1e6]), 100)
        assert not (one[0] > 0 and two[-1] > 0)
        assert not (one[-1] > 0 and two[0] > 0)
    # The product's filter keeps nobody or, in a cohort of any size, moves as proved.
    assert max(majority(before)[1], majority(after)[1]) < 2


def test_published_filter_keeps_two_far_clusters_in_a_large_poisson_cohort():
    kept = keeping(clusters([55, 55], [0.0, 1e6]), 100)
    np.testing.assert_allclose(kept, 0.3)


def test_the_checks_above_find_the_published_filter():
    def published(rows_SD):
        weights_S = keep_probabilities(degrees(near(rows_SD, 1.0)), 8)
        return weights_S, *any_mean(rows_SD, weights_S)

    _, with_w, without_w, moved = insertion(clusters([5, 5], [0.0, 1e6]), published)
    assert moved > mean_movement(1.0, max(with_w, without_w))


# The event.


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_failures_are_taken_out_of_delta(adjacency):
    failure, rounds, delta = 1e-7, 50, 1e-5
    found = accountant.epsilon(
        [(TestedGaussian(0.1, 3.0, failure), rounds)], adjacency=adjacency, delta=delta
    )
    left = accountant.epsilon(
        [(PoissonGaussian(0.1, 3.0), rounds)],
        adjacency=adjacency,
        delta=delta - rounds * failure,
    )
    assert found == pytest.approx(left, rel=1e-3)
    assert found > accountant.epsilon(
        [(PoissonGaussian(0.1, 3.0), rounds)], adjacency=adjacency, delta=delta
    )


def test_more_failures_than_delta_are_never_covered():
    event = TestedGaussian(0.1, 3.0, 1e-6)
    assert accountant.epsilon([(event, 20)], adjacency=Adjacency.ADD_REMOVE, delta=1e-5) == math.inf


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize(("failure", "delta"), [(1e-3, 0.05), (5e-3, 0.3), (1e-2, 0.6)])
def test_failures_count_in_full_whatever_delta_is(adjacency, failure, delta):
    found = accountant.epsilon(
        [(TestedGaussian(1.0, 0.5, failure), 1)], adjacency=adjacency, delta=delta
    )
    assert failure + delta_of(0.5 / adjacency.vectors_changed, found) <= delta


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_one_round_adds_its_failures_to_delta_at_every_epsilon(adjacency):
    # That it dominates for each α is what lets it compose.
    plain = loss_of(PoissonGaussian(0.3, 1.0), adjacency, 1e-3)
    tested = loss_of(TestedGaussian(0.3, 1.0, 0.005), adjacency, 1e-3)
    for epsilon in (0.0, 0.1, 0.5, 2.0, 8.0):
        more = tested.get_delta_for_epsilon(epsilon) - plain.get_delta_for_epsilon(epsilon)
        assert more == pytest.approx(0.005, rel=1e-6)


def test_round_trip():
    event = TestedGaussian(0.1, 3.0, 1e-7)
    assert events.from_json(events.to_json(event)) == event


@pytest.mark.parametrize(
    "fields",
    [(0.0, 1.0, 1e-6), (1.1, 1.0, 1e-6), (0.1, 0.0, 1e-6), (0.1, 1.0, 0.0), (0.1, 1.0, 1.0)],
)
def test_impossible_parameters(fields):
    with pytest.raises(ValueError, match="must be"):
        TestedGaussian(*fields)
