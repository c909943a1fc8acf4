"""Stretches cover every column once, in their order, whatever the number of threads."""

import threading

import pytest
import torch

from murmuration.privacy.mechanisms import stretches
from murmuration.privacy.mechanisms.stretches import COLUMNS, each_stretch


@pytest.fixture
def threads():
    """A function that says how many threads torch would use."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dimension", [0, 1, COLUMNS, COLUMNS + 1, 5 * COLUMNS - 1])
@pytest.mark.parametrize("cores", [1, 2, 5])
def test_the_same_stretches_on_any_number_of_threads(threads, dimension, cores):
    threads(cores)
    found = each_stretch(lambda stretch: stretch, dimension)
    assert [column for s in found for column in (s.start, s.stop)] == [
        edge
        for start in range(0, dimension, COLUMNS)
        for edge in (start, min(start + COLUMNS, dimension))
    ]


def test_several_threads_share_them_and_one_stays_in_its_own(threads, monkeypatch):
    monkeypatch.setattr(stretches, "COLUMNS", 1)
    threads(2)
    both = threading.Barrier(2, timeout=30)
    seen = each_stretch(lambda _: (both.wait(), threading.get_ident())[1], 2)
    assert len({*seen}) == 2
    threads(1)
    assert {*each_stretch(lambda _: threading.get_ident(), 4)} == {threading.get_ident()}


def test_an_error_of_a_piece_is_raised(threads):
    threads(2)

    def piece(stretch):
        if stretch.start:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each_stretch(piece, 3 * COLUMNS)
