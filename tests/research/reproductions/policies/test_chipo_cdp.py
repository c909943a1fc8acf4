"""The exponential mechanism over a class of policies: what is computed, and what rows must show."""

import numpy as np
import pytest
from scipy import special

from murmuration.audits.auditing import scratch_ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.policies import chipo_cdp
from murmuration.research.reproductions.policies.chipo_cdp import KINDS, MOST, POLICIES, R_MAX
from murmuration.research.strategies.choice.exponential_mechanism import STEPS, span_of

SMALL = {"sizes": (100, 1000), "epsilons": (0.3, 3.0), "repetitions": 3}


@pytest.fixture(scope="module")
def class_():
    return chipo_cdp.policies()


@pytest.fixture(scope="module")
def rows():
    return chipo_cdp.chipo_cdp(**SMALL)


def test_the_class_is_of_policies_and_the_same_whoever_is_asked(class_):
    ratio_PSA, value_P = class_
    share_PSA = np.exp(ratio_PSA) / ratio_PSA.shape[2]
    np.testing.assert_allclose(share_PSA.sum(axis=2), 1.0)
    assert ((value_P > 0.0) & (value_P < R_MAX)).all()
    best = chipo_cdp.truth().max(axis=1).mean()
    assert value_P.max() < best
    chipo_cdp.asked(50, 1)
    np.testing.assert_array_equal(chipo_cdp.policies()[0], ratio_PSA)


def test_losses_lie_within_the_span(class_):
    loss_KP = chipo_cdp.losses(class_[0])
    assert loss_KP.shape == (len(KINDS), POLICIES)
    assert np.ptp(loss_KP, axis=1).max() <= span_of(R_MAX)
    # Whoever says the reverse loses where the other gains.
    first = int(np.flatnonzero((KINDS == (2, 1, 3)).all(axis=1))[0])
    other = int(np.flatnonzero((KINDS == (2, 3, 1)).all(axis=1))[0])
    said_P, reverse_P = 1.0 - np.sqrt(loss_KP[first]), 1.0 - np.sqrt(loss_KP[other])
    np.testing.assert_allclose(said_P, -reverse_P, atol=1e-9)


def test_people_are_asked_as_they_should_be():
    people = chipo_cdp.asked(4000, 5)
    counts = np.array([len(kinds) for kinds in people])
    assert (counts.min(), counts.max()) == (1, MOST)
    kinds = np.concatenate(people)
    prompt, first, other = KINDS[kinds].T
    assert (first != other).all()
    pair = (prompt == 0) & np.isin(first, (0, 1)) & np.isin(other, (0, 1))
    truth_SA = chipo_cdp.truth()
    expected = special.expit(truth_SA[0, 0] - truth_SA[0, 1])
    share = (first[pair] == 0).mean()
    assert abs(share - expected) < 5 * np.sqrt(0.25 / pair.sum())
    later = chipo_cdp.asked(4000, 6)
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(people, later, strict=True))


@pytest.mark.parametrize("cap", chipo_cdp.LEVELS.values())
def test_what_is_averaged_is_what_the_mechanism_does(class_, cap):
    ratio_PSA, value_P = class_
    loss_KP, people = chipo_cdp.losses(ratio_PSA), chipo_cdp.asked(200, 0)
    made = chipo_cdp.mechanism(0.3, Adjacency.REPLACE, cap)
    sum_P = sum(made.contribution(loss_KP[kinds_J]) for kinds_J in people)
    assert made.is_valid(sum_P, 200)
    with scratch_ledger(Adjacency.REPLACE) as ledger:
        chosen = [
            made.choose(sum_P, round_=i, covers="a", ledger=ledger, source=Randomness(0))
            for i in range(200)
        ]
    chance_P = made.probabilities(sum_P)
    expected = chance_P @ value_P
    spread = np.sqrt(chance_P @ (value_P - expected) ** 2 / len(chosen))
    assert abs(value_P[chosen].mean() - expected) < 5 * spread
    if not cap:
        weight_K = sum(np.bincount(k, minlength=len(KINDS)) / len(k) for k in people)
        exact_P = weight_K @ loss_KP
        found_P = sum_P * made.span / STEPS
        shift = exact_P - found_P
        assert np.ptp(shift) <= 200 * made.span / STEPS


def test_more_people_and_a_larger_epsilon_miss_less(rows):
    assert chipo_cdp.agrees(rows)
    assert len(rows) == 2 * 2 * (1 + 2 * 2)
    for row in rows:
        if row["adjacency"]:
            assert 0.0 <= row["excess"] <= row["bound"]
            assert row["user_epsilon"] == row["epsilon"] * (MOST if row["level"] == "item" else 1)
    swapped, comes = (
        [r["excess"] for r in rows if r["adjacency"] == name] for name in ("replace", "add-remove")
    )
    assert all(a > b for a, b in zip(swapped, comes, strict=True))


def test_the_rule_can_say_no(rows):
    last = {"level": "user", "adjacency": "replace", "epsilon": 3.0, "n": 1000}

    def but(**changes):
        return [{**r, **changes} if last.items() <= r.items() else r for r in rows]

    assert chipo_cdp.agrees(but())
    assert not chipo_cdp.agrees(but(excess=100.0))
    assert not chipo_cdp.agrees(but(gap_mean=0.3))
    assert not chipo_cdp.agrees(but(bound=0.0))
