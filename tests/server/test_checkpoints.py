"""A checkpoint comes back as it was saved, or is refused in one line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting.chained_record import Head
from murmuration.server.checkpoints import PLACE, Checkpoint, _pieces, load, save

STATE = {
    "theta": np.linspace(0, 1, 5),
    "averaged": np.array([3]),
    "empty": np.zeros((0, 2)),
    "halted": np.array([True]),
    "step": np.array([2.0], dtype=np.float32),
    "columns": np.arange(6.0).reshape(2, 3).T,
}
CHECKPOINT = Checkpoint(7, STATE, Head(9, "ab" * 32))


def same(found):
    assert (found.round, found.head) == (CHECKPOINT.round, CHECKPOINT.head)
    assert set(found.state) == set(STATE)
    for name, value in STATE.items():
        np.testing.assert_array_equal(found.state[name], value)
        assert found.state[name].dtype == value.dtype


def test_round_trip(tmp_path):
    assert load(tmp_path) is None
    (tmp_path / PLACE).parent.mkdir()
    save(tmp_path, CHECKPOINT)
    same(load(tmp_path))


def test_a_file_as_others_write_it_and_without_copies(tmp_path):
    from safetensors.numpy import load_file

    (tmp_path / PLACE).parent.mkdir()
    save(tmp_path, CHECKPOINT)
    found = load_file(tmp_path / PLACE)
    for name, value in STATE.items():
        np.testing.assert_array_equal(found[name], value)
    pieces = [np.frombuffer(piece, np.uint8) for piece in _pieces(STATE)]
    assert any(np.shares_memory(piece, STATE["theta"]) for piece in pieces)
    with pytest.raises(KeyError):
        list(_pieces({"words": np.array(["a"])}))


@settings(max_examples=300)
@given(data=st.data())
def test_a_flipped_bit_or_a_cut_is_noticed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    path = folder / PLACE
    path.parent.mkdir()
    save(folder, CHECKPOINT)
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    if data.draw(st.booleans()):
        raw = raw[:place]
    else:
        raw[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(raw)
    try:
        found = load(folder)
    except InputError as error:
        assert "is damaged" in str(error)
        assert "\n" not in str(error)
    else:
        same(found)  # a bit that means nothing, such as of padding


@pytest.mark.parametrize("raw", [b"", b"x", b"\x00" * 100, b"\xff" * 1000])
def test_what_is_no_checkpoint(tmp_path, raw):
    (tmp_path / PLACE).parent.mkdir()
    (tmp_path / PLACE).write_bytes(raw)
    with pytest.raises(InputError, match=r"state\.safetensors is damaged .*remove it"):
        load(tmp_path)


def test_one_without_a_checksum_is_refused(tmp_path):
    """As an earlier version wrote them."""
    from safetensors.numpy import save as plain

    (tmp_path / PLACE).parent.mkdir()
    (tmp_path / PLACE).write_bytes(plain({"round": np.array([7]), **STATE}))
    with pytest.raises(InputError, match=r"is damaged .*sha256"):
        load(tmp_path)
