"""Where a basis starts."""

import numpy as np

from murmuration.preference.linear.basis_start import START, start_KD


def test_the_basis_starts_at_public_signs_and_the_crowd_at_zero():
    start = start_KD(3, 50)
    assert not start[0].any()
    assert set(np.abs(start[1:]).ravel()) == {np.float32(START)}
    assert abs(start[1:].mean()) < START / 3
    # The same on every machine and for ever: nodes and server compute it by themselves.
    assert "".join("-+"[int(value > 0)] for value in start_KD(2, 12)[1]) == SIGNS
    assert start_KD(1, 4).tolist() == [[0.0] * 4]


SIGNS = "+-----+-++-+"
