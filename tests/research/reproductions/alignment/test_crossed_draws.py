"""Intervals over prompts and seeds: what they are of, and that both count."""

import numpy as np
import pytest

from murmuration.research.reproductions.alignment.crossed_draws import CrossedDraws, interval


def _only_the_first(seeds, prompts, answers):
    chance_SPN = np.zeros((seeds, prompts, answers))
    chance_SPN[:, :, 0] = 1.0
    return chance_SPN


def test_the_first_draw_is_what_was_measured():
    generator = np.random.default_rng(3)
    chance_SPN = generator.dirichlet(np.ones(4), (3, 20))
    figure_PN = generator.standard_normal((20, 4))
    found_B = CrossedDraws(20, 3).means(chance_SPN, figure_PN)
    assert found_B[0] == pytest.approx((chance_SPN * figure_PN).sum(2).mean())


def test_prompts_spread_as_their_standard_error_says():
    figure_PN = np.random.default_rng(0).standard_normal((400, 2))
    found_B = CrossedDraws(400, 3).means(_only_the_first(3, 400, 2), figure_PN)
    assert found_B[1:].std() == pytest.approx(figure_PN[:, 0].std() / 20, rel=0.1)


def test_seeds_spread_too():
    """Of two seeds one always chooses what is worth one, the other what is worth nothing."""
    chance_SPN = np.zeros((2, 50, 2))
    chance_SPN[0, :, 0] = chance_SPN[1, :, 1] = 1.0
    found_B = CrossedDraws(50, 2).means(chance_SPN, np.tile([1.0, 0.0], (50, 1)))
    assert found_B[0] == pytest.approx(0.5)
    assert set(np.unique(found_B).round(9)) == {0.0, 0.5, 1.0}


def test_ratios_are_paired():
    generator = np.random.default_rng(1)
    chance_SPN = _only_the_first(3, 60, 2)
    figure_PN = generator.standard_normal((60, 2)) + 1.0
    draws = CrossedDraws(60, 3)
    ratio = draws.means(chance_SPN, 0.8 * figure_PN) / draws.means(chance_SPN, figure_PN)
    np.testing.assert_allclose(ratio, 0.8)


def test_wins_by_length_alone_are_taken_off():
    generator = np.random.default_rng(2)
    longer_PN = generator.standard_normal((300, 4)) + 0.7
    wins_PN = (generator.random((300, 4)) < 1 / (1 + np.exp(-3 * longer_PN))).astype(float)
    chance_SPN = np.full((2, 300, 4), 0.25)
    draws = CrossedDraws(300, 2)
    plain = interval("win", draws.means(chance_SPN, wins_PN))
    even = interval("win", draws.length_controlled(chance_SPN, wins_PN, longer_PN))
    assert plain["win_low"] > 0.6
    assert even["win_low"] < 0.5 < even["win_high"]
    assert even["win_low"] < even["win"] < even["win_high"]
