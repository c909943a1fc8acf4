"""Labels that were told through randomized response, with what is known of their coins.

Legend: U users, N labels.
"""

from dataclasses import dataclass

import numpy as np

from privacy.randomized_response import RandomizedResponse


@dataclass(frozen=True, eq=False)
class ToldLabels:
    """Randomized labels of U users, a user's together.

    Attributes:
        start_U: int64, U + 1 offsets; a user may have none.
        items_N: uint64, what each label is about (``preference.items``), ascending for a user; one
            that recurs was judged several times.
        answers_N: int64, the answer told: a place among the responses in canonical order.
        choices_N: int64, how many responses there were.
        per_label_U: float64, ε of each label of a user.

    Raises:
        ValueError: fields that do not fit each other.
    """

    start_U: np.ndarray
    items_N: np.ndarray
    answers_N: np.ndarray
    choices_N: np.ndarray
    per_label_U: np.ndarray

    def __post_init__(self) -> None:
        start_U, labels = self.start_U, len(self.items_N)
        if start_U.shape != (len(self.per_label_U) + 1,) or start_U[0] != 0:
            raise ValueError("offsets of labels are one more than users, from 0")
        if start_U[-1] != labels or (np.diff(start_U) < 0).any():
            raise ValueError("offsets of labels do not fit their number")
        if self.items_N.dtype != np.uint64 or self.items_N.ndim != 1:
            raise ValueError("items are unsigned 64-bit numbers")
        if self.answers_N.shape != (labels,) or self.choices_N.shape != (labels,):
            raise ValueError("items, answers and choices differ in number")
        if ((self.answers_N < 0) | (self.answers_N >= self.choices_N)).any():
            raise ValueError("an answer is not among its choices")
        same_user_N = np.ones(labels, dtype=bool)
        same_user_N[start_U[:-1][np.diff(start_U) > 0]] = False
        if (np.diff(self.items_N.astype(object)) < 0)[same_user_N[1:]].any():
            raise ValueError("items of a user must ascend")
        _ = self.flips_N  # validates ε and choices

    @property
    def flips_N(self) -> np.ndarray:
        """float64: how likely each answer is not the true label."""
        per_label_N = np.repeat(self.per_label_U, np.diff(self.start_U))
        pairs = zip(per_label_N.tolist(), self.choices_N.tolist(), strict=True)
        flips = (RandomizedResponse(*pair).flip_probability for pair in pairs)
        return np.fromiter(flips, dtype=np.float64, count=len(per_label_N))
