"""Self-play on an intransitive population: gaps that are known, and estimates with known noise."""

import math

import numpy as np
import pytest

from murmuration.research.kept_results import decoded, encoded
from murmuration.research.reproductions.policies import chipo_selfplay
from murmuration.research.reproductions.policies.chipo_selfplay import (
    ALGORITHMS,
    GRID,
    REFERENCE_A,
    SELF_PLAY,
    TRUE_AA,
    duality_gap,
    estimated,
    judged,
    self_play,
)

TRUTH_RAA = np.repeat(TRUE_AA[None], 8, axis=0)


def test_nobody_is_best_and_the_last_is_last():
    assert TRUE_AA[0, 1] > 0 and TRUE_AA[1, 2] > 0 and TRUE_AA[2, 0] > 0
    assert (TRUE_AA[:3, 3] > 0.7).all()
    np.testing.assert_array_equal(TRUE_AA, -TRUE_AA.T)


def test_the_gap_is_zero_at_the_equilibrium_and_known_elsewhere():
    rock, paper, scissors = TRUE_AA[1, 2], TRUE_AA[2, 0], TRUE_AA[0, 1]
    nash_A = np.array([rock, paper, scissors, 0.0]) / (rock + paper + scissors)
    alone_A = np.array([0.0, 0.0, 0.0, 1.0])
    assert duality_gap(np.stack([nash_A, alone_A])) == pytest.approx([0.0, 1.6], abs=1e-12)
    assert (duality_gap(np.random.default_rng(0).dirichlet(np.ones(4), 50)) > 0).all()


@pytest.mark.parametrize(
    ("channel", "epsilon"), [("none", math.inf), ("local", 1.0), ("central", 1.0)]
)
def test_with_many_judgements_the_preference_is_learnt(channel, epsilon):
    ell_AA = estimated(*judged(200_000, 1), channel, epsilon, 1)
    np.testing.assert_array_equal(ell_AA, -ell_AA.T)
    assert np.abs(ell_AA - TRUE_AA).max() < 0.1


def test_labels_are_corrected_for_their_flips_and_pay_for_it():
    """c² times the variance of clean labels, and unbiased: ±1 labels of one pair."""
    pairs_N2, ones_N = np.tile([[0, 1]], (400, 1)), np.tile([1.0, -1.0], 200)
    values = [estimated(pairs_N2, ones_N, "local", 1.0, seed)[0, 1] for seed in range(300)]
    c = 1 / math.tanh(0.5)
    assert np.mean(values) == pytest.approx(0.0, abs=4 * c / 20 / math.sqrt(300))
    assert np.std(values) == pytest.approx(math.sqrt((c**2 - 1) / 400), rel=0.15)


def test_the_mechanism_chooses_as_it_promises():
    """One pair judged 40 times, all the same: chances are in proportion to exp(−ε/8 · loss)."""
    pairs_N2, ones_N = np.tile([[1, 2]], (40, 1)), np.ones(40)
    drawn = [estimated(pairs_N2, ones_N, "central", 0.5, seed)[1, 2] for seed in range(4000)]
    weight = np.exp(-0.5 / 8 * 40 * (GRID - 1) ** 2)
    for value in (1.0, 0.5):
        at = np.argmin(np.abs(GRID - value))
        expected = weight[at] / weight.sum()
        share = np.mean(np.abs(np.array(drawn) - value) < 1e-9)
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / 4000))


def test_an_update_minimises_the_regularized_objective():
    """π_2 and −⟨r, p⟩ + β·D(p, ref) + β/η·B(p, ref), D being χ² + KL: nothing near is less."""
    iterations = 2
    mean_RA = self_play(TRUTH_RAA, iterations, 1.0, 3)[SELF_PLAY]
    second_RA = 2 * mean_RA - REFERENCE_A
    beta, eta = 1 / math.sqrt(2), 0.5
    weight = beta * (1 + 1 / eta)

    def objective(p_A, reward_A):
        ratio_A = p_A / REFERENCE_A
        chi = (REFERENCE_A * (ratio_A - 1) ** 2).sum() / 2
        # At the reference F and its slope are constants on the simplex: B(p, ref) is D(p, ref).
        return -reward_A @ p_A + weight * (chi + (p_A * np.log(ratio_A)).sum())

    move_MA = np.random.default_rng(5).standard_normal((50, 4)) * 1e-3
    move_MA -= move_MA.mean(axis=1, keepdims=True)
    for p_A in second_RA:  # the best for the reward of the response that was drawn, whichever it is
        assert any(
            all(objective(p_A + move_A, reward_A) > objective(p_A, reward_A) for move_A in move_MA)
            for reward_A in TRUE_AA.T
        )


@pytest.mark.parametrize("run", ALGORITHMS)
def test_policies_are_policies_and_do_better_than_the_reference(run):
    reference = duality_gap(REFERENCE_A[None])[0]
    for policy_RA in run(TRUTH_RAA, 100, 1.0, 0).values():
        np.testing.assert_allclose(policy_RA.sum(axis=1), 1.0, rtol=1e-6)
        assert duality_gap(policy_RA).mean() < reference


@pytest.fixture(scope="module")
def rows():
    return chipo_selfplay.chipo_selfplay(seeds=4, n=2000, iterations=(3, 60))


def test_privacy_costs_and_iterations_help(rows):
    gap = {
        (row["channel"], row["epsilon"], row["iterations"]): row["gap_mean"]
        for row in rows
        if row["algorithm"] == SELF_PLAY
    }
    assert gap["none", None, 60] < gap["none", None, 3]
    assert gap["none", None, 60] < gap["local", 0.3, 60]


def test_each_policy_has_the_scale_of_its_own(monkeypatch):
    """Also one that is not the first that its algorithm gives."""

    def run(ell_RAA, iterations, scale, seed):
        def mixed(best):
            share = 1.0 / (1.0 + abs(math.log(scale / best)))
            even_A = np.array([1.0, 1.0, 1.0, 0.0]) / 3
            return (share * even_A + (1 - share) * np.eye(4)[3])[None]

        return {"last": mixed(0.3), "mean": mixed(10.0)}

    monkeypatch.setattr(chipo_selfplay, "ALGORITHMS", {run: ("last", "mean")})
    assert chipo_selfplay.own_scales(TRUTH_RAA, 3) == {"last": 0.3, "mean": 10.0}


def test_the_rule():
    assert [chipo_selfplay.verdict(*ends) for ends in ((0.1, 0.2), (-0.2, -0.1), (-1, 1))] == [
        "yes", "no", "undecided",
    ]  # fmt: skip


def test_an_interrupted_one_goes_on():
    """What tasks give can be kept, and is read as what it was."""
    own = chipo_selfplay.tuned((200, 2, 3))
    gaps = chipo_selfplay.played(("local", 1.0, 200, 2, 3, own))
    assert decoded(encoded(own)) == own
    for name, gap_R in decoded(encoded(gaps)).items():
        np.testing.assert_array_equal(gap_R, gaps[name])
