"""Averaged gradients of many users at once: against autograd, and which rows take part."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from murmuration.preference.linear import gradients
from murmuration.preference.linear.gradients import sum_over_users, user_gradients, windows
from murmuration.preference.models import PreferenceModel, preference_model
from murmuration.privacy.mechanisms.clipping import UserClip

BTL = preference_model("btl")


def words(users, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, size=users, dtype=np.uint64)


def computed(examples, theta_D, users_S, group_size, words_S):
    rows_K, taken_S = windows(examples.start_U, users_S, group_size, words_S)
    chunks = [
        grads_BD.clone() for grads_BD in user_gradients(examples, theta_D, rows_K, taken_S, BTL)
    ]
    assert all(chunk.dtype == torch.float32 for chunk in chunks)
    return torch.cat(chunks), rows_K.split(taken_S.tolist())


@pytest.mark.parametrize("chunk_bytes", [1, 200, 2 * 2**20])
@pytest.mark.parametrize("group_size", [1, 4, 1000])
def test_equal_to_autograd_for_ragged_users(
    make_examples, oracle, monkeypatch, chunk_bytes, group_size
):
    monkeypatch.setattr(gradients, "CHUNK_BYTES", chunk_bytes)
    examples = make_examples([1, 7, 2, 300, 1, 1, 12], dimension=6)
    theta_D = torch.randn(6, generator=torch.Generator().manual_seed(1))
    users_S = np.array([0, 1, 3, 4, 6])
    found, rows = computed(examples, theta_D, users_S, group_size, words(5))
    expected = torch.stack([oracle(examples, theta_D, r) for r in rows])
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_model_of_ones_own_is_used(make_examples):
    examples = make_examples([2, 3])
    rows_K, taken_S = windows(examples.start_U, np.array([0, 1]), 9, words(2))
    constant = PreferenceModel("constant", lambda logits, y: torch.ones_like(y), lambda z, y: z)
    (found,) = user_gradients(examples, torch.zeros(5), rows_K, taken_S, constant)
    torch.testing.assert_close(found[1], examples.x_RD[2:].mean(0))


@pytest.mark.parametrize("length", [4, 6])
def test_a_model_of_another_length_is_refused(make_examples, length):
    with pytest.raises(ValueError, match="for 5 features"):
        computed(make_examples([2, 2]), torch.ones(length), np.arange(2), 9, words(2))


def test_nobody(make_examples):
    examples = make_examples([2, 2])
    rows_K, taken_S = windows(examples.start_U, np.empty(0, dtype=np.int64), 4, words(0))
    assert list(user_gradients(examples, torch.zeros(5), rows_K, taken_S, BTL)) == []


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    group_size=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_windows(counts, group_size, seed, data):
    start_U = torch.tensor([0, *np.cumsum(counts)])
    chosen = data.draw(st.sets(st.integers(0, len(counts) - 1), min_size=1))
    users_S = np.array(sorted(chosen))
    rows_K, taken_S = windows(start_U, users_S, group_size, words(len(users_S), seed))
    for user, taken in zip(users_S, rows_K.split(taken_S.tolist()), strict=True):
        count, first = counts[user], int(start_U[user])
        assert len(taken) == min(count, group_size)
        assert len(set(taken.tolist())) == len(taken), "a judgement was taken twice"
        assert ((taken >= first) & (taken < first + count)).all(), "another user's row"
        steps = (taken[1:] - taken[:-1]) % count
        assert (steps == 1 % count).all(), "not a cyclic window"


def test_each_judgement_of_a_user_is_equally_likely():
    users, count, group_size = 20_000, 7, 3
    start_U = torch.arange(users + 1) * count
    rows_K, _ = windows(start_U, np.arange(users), group_size, words(users))
    within = (rows_K % count).numpy()
    seen = np.bincount(within, minlength=count)
    # Windows start uniformly and independently; each judgement is in 3 of 7.
    expected, spread = users * 3 / 7, np.sqrt(users * 3 / 7 * 4 / 7)
    assert np.abs(seen - expected).max() < 5 * spread
    assert stats.chisquare(np.bincount(within[::group_size])).pvalue > 1e-6


def test_windows_wrap_around():
    start_U = torch.tensor([0, 5, 9])
    rows_K, taken_S = windows(start_U, np.array([0, 1]), 3, np.array([4, 7], dtype=np.uint64))
    assert rows_K.split(taken_S.tolist())[0].tolist() == [4, 0, 1]
    assert rows_K.split(taken_S.tolist())[1].tolist() == [8, 5, 6]


def test_a_user_with_few_judgements_gives_all_whatever_their_word():
    start_U = torch.tensor([0, 3, 40])
    for word in range(5):
        rows_K, taken_S = windows(start_U, np.array([0, 1]), 3, np.array([word] * 2, np.uint64))
        assert rows_K[: taken_S[0]].tolist() == [0, 1, 2]


@given(counts=st.lists(st.integers(0, 9), min_size=2, max_size=6), seed=st.integers(0, 2**32))
def test_which_are_taken_and_in_which_order_does_not_depend_on_others(counts, seed):
    """Nobody's window turns because somebody else has many."""
    start_U, every = torch.tensor([0, *np.cumsum(counts)]), words(len(counts), seed)
    rows_K, taken_S = windows(start_U, np.arange(len(counts)), 4, every)
    for user, taken in enumerate(rows_K.split(taken_S.tolist())):
        alone, _ = windows(start_U, np.array([user]), 4, every[[user]])
        assert taken.tolist() == alone.tolist()


def test_a_sum_over_users_has_the_same_bits_on_any_number_of_cores(make_examples, monkeypatch):
    monkeypatch.setattr(gradients, "CHUNK_BYTES", 400)
    examples = make_examples(np.random.default_rng(0).geometric(0.1, 200).tolist(), dimension=33)
    words_S = np.arange(200, dtype=np.uint64)
    rows_K, taken_S = windows(examples.start_U, np.arange(200), 16, words_S)
    theta_D = torch.linspace(-1, 1, 33)

    def total(cores):
        torch.set_num_threads(cores)
        return sum_over_users(
            examples,
            theta_D,
            rows_K,
            taken_S,
            UserClip(0.1).clip_sum,
            model=preference_model("btl"),
        )

    before = torch.get_num_threads()
    try:
        expected = total(1)
        assert expected.norm() > 0
        for cores in (2, 3, 2, 1, 3):
            assert torch.equal(total(cores), expected)
    finally:
        torch.set_num_threads(before)
