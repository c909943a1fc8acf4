"""Shamir's secret sharing of 32 bytes: any ``threshold`` shares reveal all, fewer nothing.

A secret is the constant term of a random polynomial of degree ``threshold`` − 1 over the integers
modulo a prime just above 2²⁵⁶; share x is its value at x = 1, 2, …. Fewer than ``threshold`` values
fit every secret equally well, whatever computing power is used (Shamir 1979). Coefficients come
from the operating system.

Nothing here notices a share that was altered: the caller must be able to distinguish the right
secret from a wrong one (a public key, a hash of it).
"""

import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, threshold: int, parties: int) -> list[bytes]:
    """Shares 1 to ``parties`` of a secret of 32 bytes, 33 bytes each.

    Raises:
        ValueError: the secret has another length, or there is no such threshold.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {len(secret)}")
    if not 1 <= threshold <= parties:
        raise ValueError(f"the threshold must be 1 to {parties}, got {threshold}")
    higher = [secrets.randbelow(PRIME) for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "big"), *higher]
    return [_value(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in range(1, parties + 1)]


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret from at least ``threshold`` shares, by their numbers; all of them are used once.

    Raises:
        ValueError: too few shares, or values that are no shares of one secret of 32 bytes.
    """
    if len(shares) < threshold:
        raise ValueError(f"{len(shares)} shares of the {threshold} that are needed")
    places = sorted(shares)[:threshold]
    return combine_shares([shares[place] for place in places], weights(places))


def weights(places: Sequence[int]) -> list[int]:
    """With which the shares of these numbers add up to the secret (Lagrange, at zero).

    Raises:
        ValueError: numbers that are not all different, or not from 1 on.
    """
    if len(set(places)) < len(places) or any(not 1 <= place < PRIME for place in places):
        raise ValueError("shares are numbered from 1 on, each with a number of its own")
    result = []
    for place in places:
        above, below = 1, 1
        for other in places:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        result.append(above * pow(below, -1, PRIME) % PRIME)
    return result


def combine_shares(shares: Sequence[bytes], weights: Sequence[int]) -> bytes:
    """The secret from shares and their ``weights``, which many secrets can have in common.

    Raises:
        ValueError: values that are no shares of one secret of 32 bytes.
    """
    values = [int.from_bytes(share, "big") for share in shares]
    if any(len(share) != SHARE_BYTES for share in shares) or max(values, default=0) >= PRIME:
        raise ValueError("not a share: it is not a number of the field")
    secret = sum(v * w for v, w in zip(values, weights, strict=True)) % PRIME
    if secret >= 2 ** (8 * SECRET_BYTES):
        raise ValueError("these are not shares of one secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def _value(coefficients: Sequence[int], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value
