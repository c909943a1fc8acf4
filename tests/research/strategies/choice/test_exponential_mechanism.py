"""The exponential mechanism: its law, its worst ratios, what enters a sum, and its charge."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.audits.auditing import scratch_ledger
from murmuration.privacy.accounting.events import PureDp, Unprotected
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.strategies.choice.exponential_mechanism import (
    STEPS,
    ExponentialMechanism,
    span_of,
)

SWAPS = (Adjacency.REPLACE, Adjacency.REPLACE_LABELS)


def mechanism(epsilon=1.0, choices=3, adjacency=Adjacency.ADD_REMOVE, cap=0, span=2.0):
    return ExponentialMechanism(epsilon, span, choices, adjacency, cap)


def worst(made, first_P, second_P):
    """The largest log ratio of an outcome's probabilities, either way."""
    ratio_P = np.log(made.probabilities(first_P)) - np.log(made.probabilities(second_P))
    return float(np.abs(ratio_P).max())


def neighbours(adjacency, choices, rare=20.0, epsilon=1.0):
    """Sums of others who make the first choice unlikely, with a user who is for and one against.

    ``rare``: minus the log of how unlikely, about.
    """
    others_P = np.zeros(choices)
    others_P[0] = np.rint(rare * STEPS * adjacency.vectors_changed / epsilon)
    for_P = np.full(choices, float(STEPS))
    for_P[0] = 0.0
    against_P = np.zeros(choices)
    if adjacency.vectors_changed == 2:
        against_P[0] = STEPS
    return others_P + for_P, others_P + against_P


# What one user can do.


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("choices", [2, 50])
def test_the_worst_ratio_is_attained_and_not_exceeded(adjacency, epsilon, choices):
    made = mechanism(epsilon, choices, adjacency)
    found = worst(made, *neighbours(adjacency, choices, epsilon=epsilon))
    assert 0.999 * epsilon < found <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", SWAPS)
def test_the_rate_of_one_who_comes_or_goes_costs_twice_where_one_is_swapped(adjacency):
    monotone = mechanism(adjacency=Adjacency.ADD_REMOVE)
    assert monotone.rate == 2 * mechanism(adjacency=adjacency).rate
    found = worst(monotone, *neighbours(adjacency, 3))
    assert 1.99 < found < 2.0 + 1e-9


losses = st.lists(
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), min_size=1, max_size=5
).map(np.array)


@given(losses, losses, losses, st.sampled_from(list(Adjacency)), st.sampled_from([0, 1, 3]))
def test_no_user_moves_a_probability_by_more(others_JP, one_JP, other_JP, adjacency, cap):
    made = mechanism(0.7, 4, adjacency, cap)
    others_P = 5 * made.contribution(others_JP)
    first_P = others_P + made.contribution(one_JP)
    swapped = adjacency.vectors_changed == 2
    second_P = others_P + (made.contribution(other_JP) if swapped else 0.0)
    event = made.event
    assert isinstance(event, PureDp)
    assert worst(made, first_P, second_P) <= event.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_at_item_level_a_user_pays_for_each_judgement_and_no_less_would_do(adjacency):
    made = mechanism(0.5, 2, adjacency, cap=4)
    assert made.event == PureDp(2.0)
    one_P, other_P = (made.contribution(np.array([row] * 9)) for row in ([0.0, 2.0], [2.0, 0.0]))
    assert one_P.tolist() == [0.0, 4.0 * STEPS]
    others_P = np.array([200.0 * STEPS, 0.0])
    gone_P = others_P if adjacency.vectors_changed == 1 else others_P + other_P
    assert worst(made, others_P + one_P, gone_P) == pytest.approx(2.0, rel=1e-6)
    one_item = made.contribution(np.array([[0.0, 2.0]]))
    other_item = 0.0 if adjacency.vectors_changed == 1 else one_item[::-1]
    assert worst(made, others_P + one_item, others_P + other_item) == pytest.approx(0.5, rel=1e-6)


def test_what_would_cost_more_than_is_counted_is_unprotected():
    assert mechanism(100.0, cap=5).event == PureDp(500.0)
    assert mechanism(100.0, cap=6).event == Unprotected()


# What enters a sum.


def test_a_user_counts_as_the_mean_of_their_judgements():
    made = mechanism(span=4.0)
    rows = [[0.0, 4.0, 2.0], [4.0, 4.0, 0.0]]
    mean_P = np.array([2.0, 4.0, 1.0])
    expected_P = (mean_P - 1.0) / 4.0 * STEPS
    assert made.contribution(np.array(rows)).tolist() == expected_P.tolist()
    assert made.contribution(np.array(rows * 10)).tolist() == expected_P.tolist()
    items = replace(made, cap=2).contribution(np.array([*rows, [0.0, 0.0, 4.0]]))
    assert items.tolist() == [1.0 * STEPS, 2.0 * STEPS, 0.5 * STEPS]


