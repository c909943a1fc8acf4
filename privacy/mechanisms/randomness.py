"""Random draws: a function of (seed, purpose, round, user), or of the operating system.

A seeded run is a simulation. Each draw is keyed by what it is *for*, never by how many draws came
before it, so grouping users differently or processing them in another order cannot change it; a
round that is drawn again has draws of its own (``again``). Without a seed every stream takes a
fresh 256-bit key from the operating system.

Streams are ChaCha20 (``randomgen``), keyed directly: the seeded key is SHA-256 of the seed and the
purpose. Per-user words come from a keyed 64-bit mixer when seeded (no stream per user is opened:
that would cost more than the gradients) and from a fresh ChaCha20 stream when not.

Legend: S sampled users, K their examples.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np


def user_key(user_id: str, salt: bytes = b"") -> int:
    """A 64-bit name for a user that depends on their id alone, not on their place in a file.

    With a salt (up to 64 bytes) it can be compared within one run only. With the salt one can test
    guesses of an id: it serves to find a user hosted twice, it is not a pseudonym.
    """
    digest = hashlib.blake2b(user_id.encode(), digest_size=8, key=salt).digest()
    return int.from_bytes(digest, "little")


@dataclass(frozen=True)
class Randomness:
    """The source of all draws of a run.

    ``seed`` is a non-negative integer for a reproducible simulation, or None to draw from the
    operating system, as every deployment must. A seed is as secret as the data: who knows it knows
    the noise. ``draw`` counts how often a round was drawn before: each has draws of its own.
    """

    seed: int | None
    draw: int = 0

    def __post_init__(self) -> None:
        if self.seed is not None and type(self.seed) is not int:
            raise TypeError(f"a simulation's seed is a whole number; got {self.seed!r}")
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed must be a non-negative integer, or left out; got {self.seed}")

    @property
    def seeded(self) -> bool:
        """True if draws can be repeated."""
        return self.seed is not None

    def again(self, draw: int) -> "Randomness":
        """The randomness of a round that was drawn ``draw`` times before."""
        return replace(self, draw=draw)

    def key(self, purpose: str, *index: int) -> bytes:
        """32 secret bytes for one purpose; the same again only when seeded."""
        if self.seed is None:
            return os.urandom(32)
        drawn = [f"draw {self.draw}"] if self.draw else []
        text = "\x1f".join(["murmuration", str(self.seed), *drawn, purpose, *map(str, index)])
        return hashlib.sha256(text.encode()).digest()

    def stream(self, purpose: str, *index: int) -> np.random.Generator:
        """A generator for one purpose (and round, and attempt, …), over ChaCha20 with 20 rounds."""
        from randomgen import ChaCha  # plans draw nothing

        chacha = ChaCha(key=int.from_bytes(self.key(purpose, *index), "little"))
        return np.random.Generator(chacha)  # pyright: ignore[reportArgumentType]

    def user_words(
        self, purpose: str, round_: int, user_keys_S: Sequence[int] | np.ndarray
    ) -> np.ndarray:
        """One uniform 64-bit word for each user, independent across users, rounds and purposes."""
        keys_S = np.asarray(user_keys_S, dtype=np.uint64)
        if self.seed is None:
            return self.stream(purpose).integers(0, 2**64, size=len(keys_S), dtype=np.uint64)
        k0, k1, k2 = struct.unpack("<3Q", self.key(purpose, round_)[:24])
        words_S = _mix(keys_S ^ np.uint64(k0))
        words_S = _mix(words_S + np.uint64(k1))
        return _mix(words_S ^ np.uint64(k2))

    def example_words(
        self, purpose: str, round_: int, user_keys_K: np.ndarray, places_K: np.ndarray
    ) -> np.ndarray:
        """One uniform 64-bit word for each example, named by its user and its place among theirs.

        Independent across users, places, rounds and purposes.
        """
        if self.seed is None:
            return self.stream(purpose).integers(0, 2**64, size=len(places_K), dtype=np.uint64)
        k0, k1, k2, k3 = struct.unpack("<4Q", self.key(purpose, round_))
        words_K = _mix(np.asarray(user_keys_K, dtype=np.uint64) ^ np.uint64(k0))
        words_K = _mix(words_K + np.uint64(k1))
        # The place is spread over the word first: places are small and would differ in few bits.
        words_K = _mix(words_K ^ _mix(np.asarray(places_K, dtype=np.uint64) + np.uint64(k3)))
        return _mix(words_K ^ np.uint64(k2))


def _mix(words: np.ndarray) -> np.ndarray:
    """The SplitMix64 finalizer, a bijection on 64-bit words with full avalanche."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
