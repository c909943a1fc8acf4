"""One secret 64-bit word for each user: SipHash-2-4 of the user's name under a key.

Whether a user takes part in a round is decided by their own word, so it does not change when others
come, go, move or are numbered otherwise. Without the key the words are as good as independent and
uniform: SipHash is a pseudorandom function (Aumasson & Bernstein 2012), here over names that are
distinct. Keys come from ``privacy.mechanisms.randomness``: fresh for each draw, or a function of
the seed.

Legend: N users.
"""

import struct

import numpy as np

from murmuration.privacy.mechanisms.numba_jit import kernel

_U = np.uint64
_V0, _V1 = _U(0x736F6D6570736575), _U(0x646F72616E646F6D)
_V2, _V3 = _U(0x6C7967656E657261), _U(0x7465646279746573)
_LENGTH = _U(8 << 56)  # of a name: eight bytes
_LAST = _U(0xFF)
_13, _16, _17, _21, _32 = _U(13), _U(16), _U(17), _U(21), _U(32)
_51, _48, _47, _43 = _U(51), _U(48), _U(47), _U(43)


def user_words(key: bytes, names_N: np.ndarray) -> np.ndarray:
    """The word of each name under the first 16 bytes of a key, (N,) uint64.

    Raises:
        ValueError: the key is too short.
    """
    if len(key) < 16:
        raise ValueError(f"a key of coins has at least 16 bytes, not {len(key)}")
    names_N = np.ascontiguousarray(names_N, dtype=np.uint64)
    words_N = np.empty_like(names_N)
    low, high = struct.unpack("<2Q", key[:16])
    _fill(names_N, _U(low), _U(high), words_N)
    return words_N


def bernoulli(words_N: np.ndarray, probability: float) -> np.ndarray:
    """One Bernoulli draw per user: bool (N,), each true with ``probability`` (to 2⁻⁶⁴, never
    more)."""
    if probability >= 1.0:
        return np.ones(len(words_N), dtype=bool)
    return words_N < _U(int(probability * 2.0**64))


@kernel()
def _fill(names_N: np.ndarray, low: np.uint64, high: np.uint64, words_N: np.ndarray) -> None:
    for i in range(len(names_N)):
        v0, v1, v2, v3 = low ^ _V0, high ^ _V1, low ^ _V2, high ^ _V3
        for step in range(8):  # twice each for the name and its length, then four times
            if step == 0:
                v3 ^= names_N[i]
            elif step == 2:
                v0 ^= names_N[i]
                v3 ^= _LENGTH
            elif step == 4:
                v0 ^= _LENGTH
                v2 ^= _LAST
            v0 += v1
            v2 += v3
            v1 = ((v1 << _13) | (v1 >> _51)) ^ v0
            v3 = ((v3 << _16) | (v3 >> _48)) ^ v2
            v0 = (v0 << _32) | (v0 >> _32)
            v2 += v1
            v0 += v3
            v1 = ((v1 << _17) | (v1 >> _47)) ^ v2
            v3 = ((v3 << _21) | (v3 >> _43)) ^ v0
            v2 = (v2 << _32) | (v2 >> _32)
        words_N[i] = v0 ^ v1 ^ v2 ^ v3
