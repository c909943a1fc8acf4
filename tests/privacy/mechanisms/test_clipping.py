import math
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import clipping
from murmuration.privacy.mechanisms.clipping import BLOCK, ExampleClip, NoClip, UserClip

scales = st.floats(-30, 30).map(lambda exponent: 10.0**exponent)
norms = st.floats(-6, 6).map(lambda exponent: 10.0**exponent)


def rows(seed, users, dimensions, scale=1.0):
    generator = np.random.default_rng(seed)
    return torch.from_numpy(generator.standard_normal((users, dimensions)) * scale).float()


def length(vector):
    return float(np.linalg.norm(vector.double().numpy()))


def test_no_user_gets_further_than_the_norm(checks):
    for norm in (1e-3, 1.0, 250.0):
        checks.clips(UserClip(norm).clip_sum, norm)


def test_one_user_moves_the_sum_by_at_most_the_sensitivity(checks):
    checks.bounded_influence(lambda grads, _: UserClip(0.3).clip_sum(grads), bound=0.3)


@given(st.integers(0, 10**6), st.integers(1, 50), scales, norms)
def test_length_and_direction_at_any_scale(seed, dimensions, scale, norm):
    row_D = rows(seed, 1, dimensions, scale)[0]
    clipped_D = UserClip(norm).clip_sum(row_D[None])
    assert clipped_D.dtype == torch.float64
    before, after = length(row_D), length(clipped_D)
    assert after <= norm
    assert length(clipped_D.float()) <= norm  # still, after a narrowing
    rounded = UserClip(norm).step * math.sqrt(dimensions)
    assert after == pytest.approx(min(before, norm), rel=2e-6, abs=rounded)
    wanted_D = row_D.double() * (min(before, norm) / before)
    assert length(clipped_D - wanted_D) <= 2e-6 * norm + rounded


@given(st.integers(0, 10**6), st.integers(1, 50), st.floats(0.0, 0.999999), norms)
def test_what_is_short_enough_is_only_rounded(seed, dimensions, share, norm):
    row_D = rows(seed, 1, dimensions)[0]
    row_D = row_D * (share * norm / length(row_D))
    if length(row_D) <= norm * (1 - 2e-6):
        found_D, clip = UserClip(norm).clip_sum(row_D[None]), UserClip(norm)
        assert (
            found_D.tolist() == (np.trunc(row_D.double().numpy() / clip.step) * clip.step).tolist()
        )


@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([1e-30, 1e-4, 1.0, 1e4, 1e30]), min_size=0, max_size=12),
    st.integers(1, 20),
    norms,
)
def test_the_sum_is_the_sum_of_each_users_clipped_vector(seed, sizes, dimensions, norm):
    grads_BD = rows(seed, len(sizes), dimensions) * torch.tensor(sizes)[:, None]
    expected_D = [0.0] * dimensions
    for row in grads_BD.tolist():
        factor = min(1.0, norm / math.hypot(*row))
        expected_D = [total + factor * value for total, value in zip(expected_D, row, strict=True)]
    sum_D = UserClip(norm).clip_sum(grads_BD)
    assert np.allclose(sum_D.numpy(), expected_D, rtol=1e-12, atol=2e-6 * norm * len(sizes))


@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([0.0, 1e-30, 0.1, 1.0, 3.0, 1e30, math.nan, math.inf]), min_size=1),
    st.integers(1, 30),
    norms,
    st.sampled_from(list(Adjacency)),
    st.data(),
)
def test_the_sum_as_computed_moves_by_at_most_the_sensitivity(
    seed,
    sizes,
    dimensions,
    norm,
    adjacency,
    data,
):
    """In rational numbers: what float64 holds, not what it was meant to hold."""
    grads_BD = rows(seed, len(sizes), dimensions) * torch.tensor(sizes)[:, None]
    grads_BD[0] *= 0.3
    clip, user = UserClip(norm), data.draw(st.integers(0, len(sizes) - 1))
    others_BD = torch.cat([grads_BD[:user], grads_BD[user + 1 :]])
    if adjacency.vectors_changed == 2:  # the same place, and anywhere else among the others
        at = data.draw(st.integers(0, len(others_BD)))
        other_D = data.draw(st.sampled_from([-grads_BD[user], 1e9 * grads_BD[user]]))
        others_BD = torch.cat([others_BD[:at], other_D[None], others_BD[at:]])
    first, second = (
        [Fraction(value) for value in clip.clip_sum(found_BD).tolist()]
        for found_BD in (grads_BD, others_BD)
    )
    moved = sum((one - other) ** 2 for one, other in zip(first, second, strict=True))
    assert moved <= Fraction(clip.sensitivity(adjacency)) ** 2
    for size in (1, 3):  # grouping users does not change the sum
        parts = [clip.clip_sum(part_BD).tolist() for part_BD in grads_BD.split(size)]
        assert first == [sum(map(Fraction, values)) for values in zip(*parts, strict=True)]


