"""A checkpoint comes back as it was saved, or is refused in one line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preference.judgements import InputError
from privacy.chained_record import Head
from server.checkpoints import Checkpoint, load, save

STATE = {"theta": np.linspace(0, 1, 5), "averaged": np.array([3]), "empty": np.zeros((0, 2))}
CHECKPOINT = Checkpoint(7, STATE, Head(9, "ab" * 32))


def same(found):
    assert (found.round, found.head) == (CHECKPOINT.round, CHECKPOINT.head)
    assert set(found.state) == set(STATE)
    for name, value in STATE.items():
        np.testing.assert_array_equal(found.state[name], value)
        assert found.state[name].dtype == value.dtype


def test_round_trip(tmp_path):
    save(tmp_path / "c", CHECKPOINT)
    same(load(tmp_path / "c"))


@settings(max_examples=300)
@given(data=st.data())
def test_a_flipped_bit_or_a_cut_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("c") / "c"
    save(path, CHECKPOINT)
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw = raw[:place]
    else:
        raw[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    try:
        found = load(path)
    except InputError as error:
        assert "is damaged" in str(error)
        assert "\n" not in str(error)
    else:
        same(found)  # a bit that means nothing, such as of padding


@pytest.mark.parametrize("raw", [b"", b"x", b"\x00" * 100, b"\xff" * 1000])
def test_what_is_no_checkpoint(tmp_path, raw):
    (tmp_path / "c").write_bytes(raw)
    with pytest.raises(InputError, match=r"c is damaged .*remove it"):
        load(tmp_path / "c")


def test_one_without_a_checksum_is_refused(tmp_path):
    """As an earlier version wrote them."""
    from safetensors.numpy import save as plain

    (tmp_path / "c").write_bytes(plain({"round": np.array([7]), **STATE}))
    with pytest.raises(InputError, match=r"is damaged .*sha256"):
        load(tmp_path / "c")
