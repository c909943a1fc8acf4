import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.mechanisms.randomness import Randomness, user_key

WORDS = 50_000


def raw(seed, purpose, *index, size=8):
    stream = Randomness(seed).stream(purpose, *index)
    return stream.integers(0, 2**64, size=size, dtype=np.uint64).tolist()


# Golden values: a change here means that every seeded run takes another trajectory.


def test_the_key_of_a_stream_is_pinned():
    assert (
        Randomness(0).key("cohort", 1).hex()
        == "574ae689be76731ab6c41479b49465118a033850e348fac6a30c51fb43e1917a"
    )


def test_the_words_of_a_stream_are_pinned():
    assert raw(0, "cohort", 1, size=3) == [
        18240893493802956447,
        7126359972578078366,
        534490463457410293,
    ]


def test_normal_draws_are_pinned():
    found = Randomness(0).stream("noise uls", 1, 0).standard_normal(3)
    assert found.tolist() == [-0.11985619405966637, -0.949593532557055, -0.6018488724338434]


def test_user_words_are_pinned():
    words = Randomness(0).user_words("window", 1, [user_key("ann"), user_key("bob")])
    assert words.tolist() == [310740641300389250, 3283761849036262227]


def test_user_keys_are_pinned():
    assert user_key("ann") == 11957940740637538957
    assert user_key("ann", b"salt") == 16803204530055889560
    assert user_key("Zoë 🐦") == 16805616401689213287