def test_blocks_within_a_chunk_cover_every_user_once():
    grads_BD = rows(0, 45, 10_000)  # 13 users to a block
    sum_D = UserClip(1e-2).clip_sum(grads_BD).numpy()
    each_BD = grads_BD.double().numpy()
    each_BD *= 1e-2 / np.linalg.norm(each_BD, axis=1, keepdims=True)
    assert np.allclose(sum_D, each_BD.sum(axis=0), rtol=0, atol=1e-7)


def test_extreme_lengths_that_float32_cannot_square():
    # The largest finite values are clipped like any other; tiny norms hold for tiny vectors.
    huge_D = torch.full((1, 10), torch.finfo(torch.float32).max)
    assert length(UserClip(2.0).clip_sum(huge_D)) == pytest.approx(2.0, rel=2e-6)
    tiny_D = torch.full((1, 10), 3e-22)
    assert length(UserClip(1e-22).clip_sum(tiny_D)) <= 1e-22


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_users_who_are_not_finite_count_as_zero(bad):
    grads_BD = rows(0, 6, 4)
    good_D = UserClip(0.7).clip_sum(grads_BD[[0, 2, 5]])
    grads_BD[1, 2] = bad
    grads_BD[3] = bad
    grads_BD[4, 0] = -bad
    assert torch.equal(UserClip(0.7).clip_sum(grads_BD), good_D)
    assert UserClip(0.7).clip_sum(grads_BD[[1, 3, 4]]).tolist() == [0.0] * 4
    plain_D = NoClip().clip_sum(grads_BD)
    assert torch.allclose(plain_D, grads_BD[[0, 2, 5]].double().sum(dim=0), rtol=1e-12)


@pytest.mark.parametrize("clip", [UserClip(1.0), NoClip()])
def test_nobody_contributes_zero(clip):
    sum_D = clip.clip_sum(torch.empty(0, 3))
    assert sum_D.tolist() == [0.0] * 3
    assert sum_D.dtype == torch.float64


@pytest.mark.parametrize("clip", [UserClip(0.1), NoClip()])
def test_the_input_is_left_as_it_was(clip):
    grads_BD = rows(0, 5, 4)
    grads_BD[2, 1] = math.nan
    before_BD = grads_BD.clone()
    clip.clip_sum(grads_BD)
    assert torch.equal(grads_BD.nan_to_num(9.0), before_BD.nan_to_num(9.0))


@given(st.integers(0, 10**6), st.integers(0, 60), norms, st.booleans())
def test_honest_sums_are_admitted(seed, users, norm, alike):
    grads_BD = rows(seed, users, 7, 100 * norm)
    if alike:  # everybody pulls one way: as long as a sum can get
        grads_BD = grads_BD[:1].repeat(users, 1)
    sum_D = UserClip(norm).clip_sum(grads_BD).numpy()
    assert UserClip(norm).is_valid(sum_D, users)
    assert UserClip(norm).is_valid(sum_D.astype(np.float32), users)


def test_many_users_who_pull_one_way_are_admitted():
    users = 5_000
    for value in np.linspace(0.5, 2.0, 12).tolist():
        sum_D = UserClip(1.0).clip_sum(torch.full((users, 100), value))
        assert UserClip(1.0).is_valid(sum_D.numpy(), users)


