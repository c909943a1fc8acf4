"""Pieces of work on several threads: in order, one core each, nothing left changed."""

import threading

import pytest
import torch

from murmuration.privacy.mechanisms import parallel
from murmuration.privacy.mechanisms.parallel import COLUMNS, each_stretch, on_each_core


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


@pytest.mark.parametrize("dimension", [0, 1, COLUMNS, COLUMNS + 1, 5 * COLUMNS - 1])
def test_stretches_cover_every_column_once_in_order(cores, dimension):
    found = each_stretch(lambda stretch: stretch, dimension)
    assert [column for s in found for column in (s.start, s.stop)] == [
        edge
        for start in range(0, dimension, COLUMNS)
        for edge in (start, min(start + COLUMNS, dimension))
    ]


def test_stretches_are_shared_as_pieces_are(cores, monkeypatch):
    monkeypatch.setattr(parallel, "COLUMNS", 1)
    together = threading.Barrier(cores, timeout=60)
    seen = each_stretch(lambda _: (together.wait(), threading.get_ident())[1], cores)
    assert len({*seen}) == cores and threading.get_ident() in seen


def test_pieces_of_a_piece_stay_in_its_thread(cores):
    def piece(_):
        inside = on_each_core(lambda _: threading.get_ident(), 5)
        return {*inside} == {threading.get_ident()}

    assert on_each_core(piece, 9) == [True] * 9


def test_an_error_in_a_stretch_is_raised(cores):
    def piece(stretch):
        if stretch.start:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each_stretch(piece, 3 * COLUMNS)