def chacha20_block(key, counter):
    """RFC 8439, 2.3, with a 64-bit counter and nonce zero: written out independently."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key)]
    start += [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    words = start.copy()

    def quarter(a, b, c, d):
        for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            words[x] = (words[x] + words[y]) & 0xFFFFFFFF
            mixed = words[z] ^ words[x]
            words[z] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
    return struct.pack("<16I", *((w + s) & 0xFFFFFFFF for w, s in zip(words, start, strict=True)))


def test_a_stream_is_chacha20_with_twenty_rounds_under_the_whole_key():
    assert chacha20_block(bytes(32), 0)[:8].hex() == "76b8e0ada0f13d90"  # RFC 8439, A.1
    key = Randomness(5).key("cohort", 3)
    expected = b"".join(chacha20_block(key, counter) for counter in range(3))
    assert raw(5, "cohort", 3, size=24) == list(struct.unpack("<24Q", expected))


@given(st.integers(0, 2**70), st.text(max_size=8), st.lists(st.integers(0, 2**40), max_size=3))
def test_a_seeded_stream_depends_on_nothing_else(seed, purpose, index):
    np.random.seed(1)  # noqa: NPY002
    first = raw(seed, purpose, *index)
    np.random.seed(2)  # noqa: NPY002
    raw(seed, "something in between")
    assert raw(seed, purpose, *index) == first


def test_every_part_of_the_name_matters():
    names = [
        (0, "a", 1, 2), (1, "a", 1, 2), (0, "b", 1, 2), (0, "a", 2, 1), (0, "a", 12), (0, "a", 1),
        (0, "a"), (0, "a1"), (0, "a", 1, 2, 0), (10, "a", 1, 2),
    ]  # fmt: skip
    assert len({tuple(raw(seed, purpose, *index)) for seed, purpose, *index in names}) == len(names)


def test_streams_for_other_purposes_and_rounds_are_independent(checks):
    names = [("cohort", 1), ("cohort", 2), ("noise", 1), ("noise", 2), ("noise", 1, 1)]
    z = [Randomness(0).stream(*name).standard_normal(20_000) for name in names]
    for i in range(len(z)):
        checks.gaussian_noise(z[i], 1.0)
        for j in range(i):
            checks.unrelated(z[i], z[j])


def test_unseeded_draws_never_repeat():
    source = Randomness(None)
    assert not source.seeded
    assert len({tuple(raw(None, "noise", 1)) for _ in range(20)}) == 20
    assert len({source.key("noise", 1) for _ in range(20)}) == 20
    words = [tuple(source.user_words("window", 1, [1, 2, 3]).tolist()) for _ in range(20)]
    assert len(set(words)) == 20


def test_unseeded_keys_come_from_the_operating_system(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda n: bytes(range(n)))
    assert Randomness(None).key("noise", 1) == bytes(range(32))
    assert Randomness(0).key("noise", 1) != bytes(range(32))


@pytest.mark.parametrize("seed", [-1, -(2**63)])
def test_a_negative_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be a non-negative integer"):
        Randomness(seed)


def words_of(seed, keys, purpose="window", round_=1):
    return Randomness(seed).user_words(purpose, round_, keys)


def check_uniform(words, checks):
    bytes_W8 = words.view(np.uint8).reshape(-1, 8)
    expected = len(words) / 256
    for place in range(8):
        seen = np.bincount(bytes_W8[:, place], minlength=256)
        checks.two_sided(float(((seen - expected) ** 2 / expected).sum()), 255, f"byte {place}")
    bits_W64 = np.unpackbits(bytes_W8, axis=1).astype(float) * 2 - 1
    checks.two_sided(float((bits_W64.sum(axis=0) ** 2 / len(words)).sum()), 64, "bits")
    gram = bits_W64.T @ bits_W64 / len(words) ** 0.5
    pairs = gram[np.triu_indices(64, k=1)]
    checks.two_sided(float((pairs**2).sum()), len(pairs), "pairs of bits")


@pytest.mark.parametrize("seed", [0, None])
def test_user_words_are_uniform_even_for_consecutive_keys(checks, seed):
    if seed is None:  # a fixed stand-in, so that the outcome does not change from run to run
        words = Randomness(4).stream("window").integers(0, 2**64, size=WORDS, dtype=np.uint64)
    else:
        words = words_of(seed, np.arange(WORDS, dtype=np.uint64))
    check_uniform(words, checks)


def test_user_words_of_other_rounds_purposes_seeds_and_neighbours_are_unrelated(
    checks,
):
    keys = np.arange(WORDS, dtype=np.uint64)
    base = words_of(0, keys)
    others = [
        words_of(0, keys, round_=2),
        words_of(0, keys, purpose="labels"),
        words_of(1, keys),
        words_of(0, keys + np.uint64(1)),
        words_of(0, keys ^ np.uint64(2**63)),
    ]
    for other in others:
        check_uniform(base ^ other, checks)


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=30),
    st.randoms(use_true_random=False),
    st.integers(1, 7),
)
def test_user_words_do_not_depend_on_order_or_grouping(keys, random, size):
    whole = dict(zip(keys, words_of(3, keys).tolist(), strict=True))
    shuffled = keys.copy()
    random.shuffle(shuffled)
    parts = [shuffled[i : i + size] for i in range(0, len(shuffled), size)]
    for part in parts:
        assert words_of(3, part).tolist() == [whole[key] for key in part]
        as_array = np.array(part, dtype=np.uint64)
        assert np.array_equal(words_of(3, as_array), words_of(3, part))


@pytest.mark.parametrize("seed", [0, None])
def test_nobody_gets_no_words(seed):
    words = words_of(seed, [])
    assert words.dtype == np.uint64
    assert words.shape == (0,)


def test_user_keys_differ_between_users_and_salts():
    names = [f"user-{i}" for i in range(20_000)]
    assert len({user_key(name) for name in names}) == len(names)
    assert user_key("ann", b"one") != user_key("ann", b"two") != user_key("ann")
    assert all(0 <= user_key(name) < 2**64 for name in names[:100])


def test_example_words_are_named_by_user_and_place():
    keys_K = np.repeat(np.arange(50, dtype=np.uint64), 40)
    places_K = np.tile(np.arange(40), 50)
    words_K = Randomness(0).example_words("coin", 1, keys_K, places_K)
    assert len(set(words_K.tolist())) == 2000
    some = np.random.default_rng(0).permutation(2000)[:99]
    alone = Randomness(0).example_words("coin", 1, keys_K[some], places_K[some])
    assert alone.tolist() == words_K[some].tolist()
    fresh = Randomness(None).example_words("coin", 1, keys_K, places_K)
    assert not set(fresh.tolist()) & set(words_K.tolist())
    for words in (words_K, fresh):
        ones = np.unpackbits(words.view(np.uint8)).reshape(2000, 64).mean(axis=0)
        assert np.abs(ones - 0.5).max() < 5 * 0.5 / 2000**0.5
