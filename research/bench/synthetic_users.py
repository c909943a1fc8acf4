"""Users about nothing, for benchmarks: as many as the name says, with judgements or with texts.

``research.bench.synthetic_users:users_2500`` is 2,500 users with ten judgements each over few
distinct texts, so that hashing them is quick; ``users_1000000_each_3`` has three each.

``texts_342477`` is as many users of a forum, who wrote about as unequally as those of Stack
Overflow in Charles et al. (2024), Table 1, where the median of 342,477 users has 183 texts, the
largest 194,200, and all together 135,818,730: here a 45th of each, 3.0 million. In between numbers
are log-normal with a heavier tail, such that these three are met. Texts are stretches of about 128
tokens of one long line of made-up words, some of which are said far more often than others.

A file of them: ``python -m murmuration.research.bench.synthetic_users texts_342477 FILE.jsonl``.

Legend: U users, W words of the line.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import ndtri

_TEXTS = 500
_Rows = Callable[[], Iterator[dict[str, str]]]

#: Of Charles et al. (2024), and what is made of it.
_MEDIAN, _ALL, _MADE = 183, 135_818_730, 3_000_000
#: The logarithm of a user's number of texts, over the median: by standard normal z, and by z² above
#: the median.
_SPREAD, _TAIL = 1.04435, 0.0952687
_LINE, _WORDS = 200_000, 10_000  # words in all, and distinct ones
_SHORTEST, _LONGEST = 90, 110  # words of a text


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


def text_rows(users: int, seed: int = 0) -> Iterator[dict[str, str]]:
    """Texts of ``users`` users, one user's after the other's."""
    generator = np.random.default_rng(seed)
    line, start_W = _line(generator)
    for user, count in enumerate(generator.permutation(texts_of_each(users)).tolist()):
        first_K = generator.integers(0, _LINE - _LONGEST, count)
        end_K = first_K + generator.integers(_SHORTEST, _LONGEST + 1, count)
        for start, end in zip(start_W[first_K].tolist(), start_W[end_K].tolist(), strict=True):
            yield {"user_id": f"u{user}", "text": line[start : end - 1]}


def few_texts() -> Iterator[dict[str, str]]:
    """40 other users' texts: a test set."""
    return ({**row, "user_id": f"test-{row['user_id']}"} for row in text_rows(40, seed=1))


def texts_of_each(users: int) -> np.ndarray:
    """Numbers of texts, (U,) int64, ascending: those at even distances of the distribution."""
    z_U = ndtri((np.arange(users) + 0.5) / users)
    over_median_U = np.exp(_SPREAD * z_U + _TAIL * np.maximum(z_U, 0.0) ** 2)
    return np.maximum(np.rint(over_median_U * _MEDIAN * _MADE / _ALL), 1).astype(np.int64)


def _line(generator: np.random.Generator) -> tuple[str, np.ndarray]:
    """The line, and where each of its words begins, (W,)."""
    syllables = [a + b for a, b in product("bdfghjklmnprstvwxyzc", "aeiou")]
    words = [*syllables, *map("".join, product(syllables, syllables))][:_WORDS]
    often = 1.0 / np.arange(1, _WORDS + 1)
    said_W = generator.choice(_WORDS, _LINE, p=often / often.sum())
    line = [words[word] for word in said_W.tolist()]
    return " ".join(line), np.cumsum([0, *(len(word) + 1 for word in line[:-1])])


def __getattr__(name: str) -> _Rows:
    """``users_N``, ``users_N_each_M``, ``texts_N`` and ``texts_N_seed_S`` for any numbers."""
    if numbers := re.fullmatch(r"users_(\d+)(?:_each_(\d+))?", name):
        users, each = numbers.groups(default="10")
        return lambda: rows(int(users), int(each))
    if numbers := re.fullmatch(r"texts_(\d+)(?:_seed_(\d+))?", name):
        users, seed = numbers.groups(default="0")
        return lambda: text_rows(int(users), int(seed))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def write_rows(name: str, path: str) -> None:
    """Write the rows of such a name to a file, one in each line."""
    made = globals()[name] if name in globals() else __getattr__(name)
    with Path(path).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in made())


if __name__ == "__main__":
    write_rows(*sys.argv[1:3])