@pytest.mark.parametrize("users", [1, 3, 540])
def test_sums_that_are_too_long_are_not_admitted(users):
    direction_D = rows(0, 1, 30)[0].double().numpy()
    direction_D /= np.linalg.norm(direction_D)
    clip = UserClip(0.25)
    assert clip.is_valid(direction_D * 0.25 * users * 0.999, users)
    assert not clip.is_valid(direction_D * 0.25 * users * 1.01, users)
    assert not clip.is_valid(direction_D * 0.25 * (users + 1), users)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200, -1e308])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_that_are_not_finite_or_overflow_are_not_admitted(bad, dtype):
    with np.errstate(over="ignore"):
        sum_D = np.array([0.1, bad, 0.1]).astype(dtype)
    assert not UserClip(1.0).is_valid(sum_D, 10**6)
    assert NoClip().is_valid(sum_D, 1) == bool(np.isfinite(sum_D).all())


def test_from_nobody_only_zero_is_admitted():
    assert UserClip(1.0).is_valid(np.zeros(3), 0)
    assert not UserClip(1.0).is_valid(np.array([1e-9, 0, 0]), 0)


def test_no_clip_leaves_vectors_as_they_are():
    grads_BD = rows(0, 5, 4, 1e6)
    sum_D = NoClip().clip_sum(grads_BD)
    assert torch.allclose(sum_D, grads_BD.double().sum(dim=0), rtol=1e-12)
    assert NoClip().is_valid(np.full(3, 1e300), 1)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_norm_out_of_range_is_refused(norm):
    for clip in (UserClip, ExampleClip):
        with pytest.raises(ValueError, match="clip norm must be a positive finite number"):
            clip(norm)


def test_vectors_on_another_device_are_clipped_the_same(monkeypatch):
    monkeypatch.setattr(clipping, "_PIECE", 3)
    vectors_BD = torch.randn(6, 10, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[1e-3], [0.1], [1.0], [1e15], [1.0], [0.0]]
    )
    vectors_BD[2, 4] = torch.nan
    vectors_BD[4, 9] = torch.inf
    clip = UserClip(0.7)
    sum_D = torch.zeros(10, dtype=torch.float64)
    clipping.add_there(sum_D, vectors_BD, clip.norm * clipping.ROUNDING, clip.step)
    # Lengths are added up in another order: a step more or less.
    assert float((sum_D - clip.clip_sum(vectors_BD)).abs().max()) <= 6 * clip.step
    alone_D = torch.zeros_like(sum_D)
    for row_D in vectors_BD:  # nobody's length depends on company
        clipping.add_there(alone_D, row_D[None], clip.norm * clipping.ROUNDING, clip.step)
    assert torch.equal(alone_D, sum_D)


@contextmanager
def on_cores(cores):
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def stretched(seed, users, dimensions):
    """Rows that are zero but for some stretches, which overlap, end at a block edge or nowhere."""
    generator = np.random.default_rng(seed)
    edges = [0, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, dimensions - 1, dimensions]
    drawn = [*generator.integers(0, dimensions + 1, 6), *generator.choice(edges, 6)]
    ends_P2 = np.sort(np.clip(drawn, 0, dimensions).reshape(-1, 2), axis=1)
    there_D = torch.zeros(dimensions)
    for begin, end in ends_P2.tolist():
        there_D[begin:end] = 1.0
    return rows(seed, users, dimensions, 0.01) * there_D, generator.permutation(ends_P2)


