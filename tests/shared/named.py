"""Requests about users of made-up populations, by name."""

from collections.abc import Iterable

import numpy as np

from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol.messages import Asked


def asked(users: Iterable[int], salt: bytes = b"salt", name: str = "u{:03}") -> Asked:
    """The users whose ids these numbers make, as in ``tests.conftest.rows``."""
    names = [user_key(name.format(user), salt) for user in users]
    return Asked(salt, np.array(names, dtype=np.uint64))
