import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting.events import HoldOut
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.tally import LOSS_BOUND, STEPS, Tally, TallyRelease
from murmuration.privacy.user_histogram import ACCURACIES

PAIRS, TOKENS = Tally(), Tally(loss=True)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def counts(*first, beside=None):
    """Counts by accuracy, and maybe a loss."""
    sum_F = np.zeros(11 if beside is None else 12)
    sum_F[: len(first)] = first
    if beside is not None:
        sum_F[-1] = beside
    return sum_F


@given(ANY, ANY, ANY, ANY)
def test_no_user_moves_a_tally_by_more_than_is_accounted_for(share, loss, other, other_loss):
    for tally in (PAIRS, TOKENS):
        mine_F = tally.contribution(share, loss)
        theirs_F = tally.contribution(other, other_loss)
        assert np.abs(mine_F).sum() <= STEPS
        assert np.abs(mine_F - theirs_F).sum() <= 2 * STEPS
        assert (mine_F % 1.0 == 0.0).all()
        assert tally.is_valid(mine_F, 1)
        assert tally.is_valid(mine_F + theirs_F, 2)


def test_figures_without_noise_are_the_mean_over_users():
    sum_F = sum(PAIRS.contribution(share) for share in (1.0, 0.5, 0.0, 0.75))
    measured = PAIRS.read(sum_F)
    assert measured.accuracy == pytest.approx(0.5625, abs=2 / STEPS)
    assert measured.noise == 0.0
    assert measured.error == pytest.approx(math.sqrt(0.5625 * 0.4375 / 4), rel=1e-5)
    assert measured.accuracies == ACCURACIES.spread(np.array([1.0, 0.5, 0.0, 0.75]))
    sum_F = sum(TOKENS.contribution(0.25, loss) for loss in (2.0, 4.0, 100.0, -3.0))
    measured = TOKENS.read(sum_F)
    assert measured.accuracy == pytest.approx(0.25, abs=4 / STEPS)
    assert measured.loss == pytest.approx((2 + 4 + LOSS_BOUND + 0) / 4, abs=1e-4)


@pytest.mark.parametrize("sum_F", [[0.0, 0.0], [-STEPS, 2 * STEPS], [30.0 * STEPS, 0.0]])
def test_too_few_users_for_their_noise_are_no_figure(sum_F):
    assert PAIRS.read(counts(*sum_F), std=4.0 * STEPS) is None
    assert PAIRS.read(counts(40.0 * STEPS), std=4.0 * STEPS) is not None


@pytest.mark.parametrize(
    "sum_F",
    [
        [-1.0, STEPS + 1.0],  # negative
        [1e12, 0.0],
        [3.0 * STEPS, 0.0],  # more than were asked
        [0.5, STEPS - 0.5],  # off the grid
        [1.0, 1.0],  # no number of users
        [math.nan, 0.0],
        [math.inf, 0.0],
    ],
)
def test_what_so_many_users_cannot_produce_is_not_admitted(sum_F):
    assert not PAIRS.is_valid(counts(*sum_F), 2)
    assert PAIRS.is_valid(counts(STEPS, STEPS), 2)
    assert not TOKENS.is_valid(counts(*sum_F, beside=0.0), 2)
    assert not TOKENS.is_valid(counts(STEPS / 2, beside=STEPS), 2)  # more loss than one user has


def release(adjacency=Adjacency.ADD_REMOVE, epsilon=0.5, tally=PAIRS):
    return TallyRelease(HoldOut(0.2, epsilon), adjacency, tally)


def test_noise_is_for_what_a_user_can_move():
    assert release().scale == STEPS / Fraction(0.5)
    assert release(Adjacency.REPLACE).scale == 2 * STEPS / Fraction(0.5)
    with pytest.raises(ValueError, match="epsilon"):
        release(epsilon=0.0)


@pytest.mark.parametrize("seed", [5, None])
def test_every_release_is_charged_and_drawn_anew(checks, tmp_path, seed):
    sum_F, source = counts(300.0 * STEPS, 100.0 * STEPS), Randomness(seed)
    with checks.promise(tmp_path / "l", budget=0.6) as ledger:
        told = [release().release(sum_F, round_=3, ledger=ledger, source=source) for _ in range(2)]
        assert ledger.spent() == {HoldOut(0.2, 0.5): 2}
        for one, other, exact in zip(*told, sum_F, strict=True):
            assert len({one, other, exact}) == 3


def test_a_second_release_must_be_paid_for(checks, tmp_path):
    sum_F, source = counts(300.0 * STEPS, 100.0 * STEPS), Randomness(None)
    with checks.promise(tmp_path / "l", budget=0.2) as ledger:
        release().release(sum_F, round_=3, ledger=ledger, source=source)  # log(0.8 + 0.2 e^0.5)
        with pytest.raises(BudgetExceeded):
            release().release(sum_F, round_=3, ledger=ledger, source=source)


def test_what_is_no_sum_of_contributions_is_not_released(checks, tmp_path):
    with checks.promise(tmp_path / "l", budget=9.0) as ledger:
        for bad in (counts(0.5, 1.0), counts(math.nan, 1.0), np.ones(12)):
            with pytest.raises(ValueError, match="whole"):
                release().release(bad, round_=1, ledger=ledger, source=Randomness(1))
        with pytest.raises(ValueError, match="ledger is for"):
            release(Adjacency.REPLACE).release(
                np.zeros(11), round_=1, ledger=ledger, source=Randomness(1)
            )
        assert not ledger.spent()
