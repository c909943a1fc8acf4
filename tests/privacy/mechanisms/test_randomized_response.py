"""Randomized response: exact coins, the promise in closed form, and how budgets are split."""

import decimal
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.mechanisms.randomized_response import (
    LabelPromise,
    RandomizedResponse,
    ToldLabels,
    break_tie,
    composed_delta,
    composed_epsilon,
    per_label_epsilon,
)

EPSILONS = (1e-9, 1e-4, 0.06, 0.1, 1.0, 2.0, 8.0, 30.0, 44.0, 60.0, 1000.0)
CHOICES = (2, 3, 4, 17, 255)
WORDS = 2**64


def growth(epsilon):
    with decimal.localcontext(prec=80):
        return decimal.Decimal(epsilon).exp()


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("choices", CHOICES)
def test_the_promise_holds_exactly(epsilon, choices):
    false = RandomizedResponse(epsilon, choices).words
    true = WORDS - (choices - 1) * false
    with decimal.localcontext(prec=80):
        # No answer's probability grows by more than e^ε, whichever two labels are compared.
        assert decimal.Decimal(max(true, false)) / min(true, false) <= growth(epsilon)
        ideal = WORDS / (growth(epsilon) + choices - 1)
        assert false - 1 < ideal <= false
    assert true >= false >= 1


