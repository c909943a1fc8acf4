"""Requests about users of made-up populations, by name."""

from collections.abc import Iterable

import numpy as np

from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol.messages import UserSelection


def asked(users: Iterable[int], salt: bytes = b"salt", name: str = "u{:03}") -> UserSelection:
    """The users whose ids these numbers make, as in ``tests.conftest.rows``."""
    names = [user_key(name.format(user), salt) for user in users]
    return UserSelection(salt, np.array(names, dtype=np.uint64))
