"""Packed texts are the texts, wherever they lie."""

import pickle

import numpy as np
import pytest

from murmuration.preference.data.files.packed_texts import PackedTexts
from murmuration.preference.features import mapped_rows

TEXTS = ["one", "zwei\r\n", "三", "\x00", "🙂" * 50, " ", "last"]


@pytest.fixture(params=[10, 2**20])
def packed(request, monkeypatch):
    """In a mapped file, and in memory."""
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", request.param)
    return PackedTexts.pack(iter(TEXTS))


def test_each_is_what_it_was(packed):
    assert [*packed] == TEXTS
    assert len(packed) == len(TEXTS)
    assert (packed[-1], packed[np.int64(2)]) == ("last", "三")
    assert [*packed[1:3]] == TEXTS[1:3]
    assert [*PackedTexts.pack([])] == []
    with pytest.raises(IndexError):
        packed[len(TEXTS)]


def test_some_in_another_order_are_not_copied(packed):
    chosen = packed.chosen(np.array([4, 0, 2]))
    assert [*chosen] == [TEXTS[4], TEXTS[0], TEXTS[2]]
    assert [*chosen.chosen(np.array([2, 2]))] == [TEXTS[2]] * 2
    assert np.shares_memory(chosen._bytes, packed._bytes)


def test_another_process_gets_no_others(packed):
    mine = pickle.dumps(packed.chosen(np.array([0, 1])))
    assert [*pickle.loads(mine)] == TEXTS[:2]
    assert b"last" not in mine


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(UnicodeEncodeError):
        PackedTexts.pack(["\ud800"])