def test_a_shared_constant_changes_nothing():
    made = mechanism(span=4.0)
    rows = np.random.default_rng(0).random((6, 3)) * 4.0
    shifted = rows + np.arange(6.0)[:, None] * 8.0
    assert made.contribution(rows).tolist() == made.contribution(shifted).tolist()


@pytest.mark.parametrize("cap", [0, 2])
@pytest.mark.parametrize(
    "bad",
    [
        [[0.0, math.nan, 1.0]],
        [[0.0, 1.0, 2.0], [math.inf, 0.0, 0.0]],
        [[-math.inf] * 3],
        [[1.7e308, -1.7e308, 0.0]],
        [[1.7e308, 1.0, 0.0], [1.7e308, 1.0, 0.0]],
        [[0.0, 1.0]],
        [[0.0] * 4],
        [0.0, 1.0, 2.0],
        np.zeros((0, 3)),
    ],
)
def test_what_is_no_losses_adds_nothing(bad, cap):
    found_P = mechanism(cap=cap, span=1e-3).contribution(np.array(bad))
    assert found_P.shape == (3,)
    finite = np.isfinite(found_P).all() and (found_P >= 0).all()
    assert finite and (found_P <= max(1, cap) * STEPS).all()
    if not (cap and np.isfinite(bad).all() and np.shape(bad)[-1] == 3):
        assert not found_P.any()


@given(losses, st.sampled_from([0, 2]))
def test_a_users_part_is_whole_bounded_and_admitted(losses_JP, cap):
    made = mechanism(choices=4, cap=cap)
    found_P = made.contribution(losses_JP)
    assert made.is_valid(found_P, 1)
    if not cap:
        assert found_P.min() == 0.0
    largest = np.ptp(losses_JP.mean(axis=0))
    if not cap and largest <= made.span:
        exact_P = losses_JP.mean(axis=0) - losses_JP.mean(axis=0).min()
        assert np.abs(found_P / STEPS * made.span - exact_P).max() <= made.span / STEPS


def test_sums_that_users_cannot_have_made_are_not_admitted():
    made = mechanism(choices=2)
    assert made.is_valid(np.array([0.0, 3.0 * STEPS]), 3)
    for wrong in ([0.0, 3.0 * STEPS + 1], [-1.0, 0.0], [0.5, 0.0], [math.nan, 0.0], [math.inf] * 2):
        assert not made.is_valid(np.array(wrong), 3)
    assert not made.is_valid(np.zeros(3), 3)
    assert replace(made, cap=2).is_valid(np.array([0.0, 6.0 * STEPS]), 3)
    assert not made.is_valid(np.zeros(2), 2**40)


@pytest.mark.parametrize("r_max", [0.1, 1.0, 3.0])
def test_the_span_is_that_of_the_square_loss_and_no_more(r_max):
    z_N = np.clip(np.linspace(-60.0, 60.0, 4001), -2 * r_max, 2 * r_max)
    for y, share in ((1.0, 1.0), (-1.0, 1.0), (0.0, math.tanh(r_max) / 4)):
        found = float(np.ptp((np.tanh(z_N / 2) - y) ** 2))
        assert found == pytest.approx(share * span_of(r_max), rel=1e-4)


def test_the_span_of_a_reward_that_is_none():
    for wrong in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="positive"):
            span_of(wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", math.nan),
        ("epsilon", 501.0),
        ("span", 0.0),
        ("span", math.inf),
        ("choices", 0),
        ("choices", 2.0),
        ("cap", -1),
        ("cap", 1.5),
    ],
)
def test_constants_that_make_no_sense_are_refused(field, value):
    with pytest.raises(ValueError, match="must be"):
        replace(mechanism(), **{field: value})


# The draw.


def draws(made, sum_P, count):
    with scratch_ledger(made.adjacency) as ledger:
        source = Randomness(5)
        return np.array(
            [
                made.choose(sum_P, round_=i, covers="policy", ledger=ledger, source=source)
                for i in range(count)
            ]
        )


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
@pytest.mark.parametrize(
    ("epsilon", "sums"),
    [
        (1.0, [0.0, 0.0, 0.0]),
        (1.0, [0.0, 1.0, 2.0]),
        (0.3, [40.0, 41.5, 43.25, 41.5, 60.0]),
        (4.0, [0.25, 0.0, 1.0]),
    ],
)
def test_choices_come_as_often_as_they_should(adjacency, epsilon, sums, checks):
    made = mechanism(epsilon, len(sums), adjacency)
    sum_P = np.array(sums) * STEPS
    expected_P = 3000 * made.probabilities(sum_P)
    weight_P = np.exp(-epsilon / adjacency.vectors_changed * np.array(sums))
    np.testing.assert_allclose(expected_P, 3000 * weight_P / weight_P.sum())
    found = draws(made, sum_P, 3000)
    seen_P = np.bincount(found, minlength=len(sums))
    likely = expected_P >= 5.0
    assert seen_P[~likely].sum() <= 25
    statistic = ((seen_P - expected_P) ** 2 / expected_P)[likely].sum()
    checks.two_sided(float(statistic), int(likely.sum()) - 1, "frequencies")


