"""Frontiers of best of n: what a good, a useless and a wrong reward come to."""

from dataclasses import replace

import numpy as np
import pytest

from murmuration.research.reproductions.alignment import frontier
from murmuration.research.reproductions.alignment.answers import Answers
from murmuration.research.reproductions.alignment.claims import AGREES, DISAGREES
from murmuration.research.reproductions.alignment.frontier import Curve
from murmuration.research.reproductions.alignment.rewards import (
    CENTRED,
    NONPRIVATE,
    PRIVATE,
    PUBLISHED,
    USERWISE,
    Learnt,
)


@pytest.fixture(scope="module")
def pool():
    """40 prompts with 8 answers: the first feature is the truth, the second is something else."""
    generator = np.random.default_rng(0)
    phi_PND = generator.standard_normal((40, 8, 2)).astype(np.float32)
    return Answers(phi_PND[:, :, 0].astype(np.float64), np.zeros((40, 8), bool), phi_PND)


def learnt(right, wrong):
    return Learnt(np.array([right, wrong], np.float32), 0.7, 5)


def test_kl_is_that_of_best_of_n():
    np.testing.assert_allclose(frontier.kls(4), np.log([1, 2, 3, 4]) - [0, 1 / 2, 2 / 3, 3 / 4])


def test_who_chooses_by_the_truth_has_the_frontier(pool):
    truth = Curve.of(pool, None)
    same = Curve.of(pool, np.array([3.0, 0.0], np.float32))
    np.testing.assert_allclose(truth.true_n, same.true_n)
    assert truth.true_n[-1] == pytest.approx(pool.truth_PN.max(axis=1).mean())
    assert truth.gap == pytest.approx(0.0, abs=1e-6) == same.gap
    assert (np.diff(truth.true_n) > 0).all()


def test_a_reward_that_says_something_else_gains_by_itself_alone(pool):
    noise = Curve.of(pool, np.array([0.0, 1.0], np.float32))
    against = Curve.of(pool, np.array([-1.0, 0.0], np.float32))
    assert abs(noise.area) < 0.25 * Curve.of(pool, None).area
    assert noise.gap > 0.9
    assert against.area < -0.3
    assert against.true_n[-1] == pytest.approx(pool.truth_PN.min(axis=1).mean())


def test_a_reward_that_says_nothing_gains_nothing(pool):
    nothing = Curve.of(pool, np.zeros(2, np.float32))
    np.testing.assert_allclose(nothing.true_n, nothing.true_n[0])
    assert nothing.gap == pytest.approx(0.0, abs=1e-9)


@pytest.fixture(scope="module")
def found():
    """Of three seeds: published AUP is noise, the rest learn, more so at the larger ε."""
    seeds = []
    for seed in range(3):
        aside = 0.01 * seed
        of = {(NONPRIVATE, None): learnt(1.0, aside)}
        for name in PRIVATE:
            for epsilon, noise in ((3.0, 1.0), (8.0, 0.3)):
                right = 0.0 if name == PUBLISHED else 1.0
                of[name, epsilon] = learnt(right, noise + aside)
        of[CENTRED, 8.0] = learnt(1.0, 0.1 + aside)
        seeds.append(of)
    return seeds


def test_claims_say_who_is_above_whom(found, pool):
    areas = {key: [Curve.of(pool, one[key].theta_D).area for one in found] for key in found[0]}
    verdicts = {claim.said: claim.verdict for claim in frontier.claims(areas)}
    assert len(verdicts) == 4 * 2 * 4 + 8
    assert verdicts[f"{PUBLISHED} above {USERWISE} at ε = 8"] == DISAGREES
    assert verdicts[f"{CENTRED} above {USERWISE} at ε = 8"] == AGREES
    assert verdicts[f"{USERWISE} at ε = 8 above ε = 3"] == AGREES


def test_every_strategy_has_rows(found, pool):
    result = frontier.measured(pool, found)
    curves = [row for row in result.rows if "kl" in row]
    assert [row["n"] for row in curves[:4]] == [1, 2, 4, 8]
    assert len(curves) == 4 * (2 * len(PRIVATE) + 2)
    sums = [row for row in result.rows if "area_mean" in row]
    assert len(sums) == 2 * len(PRIVATE) + 1


def test_where_nothing_can_be_read_it_says_so(found, pool):
    """As of ``--quick``, whose reference has read too little."""
    nothing = replace(
        pool,
        truth_PN=np.full_like(pool.truth_PN, -3.9),
        unreadable_PN=np.ones_like(pool.truth_PN, dtype=bool),
    )
    remarks = frontier.measured(nothing, found).remarks
    assert any("100.0% cannot be read, so this says NOTHING" in text for text in remarks)
