"""Pairs as feature differences: all that a linear head needs to know of a judgement.

Decisions:
- The features of each distinct text are computed once, in chunks, and scattered into the
  differences. The peak is the result (4·R·D bytes) and two chunks, whatever the number of distinct
  texts.
- Non-finite features stop here with the row's number: past this point every number is finite.

Shape suffixes: R rows (judgements), U users, T distinct texts, D dimensions.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from preference.features import FeatureMap, finite_features
from preference.judgements import InputError, Judgements

_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class PairExamples:
    """Feature differences of pairs, grouped by user like the judgements they come from.

    Attributes:
        x_RD: float32, φ(chosen) − φ(rejected).
        y_R: float32, 1 where the first response is preferred, 0.5 for a tie.
        start_U: int64, U + 1 row offsets.
    """

    x_RD: torch.Tensor
    y_R: torch.Tensor
    start_U: torch.Tensor

    def __post_init__(self) -> None:
        if self.x_RD.ndim != 2 or self.y_R.shape != self.x_RD.shape[:1]:
            raise InputError(
                f"pair examples need x of shape (R, D) and y of shape (R,), "
                f"not {tuple(self.x_RD.shape)} and {tuple(self.y_R.shape)}"
            )
        if self.start_U.ndim != 1 or int(self.start_U[-1]) != len(self.y_R):
            raise InputError("row offsets of pair examples do not end at the number of rows")

    @property
    def dimension(self) -> int:
        """D."""
        return self.x_RD.shape[1]

    @cached_property
    def lengths_R(self) -> torch.Tensor:
        """float64: the ℓ2 norm of each row of x, computed once."""
        blocks = self.x_RD.split(_CHUNK)
        return torch.cat([torch.linalg.vector_norm(x.double(), dim=1) for x in blocks])

    @property
    def counts_U(self) -> torch.Tensor:
        """int64: how many judgements each user has."""
        return self.start_U.diff()

    def select(self, users_S: np.ndarray) -> "PairExamples":
        """The examples of some users, in the given order."""
        users = torch.from_numpy(np.asarray(users_S, dtype=np.int64))
        counts_S = self.counts_U[users]
        start_S = torch.cat([torch.zeros(1, dtype=torch.int64), counts_S.cumsum(0)])
        rows = torch.arange(int(start_S[-1])) - torch.repeat_interleave(start_S[:-1], counts_S)
        rows += torch.repeat_interleave(self.start_U[users], counts_S)
        return PairExamples(self.x_RD[rows], self.y_R[rows], start_S)


def pair_examples(judgements: Judgements, feature_map: FeatureMap) -> PairExamples:
    """The feature differences of pair judgements.

    Raises:
        InputError: a row has more than two responses, or features are not finite (names the row).
    """
    rows = len(judgements)
    text_R2, prompts, responses, first_row_T = _distinct_texts(judgements, feature_map.uses_prompt)
    x_RD = torch.zeros(rows, feature_map.dimension)
    # Rows in order of their text: those of a chunk of texts are then one slice.
    order_2R = [np.argsort(text_R2[:, side], kind="stable") for side in (0, 1)]
    for low in range(0, len(responses), _CHUNK):
        high = min(low + _CHUNK, len(responses))
        phi_TD = torch.from_numpy(
            finite_features(
                feature_map, prompts[low:high], responses[low:high], rows=first_row_T[low:high]
            )
        )
        for side, sign in ((0, 1), (1, -1)):
            text_R = text_R2[order_2R[side], side]
            first, last = np.searchsorted(text_R, (low, high))
            for at in range(first, last, _CHUNK):
                part = slice(at, min(at + _CHUNK, last))
                to_R = torch.from_numpy(order_2R[side][part])
                x_RD.index_add_(0, to_R, phi_TD[torch.from_numpy(text_R[part] - low)], alpha=sign)
    return PairExamples(
        x_RD=x_RD,
        y_R=torch.tensor(judgements.y_R, dtype=torch.float32),
        start_U=torch.tensor(judgements.start_U, dtype=torch.int64),
    )


def _distinct_texts(
    judgements: Judgements, uses_prompt: bool
) -> tuple[np.ndarray, list[str], list[str], list[int]]:
    """Which distinct text each side of each row shows, and these texts with the row they first
    appear in."""
    index: dict[tuple[str, str], int] = {}
    first_row_T: list[int] = []
    text_R2 = np.empty((len(judgements), 2), dtype=np.int64)
    for row, (prompt, pair) in enumerate(
        zip(judgements.prompts, judgements.responses, strict=True)
    ):
        if len(pair) != 2:
            raise InputError(f"row {row + 1} has {len(pair)} responses; pairs have two")
        for side, response in enumerate(pair):
            text = index.setdefault((prompt if uses_prompt else "", response), len(index))
            if text == len(first_row_T):
                first_row_T.append(row)
            text_R2[row, side] = text
    return (
        text_R2,
        [prompt for prompt, _ in index],
        [response for _, response in index],
        first_row_T,
    )