def test_a_wrong_law_is_seen():
    """What the test above would say of a mechanism whose rate is another."""
    made = mechanism(1.0, 3, Adjacency.REPLACE)
    sum_P = np.array([0.0, 1.0, 2.0]) * STEPS
    found = draws(replace(made, epsilon=1.3), sum_P, 3000)
    expected_P = 3000 * made.probabilities(sum_P)
    statistic = stats.chisquare(np.bincount(found, minlength=3), expected_P)
    assert statistic.pvalue < 1e-6


def test_far_sums_take_no_time_and_a_hopeless_choice_is_never_made():
    made = mechanism(500.0, 400)
    sum_P = np.full(400, 2.0**40)
    sum_P[7] = 0.0
    found = draws(made, sum_P, 20)
    assert set(found) == {7}


def test_probabilities_of_far_sums_are_numbers():
    made = mechanism(500.0, 3)
    found_P = made.probabilities(np.array([2.0**52, 0.0, 1.0]))
    assert found_P.sum() == pytest.approx(1.0)
    assert found_P[0] == 0.0
    assert made.rate == Fraction(500, STEPS)


# How good a choice is.


@given(
    st.lists(st.integers(0, 50 * STEPS), min_size=2, max_size=30),
    st.sampled_from([0.05, 1.0, 10.0]),
    st.sampled_from(list(Adjacency)),
    st.sampled_from([1.0, 0.5, 0.01]),
)
def test_the_gap_keeps_to_its_bounds(sums, epsilon, adjacency, failure):
    made = mechanism(epsilon, len(sums), adjacency)
    sum_P = np.array(sums, dtype=np.float64)
    gap_P = (sum_P - sum_P.min()) * made.span / STEPS
    assert made.expected_gap(sum_P) <= made.gap_bound() * (1 + 1e-9)
    beyond = float(made.probabilities(sum_P)[gap_P > made.gap_bound(failure)].sum())
    assert beyond <= failure * (1 + 1e-9)


def test_the_gap_bound_is_the_textbooks():
    swapped = mechanism(0.5, 20, Adjacency.REPLACE, span=3.0)
    expected = 2 * 3.0 / 0.5 * (math.log(20) + math.log(1 / 0.05))
    assert swapped.gap_bound(0.05) == pytest.approx(expected)
    comes = replace(swapped, adjacency=Adjacency.ADD_REMOVE)
    assert comes.gap_bound(0.05) == pytest.approx(expected / 2)
    for wrong in (0.0, 1.1):
        with pytest.raises(ValueError, match="probability"):
            comes.gap_bound(wrong)


# The charge.


def test_charged_before_it_is_drawn(checks, tmp_path, monkeypatch):
    made, stream = mechanism(), Randomness.stream

    def release(ledger, drawing):
        def opened(*name):
            drawing()
            return stream(*name)

        monkeypatch.setattr(Randomness, "stream", opened)
        made.choose(np.zeros(3), round_=0, covers="policy", ledger=ledger, source=Randomness(1))

    checks.charged_before_it_exists(release, tmp_path)


def test_every_choice_is_charged_and_drawn_anew(checks, tmp_path):
    made, sum_P = mechanism(0.5), np.array([0.0, 1.0, 2.0])
    with checks.promise(tmp_path / "a.jsonl") as ledger:
        terms = {"round_": 0, "covers": "policy", "ledger": ledger, "source": Randomness(3)}
        chosen = [made.choose(sum_P, **terms) for _ in range(20)]
        assert ledger.spent() == {PureDp(0.5): 20}
        assert len(set(chosen)) > 1
    with (
        checks.promise(tmp_path / "b.jsonl", budget=0.4) as ledger,
        pytest.raises(BudgetExceeded),
    ):
        made.choose(sum_P, round_=0, covers="policy", ledger=ledger, source=Randomness(3))


def test_nothing_is_charged_for_what_cannot_be_chosen_from(checks, tmp_path):
    made = mechanism()
    with checks.promise(tmp_path / "ledger.jsonl") as ledger:
        terms = {"round_": 0, "covers": "policy", "ledger": ledger, "source": Randomness(3)}
        for wrong in ([0.0, 1.0], [0.5, 0.0, 0.0], [math.nan] * 3, [-1.0, 0.0, 0.0], [2.0**53] * 3):
            with pytest.raises(ValueError, match="whole numbers"):
                made.choose(np.array(wrong), **terms)
        with pytest.raises(ValueError, match="the ledger is for"):
            replace(made, adjacency=Adjacency.REPLACE).choose(np.zeros(3), **terms)
        assert ledger.charges == []
