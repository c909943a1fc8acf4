"""Sums of clipped vectors and counts of who was within the bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.mechanisms import clipping, parallel
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.counting_clip import CountingClip


@pytest.mark.parametrize("norm", [0.03, 4.0])
def test_vectors_are_bounded(checks, norm):
    checks.clips(lambda grads_BD: CountingClip(norm).clip_sum(grads_BD)[:-1], norm)


def test_what_is_bounded_is_the_distance_from_the_centre(checks):
    centre_D = torch.tensor([3.0, -4.0, 0.0, 0.0], dtype=torch.float64)
    bound = CountingClip(0.7, centre_D=centre_D)
    near_D = centre_D + torch.tensor([0.0, 0.0, 0.0, 0.2], dtype=torch.float64)
    sum_D1 = bound.clip_sum(torch.stack([near_D, torch.zeros(4, dtype=torch.float64)]))
    expected_D = near_D - centre_D - 0.7 * centre_D / 5.0
    torch.testing.assert_close(sum_D1[:-1], expected_D, rtol=1e-5, atol=1e-9)
    assert float(sum_D1[-1]) == 0.0  # one within, one not
    checks.bounded_influence(
        lambda grads_BD, _: bound.clip_sum(grads_BD), bound=math.hypot(0.7, 0.5)
    )


@pytest.mark.parametrize(("middle", "expected"), [(0.5, 0.5), (0.0, 2.0)])
def test_who_is_within_is_counted_and_who_is_not_finite_is_nobody(middle, expected):
    vectors_BD = torch.tensor(
        [[1.0, 0.0], [0.0, 0.0], [1.1, 0.0], [math.nan, 0.0], [0.0, math.inf]]
    )
    sum_D1 = CountingClip(1.0, middle).clip_sum(vectors_BD)
    assert float(sum_D1[-1]) == expected  # on the sphere is within
    assert torch.isfinite(sum_D1).all()
    assert CountingClip(1.0).clip_sum(torch.zeros(0, 3)).tolist() == [0.0] * 4


@given(st.lists(st.floats(width=32), min_size=1, max_size=40), st.floats(1e-6, 1e6))
def test_no_user_moves_vector_or_count_further_than_stated(values, norm):
    rows_BD = torch.tensor(values)[:, None].repeat(1, 2)
    for row_D in rows_BD:
        sum_D1 = CountingClip(norm).clip_sum(row_D[None])
        assert float(sum_D1[:-1].norm()) <= norm
        assert abs(float(sum_D1[-1])) <= 0.5
    all_D1 = CountingClip(norm).clip_sum(rows_BD)
    alone = sum(CountingClip(norm).clip_sum(row_D[None]) for row_D in rows_BD)
    torch.testing.assert_close(all_D1, alone, rtol=1e-9, atol=1e-9 * norm)


@pytest.mark.parametrize("centred", [False, True])
def test_threads_change_no_bit_of_a_long_vector(centred):
    """Lengths are sums of fixed stretches in a fixed order."""
    draws = torch.Generator().manual_seed(0)
    length = 3 * parallel.COLUMNS + 11
    vectors_BD = torch.randn(3, length, generator=draws) * torch.tensor([[1e-4], [1.0], [1e9]])
    vectors_BD[1, -1] = torch.nan
    centre_D = torch.randn(length, generator=draws).double() if centred else None
    bound, sums = CountingClip(0.5, 0.0, centre_D), []
    before = torch.get_num_threads()
    try:
        for cores in (1, 2, 3, 7):
            torch.set_num_threads(cores)
            sums.append(bound.clip_sum(vectors_BD))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(sums[0], other) for other in sums[1:])
    assert float(sums[0][-1]) == float(not centred)  # the short one, but where it is far away
    rows_BD = vectors_BD[[0, 2]].double() - (0.0 if centre_D is None else centre_D)
    clipped_BD = rows_BD * (0.5 / rows_BD.norm(dim=1, keepdim=True)).clamp(max=1.0)
    torch.testing.assert_close(sums[0][:-1], clipped_BD.sum(0), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("centred", [False, True])
def test_company_changes_no_bit_of_a_long_vector(centred):
    """Nor whether it is within: terms are added in the same order, whoever shares the chunk."""
    draws = torch.Generator().manual_seed(0)
    length = parallel.COLUMNS + 5_000
    vectors_BD = torch.randn(4, length, generator=draws)
    centre_D = 0.1 * torch.randn(length, generator=draws).double() if centred else None

    def moves_alone(bound):
        alone = sum(bound.clip_sum(row_D[None].clone()) for row_D in vectors_BD)
        return torch.equal(bound.clip_sum(vectors_BD), alone)

    apart_BD = vectors_BD.double() - (0.0 if centre_D is None else centre_D)
    for norm in apart_BD.norm(dim=1).tolist():
        # Where the last digit of a length decides, and next to there.
        for near in norm * (1.0 + 2.0**-52 * np.arange(-300, 300, 25)):
            assert moves_alone(CountingClip(float(near), 0.5, centre_D))


@pytest.mark.parametrize("centred", [False, True])
def test_vectors_on_another_device_are_clipped_and_counted_the_same(monkeypatch, centred):
    monkeypatch.setattr(clipping, "_PIECE", 3)
    draws = torch.Generator().manual_seed(0)
    vectors_BD = torch.randn(6, 10, generator=draws) * torch.tensor(
        [[1e-3], [0.1], [1.0], [1e15], [1.0], [0.0]]
    )
    vectors_BD[2, 4], vectors_BD[4, 9] = torch.nan, torch.inf
    centre_D = 0.1 * torch.randn(10, generator=draws).double() if centred else None
    clip, bound = UserClip(0.7), CountingClip(0.7, 0.0, centre_D)
    norm, sum_D = clip.norm * clipping.ROUNDING, torch.zeros(10, dtype=torch.float64)
    length_B = clipping.add_there(sum_D, vectors_BD, norm, clip.step, centre_D)
    here_D1 = bound.clip_sum(vectors_BD)
    # Lengths are added up in another order: a step more or less.
    assert float((sum_D - here_D1[:-1]).abs().max()) <= 6 * clip.step
    assert int((length_B <= clip.norm).sum()) == float(here_D1[-1]) == 3


# What is released