@pytest.mark.parametrize("epsilon", [0.06, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("choices", [2, 3, 5])
def test_epsilon_of_the_channel_in_closed_form(epsilon, choices):
    matrix = RandomizedResponse(epsilon, choices).matrix()
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=1e-15)
    # What is told of a tie is the mean over those that tie.
    subsets = [
        subset
        for size in range(2, choices + 1)
        for subset in itertools.combinations(range(choices), size)
    ]
    ties = np.stack([matrix[list(subset)].mean(axis=0) for subset in subsets])
    for rows in (matrix, np.concatenate([matrix, ties])):
        logs = np.log(rows)
        assert (logs[:, None] - logs[None]).max() == pytest.approx(epsilon, abs=1e-12)


@pytest.mark.parametrize(("epsilon", "flip"), [(1.0, 1 / (math.e + 1)), (0.0001, 0.499975)])
def test_flip_probability_of_a_pair(epsilon, flip):
    assert RandomizedResponse(epsilon).flip_probability == pytest.approx(flip, abs=1e-12)
    assert RandomizedResponse(epsilon).flip_probability < 0.5


def test_flip_probability_of_several():
    found = RandomizedResponse(1.5, 4).flip_probability
    assert found == pytest.approx(3 / (math.exp(1.5) + 3), rel=1e-14)


@pytest.mark.parametrize("epsilon", [1e-9, 0.7, 50.0])
@pytest.mark.parametrize("choices", [2, 4, 255])
def test_each_false_answer_owns_exactly_its_words(epsilon, choices):
    mechanism = RandomizedResponse(epsilon, choices)
    t = mechanism.words
    borders = sorted({b for n in range(choices) for b in (n * t - 1, n * t)} | {0, WORDS - 1})
    borders = [word for word in borders if 0 <= word < WORDS]
    for truth in {0, choices // 2, choices - 1}:
        others = [answer for answer in range(choices) if answer != truth]
        found = mechanism.answer(np.full(len(borders), truth), np.array(borders, dtype=np.uint64))
        expected = [others[w // t] if w < (choices - 1) * t else truth for w in borders]
        assert found.tolist() == expected


@pytest.mark.parametrize(("epsilon", "choices"), [(0.5, 2), (2.0, 2), (1.0, 3), (2.0, 5)])
@pytest.mark.parametrize("truth", [0, 1])
def test_answers_are_as_frequent_as_they_should_be(epsilon, choices, truth):
    count = 1_000_000
    mechanism = RandomizedResponse(epsilon, choices)
    generator = np.random.default_rng([choices, truth])
    words = generator.integers(0, WORDS, size=count, dtype=np.uint64)
    found = np.bincount(mechanism.answer(np.full(count, truth), words), minlength=choices)
    expected = np.full(choices, 1 / (math.exp(epsilon) + choices - 1))
    expected[truth] *= math.exp(epsilon)
    scores = (found - count * expected) / np.sqrt(count * expected * (1 - expected))
    # Two-sided, and tight: half a per cent more or less noise would be seen.
    assert np.abs(scores).max() < 4.0
    assert (4.0 * np.sqrt((1 - expected) / (count * expected)) < 0.015).all()


def test_ties_are_settled_evenly():
    words = np.random.default_rng(0).integers(0, WORDS, size=90_000, dtype=np.uint64)
    found = np.array([break_tie((0, 2, 3), int(word)) for word in words])
    counts = np.bincount(found, minlength=4)
    assert counts[1] == 0
    assert np.abs(counts[[0, 2, 3]] - 30_000).max() < 4 * math.sqrt(20_000)
    assert {break_tie((1,), word) for word in (0, WORDS - 1)} == {1}
    assert [break_tie((0, 1), word) for word in (0, WORDS // 2 - 1, WORDS // 2, WORDS - 1)] == [
        *[0, 0, 1, 1]
    ]


@pytest.mark.parametrize("choices", [2, 3, 6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_soft_label_is_unbiased(choices, epsilon):
    mechanism = RandomizedResponse(epsilon, choices)
    p = mechanism.flip_probability
    soft = (np.eye(choices) - p / (choices - 1)) / (1 - p - p / (choices - 1))  # of each answer
    np.testing.assert_allclose(mechanism.matrix() @ soft, np.eye(choices), atol=1e-12)
    tie = mechanism.matrix()[:2].mean(axis=0) @ soft
    np.testing.assert_allclose(tie, [0.5, 0.5] + [0.0] * (choices - 2), atol=1e-12)


@pytest.mark.parametrize("truth", [[-1], [2]])
def test_labels_that_are_no_answer(truth):
    with pytest.raises(ValueError, match="labels must lie in 0…1"):
        RandomizedResponse(1.0).answer(np.array(truth), np.zeros(1, np.uint64))


@pytest.mark.parametrize(
    ("epsilon", "choices"),
    [(0.0, 2), (-1.0, 2), (math.nan, 2), (math.inf, 2), (1e-10, 2), (1.0, 1), (1.0, 256)],
)
def test_mechanisms_that_make_no_sense(epsilon, choices):
    with pytest.raises(ValueError, match=r"epsilon of a label|possible answers"):
        RandomizedResponse(epsilon, choices)


@given(st.floats(0.001, 50), st.integers(1, 5000))
def test_an_even_share_is_never_too_large(epsilon, labels):
    each = per_label_epsilon(epsilon, labels)
    assert Fraction(each) * labels <= Fraction(epsilon)
    assert each == pytest.approx(epsilon / labels, rel=1e-15)


def by_enumeration(per_label, labels, epsilon):
    """The hockey-stick divergence over all answers to ``labels`` pairs."""
    keep = 1 / (1 + math.exp(-per_label))
    total = 0.0
    for flips in itertools.product([False, True], repeat=labels):
        p = math.prod(1 - keep if flip else keep for flip in flips)
        q = math.prod(keep if flip else 1 - keep for flip in flips)
        total += max(0.0, p - math.exp(epsilon) * q)
    return total


@pytest.mark.parametrize("labels", [1, 2, 5, 8])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.9])
def test_composition_by_enumeration(labels, epsilon):
    found = composed_delta(0.4, labels, epsilon)
    assert found == pytest.approx(by_enumeration(0.4, labels, epsilon), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("per_label", "labels"), [(0.1, 50), (0.5, 20), (2.0, 5)])
@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_composition_agrees_with_the_accountant(per_label, labels, delta):
    found = composed_epsilon(per_label, labels, delta)
    flip = RandomizedResponse(per_label).flip_probability
    loss = privacy_loss_distribution.from_randomized_response(
        2 * flip, 2, value_discretization_interval=1e-4
    ).self_compose(labels)
    # The accountant rounds each loss up to its grid.
    accounted = loss.get_epsilon_for_delta(delta)
    assert accounted - 1.1e-4 * labels <= found <= accounted + 1e-9


def test_composition_of_several_answers_is_bounded():
    flip = RandomizedResponse(0.5, 4).flip_probability
    loss = privacy_loss_distribution.from_randomized_response(
        flip * 4 / 3, 4, value_discretization_interval=1e-4
    ).self_compose(20)
    assert loss.get_epsilon_for_delta(1e-5) <= composed_epsilon(0.5, 20, 1e-5)


def test_a_delta_allows_more_where_labels_are_many():
    assert per_label_epsilon(3.0, 50, 1e-5) == pytest.approx(0.105, abs=5e-4)
    assert per_label_epsilon(3.0, 10, 1e-5) == pytest.approx(0.3, rel=1e-3)
    assert per_label_epsilon(3.0, 1, 1e-5) == pytest.approx(3.0, rel=1e-4)


@given(st.floats(0.05, 10), st.integers(1, 300), st.sampled_from([1e-9, 1e-5, 0.01]))
def test_shares_with_a_delta_use_the_budget_and_no_more(epsilon, labels, delta):
    each = per_label_epsilon(epsilon, labels, delta)
    assert each >= per_label_epsilon(epsilon, labels)
    assert composed_delta(each, labels, epsilon) <= delta
    assert composed_delta(each * 1.0001, labels, epsilon) > delta
    assert composed_epsilon(each, labels, delta) <= epsilon * (1 + 1e-9)


def test_what_nothing_costs():
    assert composed_delta(1.0, 0, 0.0) == 0.0
    assert composed_epsilon(1.0, 0, 1e-5) == 0.0
    assert composed_epsilon(1e-9, 3, 1e-5) == 0.0
    assert composed_epsilon(0.25, 8, 0.0) == 2.0
    assert composed_delta(5000.0, 3, 1.0) == 1.0


@pytest.mark.parametrize(
    ("promise", "most", "each", "spent"),
    [
        (LabelPromise(3.0), 6, 0.5, 3.0),
        (LabelPromise(3.0, cap=10), 10, 0.3, 1.8),
    ],
)
def test_what_a_promise_says_to_a_user_with_six_labels(promise, most, each, spent):
    assert promise.most(6) == most
    assert promise.per_label(most) == pytest.approx(each)
    assert promise.spent(promise.per_label(most), 6) == pytest.approx(spent)


def test_a_budget_is_split_over_labels():
    with pytest.raises(ValueError, match="at least one label"):
        LabelPromise(1.0).per_label(0)


@pytest.mark.parametrize(
    "fields",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": 1.0, "cap": -1},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": -1e-9},
        {"epsilon": 1.0, "cap": 2_000_000_000},
        # To split a budget over so many takes minutes and gigabytes, and one message may ask it.
        {"epsilon": 1.0, "cap": 1_000_000, "delta": 1e-6},
        {"epsilon": 1.0, "cap": 1_000_000_000, "delta": 1e-6},
    ],
)
def test_promises_that_make_no_sense(fields):
    with pytest.raises(ValueError, match=r"epsilon|cap|delta"):
        LabelPromise(**fields)


def test_promises_travel():
    promise = LabelPromise(2.5, 20, 1e-5)
    assert LabelPromise.from_config(promise.to_config()) == promise
    assert str(promise) == "epsilon 2.5 and delta 1e-05, at most 20 labels"
    for config in ({}, promise.to_config() | {"x": 1}, promise.to_config() | {"cap": 2.0}):
        with pytest.raises(ValueError, match="not a promise"):
            LabelPromise.from_config(config)


@pytest.mark.parametrize("epsilon", [50.0, 700.0, 1e7, 1e300])
def test_labels_that_are_hardly_randomized_keep_one_word(epsilon):
    assert RandomizedResponse(epsilon, 3).words == 1


# Labels that were told: what fits together and what does not.


GOOD = {
    "start_U": np.array([0, 2, 2, 3]),
    "items_N": np.array([5, 5, 1], dtype=np.uint64),
    "answers_N": np.array([0, 1, 3]),
    "choices_N": np.array([2, 2, 4]),
    "per_label_U": np.array([0.5, 1.0, 2.0]),
}


def test_flips_follow_from_epsilon_and_choices():
    expected = [RandomizedResponse(0.5).flip_probability] * 2
    expected.append(RandomizedResponse(2.0, 4).flip_probability)
    assert ToldLabels(**GOOD).flips_N.tolist() == expected


def test_nobody():
    none = np.zeros(0, dtype=np.int64)
    empty = ToldLabels(
        np.zeros(1, np.int64), none.astype(np.uint64), none, none, none.astype(float)
    )
    assert empty.flips_N.shape == (0,)


@pytest.mark.parametrize(
    "changed",
    [
        {"start_U": np.array([0, 2, 3])},
        {"start_U": np.array([1, 2, 2, 3])},
        {"start_U": np.array([0, 2, 2, 4])},
        {"start_U": np.array([0, 3, 2, 3])},
        {"items_N": np.array([5, 5, 1])},
        {"items_N": np.array([5, 4, 1], dtype=np.uint64)},
        {"answers_N": np.array([0, 1])},
        {"answers_N": np.array([0, 2, 3])},
        {"answers_N": np.array([0, -1, 3])},
        {"choices_N": np.array([2, 2, 300])},
        {"choices_N": np.array([1, 2, 4])},
        {"per_label_U": np.array([np.nan, 1.0, 2.0])},
        {"per_label_U": np.array([0.0, 1.0, 2.0])},
    ],
)
def test_labels_that_do_not_fit(changed):
    with pytest.raises(ValueError, match=r"label|item|answer"):
        ToldLabels(**(GOOD | changed))
