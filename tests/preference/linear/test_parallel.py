"""Pieces of tensor code on several threads: same bits, one core each, nothing left changed."""

import threading

import numpy as np
import pytest
import torch

from murmuration.preference.linear import gradients
from murmuration.preference.linear.gradients import sum_over_users, windows
from murmuration.preference.linear.parallel import on_each_core
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip


@pytest.fixture(params=[1, 2, 3])
def cores(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("pieces", [0, 1, 2, 17])
def test_results_come_in_order(cores, pieces):
    assert on_each_core(lambda number: number**2, pieces) == [n**2 for n in range(pieces)]


def test_every_piece_has_one_core_and_the_caller_gets_its_own_back(cores):
    assert on_each_core(lambda _: torch.get_num_threads(), 9) == [1] * 9
    assert torch.get_num_threads() == cores


def test_threads_that_are_new_to_torch_are_not_limited(cores):
    on_each_core(lambda number: number, 9)
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [cores]


def test_several_threads_share_the_pieces():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        both = threading.Barrier(2, timeout=60)  # two pieces that can only end together
        on_each_core(lambda _: both.wait(), 2)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bad", [0, 7, 16])
def test_an_exception_of_a_piece_is_raised(cores, bad):
    def piece(number):
        if number == bad:
            raise ZeroDivisionError
        return number

    with pytest.raises(ZeroDivisionError):
        on_each_core(piece, 17)
    assert torch.get_num_threads() == cores
    assert on_each_core(lambda number: number, 3) == [0, 1, 2]


def test_a_sum_over_users_has_the_same_bits_on_any_number_of_cores(make_examples, monkeypatch):
    monkeypatch.setattr(gradients, "CHUNK_BYTES", 400)
    examples = make_examples(np.random.default_rng(0).geometric(0.1, 200).tolist(), dimension=33)
    words_S = np.arange(200, dtype=np.uint64)
    rows_K, taken_S = windows(examples.start_U, np.arange(200), 16, words_S)
    theta_D = torch.linspace(-1, 1, 33)

    def total(cores):
        torch.set_num_threads(cores)
        return sum_over_users(
            examples, theta_D, rows_K, taken_S, UserClip(0.1).clip_sum, preference_model("btl")
        )

    before = torch.get_num_threads()
    try:
        expected = total(1)
        assert expected.norm() > 0
        for cores in (2, 3, 2, 1, 3):
            assert torch.equal(total(cores), expected)
    finally:
        torch.set_num_threads(before)
