"""Statistics of judgements, exact, for their owner alone: lengths, shares, scripts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.languages import script_of
from murmuration.preference.features.words import words_of

_TEXTS = 5_000  # that are looked at for their script


@dataclass(frozen=True)
class Guess:
    """The accuracy of a rule that does not depend on the prompt, on judgements without a tie.

    Attributes:
        pooled: over judgements.
        by_user: mean over users of each user's mean.
        rows: the number of judgements.
    """

    pooled: float
    by_user: float
    rows: int


def decided(judgements: Judgements) -> np.ndarray:
    """(R,) bool: which judgements are no ties."""
    tied_R = judgements.y_R == 0.5 if judgements.kind == "pairs" else judgements.y_R < 1.0
    many_R = np.array([len(shown) > 1 for shown in judgements.responses], dtype=bool)
    return ~tied_R & many_R


def guessing(judgements: Judgements) -> Guess:
    """The accuracy of choosing a response at random."""
    right_R = np.array([1.0 / max(1, len(shown)) for shown in judgements.responses])
    return _guess(judgements, right_R, decided(judgements))


def longer_wins(judgements: Judgements) -> Guess:
    """The accuracy of choosing the response with most words; ties in length are broken at
    random.
    """
    right_R = np.zeros(len(judgements))
    for row, shown in enumerate(judgements.responses):
        lengths = _words(shown)
        if lengths and lengths[0] == max(lengths):
            right_R[row] = 1.0 / lengths.count(lengths[0])
    return _guess(judgements, right_R, decided(judgements))


def _words(shown: Sequence[str]) -> list[int]:
    return [len(words_of(str(text))) for text in shown]


def _guess(judgements: Judgements, right_R: np.ndarray, kept_R: np.ndarray) -> Guess:
    user_R = np.repeat(np.arange(len(judgements.user_ids)), judgements.counts_U)
    users = len(judgements.user_ids)
    right_U = np.bincount(user_R[kept_R], right_R[kept_R], minlength=users)
    rows_U = np.bincount(user_R[kept_R], minlength=users)
    there_U = rows_U > 0
    rows = int(rows_U.sum())
    if not rows:
        return Guess(float("nan"), float("nan"), 0)
    by_user = float((right_U[there_U] / rows_U[there_U]).mean())
    return Guess(float(right_R[kept_R].mean()), by_user, rows)


def shares(counts_U: np.ndarray) -> dict[str, float]:
    """The share of all judgements that the largest user, 1 % and 10 % of users have."""
    ordered_U = np.sort(counts_U)[::-1]
    total = max(1, int(ordered_U.sum()))
    users = len(ordered_U)
    parts = {"the largest user": 1, "1 % of users": users // 100, "10 % of users": users // 10}
    return {name: float(ordered_U[:most].sum()) / total for name, most in parts.items() if most}


def histogram(counts_U: np.ndarray) -> list[tuple[str, int]]:
    """The number of users by number of judgements, in bins that double: names and counts."""
    tops = [0, 1]
    while tops[-1] < int(counts_U.max(initial=0)):
        tops.append(2 * tops[-1])
    result = []
    for below, top in pairwise([-1, *tops]):
        name = f"{top:,}" if top == below + 1 else f"{below + 1:,}–{top:,}"
        result.append((name, int(((counts_U > below) & (counts_U <= top)).sum())))
    return result if result[0][1] else result[1:]


def scripts_of(judgements: Judgements) -> Counter[str]:
    """The number of texts by script, which is that of most of their letters. Empty texts, such as
    prompts of rows without one, are left out.
    """
    every = max(1, 2 * len(judgements) // _TEXTS)
    rows = zip(judgements.prompts[::every], judgements.responses[::every], strict=True)
    texts = (str(text) for prompt, shown in rows for text in (prompt, *islice(shown, 1)))
    return Counter(script_of(text) for text in texts if text.strip())