@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 50, BLOCK, BLOCK + 1, 3 * BLOCK, 700 * BLOCK - 5]),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from([1, 3]),
)
def test_long_rows_are_added_to_a_sum_to_the_same_bits(seed, dimensions, norm, cores):
    grads_BD, stretches_P2 = stretched(seed, 2, dimensions)
    clip, before_D = UserClip(norm), UserClip(norm).clip_sum(rows(seed, 1, dimensions))
    sum_D, everywhere_D = before_D.clone(), torch.zeros_like(before_D)
    with on_cores(cores):
        clip.add_to(sum_D, grads_BD, stretches_P2)
        clip.add_to(everywhere_D, grads_BD, np.array([[0, dimensions]]))
    assert torch.equal(sum_D, before_D + clip.clip_sum(grads_BD))
    assert torch.equal(everywhere_D, clip.clip_sum(grads_BD))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_long_rows_that_are_not_finite_add_nothing(bad):
    grads_BD = rows(0, 3, 3 * BLOCK)
    grads_BD[1, 2 * BLOCK + 7] = bad
    sum_D = torch.zeros(3 * BLOCK, dtype=torch.float64)
    UserClip(0.7).add_to(sum_D, grads_BD, np.array([[0, 3 * BLOCK]]))
    assert torch.equal(sum_D, UserClip(0.7).clip_sum(grads_BD[[0, 2]]))


def test_whatever_is_told_of_a_row_no_user_gets_further_than_the_norm():
    """A stretch that was forgotten is not measured, and not added either."""
    grads_BD = rows(0, 1, 3 * BLOCK, 1e3)
    for stretches in ([[0, 5]], [[BLOCK, 2 * BLOCK]], np.empty((0, 2), np.int64)):
        sum_D = torch.zeros(3 * BLOCK, dtype=torch.float64)
        UserClip(0.7).add_to(sum_D, grads_BD, np.asarray(stretches))
        assert length(sum_D) <= 0.7
        assert not torch.equal(sum_D, UserClip(0.7).clip_sum(grads_BD))


# Clipping single examples in closed form: against clipping their gradients one by one.


def lengths(x_KD):
    return torch.linalg.vector_norm(x_KD.double(), dim=1)


def example_rows(count, dimension, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dimension, generator=generator) * scale


@given(
    st.integers(0, 30),
    st.integers(1, 9),
    st.floats(1e-3, 1e3),
    st.floats(1e-3, 1e3),
    st.integers(0, 99),
)
def test_equal_to_clipping_one_by_one(count, dimension, norm, scale, seed):
    x_KD, weight_K = (
        example_rows(count, dimension, seed, scale),
        example_rows(count, 1, seed + 1)[:, 0],
    )
    found = ExampleClip(norm).clip_sum(x_KD, weight_K, lengths(x_KD))
    expected = torch.zeros(dimension, dtype=torch.float64)
    for x_D, weight in zip(x_KD.double(), weight_K.double(), strict=True):
        gradient_D = weight * x_D
        expected += gradient_D * min(1.0, norm / max(float(gradient_D.norm()), 1e-300))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-6 * norm * (count + 1))
    assert found.dtype == torch.float64


@pytest.mark.parametrize("dimension", [1, 7, 10_000, 200_000])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e18])
def test_no_example_exceeds_the_norm(dimension, scale):
    clip = ExampleClip(0.3)
    x_KD = torch.full((1, dimension), scale)
    for weight in (1.0, -0.25, 1e-3):
        sum_D = clip.clip_sum(x_KD, torch.tensor([weight]), lengths(x_KD))
        length = float(torch.linalg.vector_norm(sum_D))
        assert length <= 0.3
        assert float(sum_D.float().double().norm()) <= 0.3
        assert length == pytest.approx(min(0.3, abs(weight) * scale * dimension**0.5), rel=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_zero(bad):
    x_KD, weight_K = example_rows(4, 3), torch.tensor([0.5, 1.0, -1.0, 0.2])
    broken = x_KD.clone()
    broken[1, 2] = bad
    weights = weight_K.clone()
    weights[3] = bad
    clip = ExampleClip(0.1)
    found = clip.clip_sum(broken, weights, lengths(broken))
    expected = clip.clip_sum(x_KD[[0, 2]], weight_K[[0, 2]], lengths(x_KD[[0, 2]]))
    np.testing.assert_array_equal(found, expected)


def test_admits_what_so_many_examples_can_produce():
    clip = ExampleClip(0.5)
    assert clip.is_valid(np.array([1.0, 0.0]), 2)
    assert not clip.is_valid(np.array([1.001, 0.0]), 2)
    assert not clip.is_valid(np.array([np.nan, 0.0]), 2)
    assert not clip.is_valid(np.array([1e300, 1e300]), 2)
