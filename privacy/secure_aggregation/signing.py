"""Ed25519 signatures, from the primitives of ``cryptography``.

A key pair stands for one owner's agent, for good. What is signed begins with a label that names the
purpose, so that a word given for one thing cannot be used for another.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64


def public_key(private: bytes) -> bytes:
    """The public half of a private Ed25519 key, 32 bytes."""
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes(*raw)


def sign(private: bytes, text: bytes) -> bytes:
    """A signature of 64 bytes."""
    return Ed25519PrivateKey.from_private_bytes(private).sign(text)


def check(public: bytes, text: bytes, signature: bytes) -> None:
    """ValueError unless the owner of ``public`` has signed ``text``."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except InvalidSignature:
        raise ValueError("the signature is not of this key and text") from None
