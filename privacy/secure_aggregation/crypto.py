"""Keys, masks and sealed shares of secure aggregation, from the primitives of ``cryptography``.

- A key pair is X25519. What two parties agree on goes through HKDF-SHA256 with a label that names
  the purpose, the session and both parties, so no key serves twice.
- A mask is the key stream of ChaCha20 under a full 256-bit key that is used for that mask alone (so
  the nonce can be zero), read as 64-bit numbers: uniform modulo 2⁶⁴ without the key.
- Shares travel under ChaCha20-Poly1305 with a key for one direction of one pair in one session;
  the label is authenticated too, so a share that was altered, or sent to or from somebody else, or
  in another session, does not open.

All keys come from the operating system, in simulations too: the sum does not depend on them.

Legend: L numbers of a vector.
"""

import hashlib
import os

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
#: What sealing adds to a text.
SEAL_BYTES = 16
_NONCE = bytes(12)


def new_key() -> bytes:
    """A private X25519 key, or any other secret of 32 bytes, from the operating system."""
    return os.urandom(KEY_BYTES)


def public_key(private: bytes) -> bytes:
    """The public half of a private X25519 key, 32 bytes."""
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes(*raw)


def agreed_key(private: bytes, public: bytes, label: bytes) -> bytes:
    """The key of 32 bytes that the owners of both keys, and nobody else, can compute for a label.

    Raises:
        ValueError: ``public`` is no key, or one with which everybody agrees on the same.
    """
    shared = X25519PrivateKey.from_private_bytes(private).exchange(
        X25519PublicKey.from_public_bytes(public)
    )
    return derived_key(shared, label)


def check_public(public: bytes) -> None:
    """ValueError for what is no public key, or one with which everybody agrees on the same."""
    agreed_key(new_key(), public, b"check")


def derived_key(secret: bytes, label: bytes) -> bytes:
    """A key of 32 bytes from a secret, for one purpose; HKDF-SHA256."""
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=label).derive(secret)


def mask(key: bytes, length: int) -> np.ndarray:
    """``length`` pseudo-random numbers modulo 2⁶⁴, (L,) uint64; a key serves for one mask only."""
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * length)), dtype="<u8")


def commitment(secret: bytes) -> bytes:
    """By which a secret of 32 random bytes is recognised, and nothing else is learned."""
    return hashlib.sha256(b"murmuration commitment" + secret).digest()


def seal(key: bytes, text: bytes, label: bytes) -> bytes:
    """Encrypt ``text``; a key seals one text only."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, text, label)


def unseal(key: bytes, sealed: bytes, label: bytes) -> bytes:
    """The text; ValueError if it was not sealed with this key and label, or was altered."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, label)
    except InvalidTag:
        raise ValueError(
            "a share that was altered, or meant for another party or session"
        ) from None
