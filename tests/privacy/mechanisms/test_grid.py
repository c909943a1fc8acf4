"""The grid: rounding never lengthens, sums are exact, and there is room for them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.clipping import ROUNDING, ExampleClip, UserClip
from murmuration.privacy.mechanisms.counting_clip import CountingClip

NORMS = st.floats(1e-6, 1e6)
ROWS = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 8)),
    elements=st.floats(-(2.0**99), 2.0**99, width=32),
)


@given(NORMS)
def test_a_norm_is_at_least_so_many_steps_and_less_than_twice(norm):
    step = grid.step_for(norm)
    assert math.frexp(step)[0] == 0.5  # a power of two
    assert 2.0**grid.PRECISION <= norm / step < 2.0 ** (grid.PRECISION + 1)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf, 1e-300])
def test_lengths_without_a_grid(norm):
    with pytest.raises(ValueError, match="no grid"):
        grid.step_for(norm)


@given(ROWS, NORMS)
def test_a_user_on_the_grid_stays_within_the_norm(rows, norm):
    """The sensitivity after rounding is at most C, in whole numbers, for any input."""
    clip = UserClip(norm)
    for row in rows:
        sum_D = clip.clip_sum(torch.from_numpy(row[None])).numpy()
        steps = grid.to_whole(sum_D, clip.step)
        length2 = sum(int(step) ** 2 for step in steps)  # exact
        assert length2 <= (norm / clip.step) ** 2
    assert clip.sensitivity(Adjacency.REPLACE) == 2 * norm


@given(ROWS, NORMS)
def test_rounding_moves_a_user_toward_zero_by_less_than_a_step(rows, norm):
    clip, bound = UserClip(norm), norm * ROUNDING
    for row in rows.astype(np.float64):
        exact_D = row * (bound / max(bound, math.sqrt(math.fsum(row * row))))
        found_D = clip.clip_sum(torch.from_numpy(row.astype(np.float32)[None])).numpy()
        slack_D = 1e-12 * np.abs(exact_D)
        assert (np.abs(found_D) <= np.abs(exact_D) + slack_D).all()
        assert (np.abs(exact_D - found_D) < clip.step + slack_D).all()
        assert (found_D * exact_D >= 0).all()


@given(ROWS, NORMS, st.integers(0, 2**31))
def test_a_sum_on_the_grid_is_the_same_in_any_order_and_grouping(rows, norm, seed):
    clip = UserClip(norm)
    whole_D = clip.clip_sum(torch.from_numpy(rows)).numpy()
    order = np.random.default_rng(seed).permutation(len(rows))
    parts = [clip.clip_sum(torch.from_numpy(rows[[row]])).numpy() for row in order]
    total_D = np.zeros_like(whole_D)
    for part_D in parts:
        total_D += part_D
    assert total_D.tobytes() == (whole_D + 0.0).tobytes()


def test_counts_beside_sums_are_on_their_grid():
    clip = CountingClip(0.3)
    rows_BD = torch.randn(7, 5, generator=torch.Generator().manual_seed(0)) * 0.2
    sum_D1 = clip.clip_sum(rows_BD).numpy()
    assert grid.to_whole(sum_D1[:-1], grid.step_for(0.3)).any()
    assert grid.to_whole(sum_D1[-1:], grid.COUNT_STEP).any()
    assert np.array_equal(sum_D1[:-1], UserClip(0.3).clip_sum(rows_BD).numpy())


@given(ROWS, NORMS)
def test_examples_are_on_the_grid_as_their_gradients_are(rows, norm):
    x_KD = torch.from_numpy(rows)
    length_K = torch.linalg.vector_norm(x_KD.double(), dim=1)
    clip = ExampleClip(norm)
    sum_D = clip.clip_sum(x_KD, torch.ones(len(rows)), length_K).numpy()
    grid.to_whole(sum_D, clip.step)  # raises off the grid
    formed_D = UserClip(norm).clip_sum(x_KD).numpy()
    assert (np.abs(sum_D - formed_D) <= len(rows) * clip.step).all()  # of lengths in another order


def test_room_is_checked_for_everybody_at_their_worst():
    step = grid.step_for(1.0)
    room = int(2.0**52 * step)
    grid.check_room(room, 1.0, step)
    with pytest.raises(ValueError, match=f"there is room for {room:,}"):
        grid.check_room(room + 1, 1.0, step)
    # Even so many at their worst are far from the modulus.
    assert room / step * 2 < 2 ** (grid.MODULUS_BITS - 1)


@given(st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=5), NORMS)
def test_whole_numbers_of_steps_and_back(steps, norm):
    step, whole = grid.step_for(norm), np.array(steps, dtype=np.int64)
    values = grid.from_whole(whole, step)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(grid.to_whole(values, step), whole)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.3, "not on the grid"),
        (math.nan, "not on the grid"),
        (math.inf, "not on the grid"),
        (2.0**30, "beyond the range"),
    ],
)
def test_values_that_are_not_whole_steps(value, message):
    with pytest.raises(ValueError, match=message):
        grid.to_whole(np.array([0.5, value]), 2.0**-24)


def test_a_wrong_number_in_any_block_is_found():
    """Long sums are looked at in blocks."""
    values = np.zeros((3, 50_000))
    grid.check_whole(values, 0.5)
    for place in (0, 65_535, 65_536, 149_999):
        wrong = values.copy()
        wrong.reshape(-1)[place] = 0.25
        for look in (grid.check_whole, grid.to_whole, grid.to_short):
            with pytest.raises(ValueError, match="not on the grid"):
                look(wrong, 0.5)
        wrong.reshape(-1)[place] = -7.5
        assert grid.to_whole(wrong, 0.5).reshape(-1)[place] == -15
        assert grid.to_short(wrong, 0.5).shape == (3, 50_000)


@given(NORMS, st.integers(1, 10))
def test_what_is_said_to_fit_32_bits_does_at_its_worst(norm, vectors):
    assert grid.short(vectors) == (vectors <= 3)
    worst = UserClip(norm).clip_sum(torch.full((vectors, 1), math.inf).nan_to_num()).numpy()
    if grid.short(vectors):
        short = grid.to_short(-worst, UserClip(norm).step)
        assert short.dtype == np.int32
        assert grid.from_whole(short, UserClip(norm).step) == -worst


def test_what_does_not_fit_32_bits_is_never_cut():
    for whole in (2**31, -(2**31), 2**40):
        with pytest.raises(ValueError, match="does not fit"):
            grid.to_short(np.array([0.0, float(whole)]), 1.0)
    assert grid.to_short(np.array([2.0**31 - 1]), 1.0).tolist() == [2**31 - 1]
