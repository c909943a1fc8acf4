"""Judgements about nothing, for benchmarks: as many users and judgements each as the name says.

``research.bench.synthetic_users:users_2500`` is 2,500 users with ten judgements each over few
distinct texts, so that hashing them is quick; ``users_1000000_each_3`` has three each.
"""

import re
from collections.abc import Callable, Iterator

import numpy as np

_TEXTS = 500
_Rows = Callable[[], Iterator[dict[str, str]]]


def rows(users: int, each: int) -> Iterator[dict[str, str]]:
    """``users`` users with ``each`` judgements each."""
    generator = np.random.default_rng(0)
    texts = [
        " ".join(f"w{word}" for word in generator.integers(0, 5000, 40)) for _ in range(_TEXTS)
    ]
    others = [text + " ." for text in texts]
    for user in range(users):
        for chosen, rejected in generator.integers(0, _TEXTS, (each, 2)).tolist():
            row = {"user_id": f"u{user}", "prompt": "-", "chosen": texts[chosen]}
            yield {**row, "rejected": others[rejected]}


def few() -> Iterator[dict[str, str]]:
    """40 other users with four judgements each: a test set."""
    return ({**row, "user_id": f"test-{row['user_id']}"} for row in rows(40, 4))


def __getattr__(name: str) -> _Rows:
    """``users_N`` and ``users_N_each_M`` for any numbers."""
    numbers = re.fullmatch(r"users_(\d+)(?:_each_(\d+))?", name)
    if not numbers:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    users, each = numbers.groups(default="10")
    return lambda: rows(int(users), int(each))
