"""Judgements as feature differences: all that a linear head needs to know of them.

Decisions:
- A judgement over K responses is W = K − 1 consecutive rows, φ(first) − φ(other_k), one for each
  response that was not put first. A thumb up or down is one row, φ(response). Where judgements are
  over unequally many, W is that of the most, and what is missing is a row of zeros whose y is
  `ABSENT`.
- The features of each distinct text are computed once, in chunks, and scattered into the
  differences. The peak is the result (4·R·D bytes) and a few chunks, whatever the number of
  distinct texts; a large result lies in a file (``preference.features.mapped_rows``).
- Non-finite features stop here with the row's number: past this point every number is finite.

Shape suffixes: J judgements, W others in each, R = J·W rows, U users, T distinct texts,
D dimensions, K = W + 1 responses.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy, accuracy_by, float32_of
from murmuration.preference.choices import Kind
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.features.hashing import FeatureMap, finite_features, usable_features
from murmuration.preference.features.mapped_rows import filled_rows
from murmuration.preference.kinds.array_examples import ArrayExamples
from murmuration.preference.kinds.model import AddTo
from murmuration.preference.linear import gradients, numba_gradients
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import ABSENT, PreferenceModel

CHUNK = 4096
_CHUNK_BYTES = 16 * 2**20  # of features; a map may take several times as much for them


@dataclass(frozen=True, eq=False)
class PairExamples(ArrayExamples):
    """Feature differences of judgements, grouped by user like the judgements they come from.

    Attributes:
        x_RD: float32, φ(first) − φ(other); the W rows of a judgement are consecutive.
        y_R: float32; for pairs 1 where the first response is preferred, 0.5 for a tie. For the best
            of several, one less the share of the answer that is other_k: 1, or 1 − 1/t where it is
            among t that tie. For rankings 1, or ½ where other_k ties with the response before it.
            `ABSENT` where there is no such response. Of thumbs 1 for up, 0 for down.
        start_U: int64, U + 1 offsets of judgements.
        width: W.
        flip_J: float64, the probability of each label not to be the true one; None for clean labels
            and for those corrupted in unknown ways.
        kind: of the judgements.
    """

    x_RD: torch.Tensor
    y_R: torch.Tensor
    start_U: torch.Tensor
    width: int = 1
    _: KW_ONLY
    flip_J: torch.Tensor | None = None
    kind: Kind = "pairs"

    def __post_init__(self) -> None:
        if self.x_RD.ndim != 2 or self.y_R.shape != self.x_RD.shape[:1]:
            raise InputError(
                f"pair examples need x of shape (R, D) and y of shape (R,), "
                f"not {tuple(self.x_RD.shape)} and {tuple(self.y_R.shape)}"
            )
        if self.start_U.ndim != 1 or int(self.start_U[-1]) * self.width != len(self.y_R):
            raise InputError("row offsets of pair examples do not end at the number of rows")
        if self.flip_J is not None and len(self.flip_J) != int(self.start_U[-1]):
            raise InputError("flip probabilities and judgements differ in number")

    @property
    def dimension(self) -> int:
        """D."""
        return self.x_RD.shape[1]

    @cached_property
    def lengths_R(self) -> torch.Tensor:
        """float64: the ℓ2 norm of each row of x, each by itself, computed once."""
        found_R = torch.empty(len(self.x_RD), dtype=torch.float64)
        numba_gradients.lengths(self.x_RD.numpy(), found_R.numpy())
        return found_R

    def logits_R(self, theta_D: torch.Tensor, rows_K: torch.Tensor | None = None) -> torch.Tensor:
        """x·θ of each row, or of some, (R,) float32: each by itself, so that no bit depends on the
        others."""
        rows = torch.arange(len(self.x_RD)) if rows_K is None else rows_K
        found_K = torch.empty(len(rows))
        numba_gradients.dots(
            self.x_RD.numpy(), rows.numpy(), theta_D.float().numpy(), found_K.numpy()
        )
        return found_K

    @property
    def single_rows(self) -> "PairExamples | None":
        """These, if a judgement is one row."""
        return self if self.width == 1 else None

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """The accuracy of a head, as in `accuracy_by`."""
        logits_R = self.logits_R(torch.from_numpy(float32_of(theta_D)))
        return accuracy_by(logits_R, self.y_R, self.start_U, self.kind, self.width)

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """The accuracy; there are no other metrics."""
        return self.accuracy(theta_D), {}

    def user_gradients(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        *,
        shared_passes: bool = False,
    ) -> Iterator[torch.Tensor]:
        """As `gradients.user_gradients`: each user separately, passes shared or not."""
        del shared_passes
        return gradients.user_gradients(self, theta_D, taken_N, taken_S, model)

    def sum_over_users(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        reduce: Callable[[torch.Tensor], torch.Tensor],
        model: PreferenceModel,
        *,
        local: LocalSteps | None = None,
        width: int | None = None,
        shared_passes: bool = False,
        add: AddTo | None = None,
    ) -> torch.Tensor:
        """As `gradients.sum_over_users`: each user separately; ``add`` is not needed."""
        del add, shared_passes
        return gradients.sum_over_users(
            self, theta_D, taken_N, taken_S, reduce, model=model, local=local, width=width
        )

    def select(self, users_S: np.ndarray) -> "PairExamples":
        """The examples of some users, in the given order."""
        users = torch.from_numpy(np.asarray(users_S, dtype=np.int64))
        counts_S = self.counts_U[users]
        start_S = torch.cat([torch.zeros(1, dtype=torch.int64), counts_S.cumsum(0)])
        kept_J = torch.arange(int(start_S[-1])) - torch.repeat_interleave(start_S[:-1], counts_S)
        kept_J += torch.repeat_interleave(self.start_U[users], counts_S)
        rows = kept_J
        if self.width > 1:
            rows = (kept_J[:, None] * self.width + torch.arange(self.width)).reshape(-1)
        return PairExamples(
            _selected(self.x_RD, rows),
            self.y_R[rows],
            start_S,
            self.width,
            flip_J=None if self.flip_J is None else self.flip_J[kept_J],
            kind=self.kind,
        )


def pair_examples(
    judgements: Judgements, feature_map: FeatureMap, left_out: LeftOut | None = None
) -> PairExamples:
    """Feature differences of judgements.

    Judgements without finite features go to ``left_out`` if it is given; their users stay, and no
    other user's differences depend on them.

    Raises:
        InputError: features are not finite (names the row), and there is nothing to take them.
    """
    width = judgements.most_responses - 1
    text_JK, prompts, responses, first_row_T = distinct_texts(judgements, feature_map.uses_prompt)
    # Rows in order of the text they take, which is that of the first response or of the other's:
    # those of a chunk of texts are then one slice.
    there_R = (text_JK[:, 1:].reshape(-1) >= 0) | (judgements.kind == "thumbs")
    sides = []
    for text_R, sign in ((np.repeat(text_JK[:, 0], width), 1), (text_JK[:, 1:].reshape(-1), -1)):
        order_R = np.argsort(text_R, kind="stable")
        order_R = order_R[there_R[order_R]]
        sides.append((text_R[order_R], order_R, sign))
    chunk = _chunk(feature_map.dimension)
    reasons_T = [""] * (len(responses) + 1)  # the last: no text

    def add_features(x_RD: torch.Tensor) -> None:
        for low in range(0, len(responses), chunk):
            high = min(low + chunk, len(responses))
            given = prompts[low:high], responses[low:high]
            if left_out is None:
                phi = finite_features(feature_map, *given, rows=first_row_T[low:high])
            else:
                phi, reasons_T[low:high] = usable_features(feature_map, *given)
            phi_TD = torch.from_numpy(phi)
            for text_R, order_R, sign in sides:
                first, last = np.searchsorted(text_R, (low, high))
                for at in range(first, last, chunk):
                    part = slice(at, min(at + chunk, last))
                    to_R, from_R = order_R[part], text_R[part] - low
                    add_RD = phi_TD[torch.from_numpy(from_R)]
                    x_RD.index_add_(0, torch.from_numpy(to_R), add_RD, alpha=sign)

    rows = len(judgements) * width
    x_RD = filled_rows(rows, feature_map.dimension, torch.float32, add_features)
    if left_out is not None and any(reasons_T):
        kept_J = left_out.rows_of_texts(reasons_T, text_JK)
        judgements, there_R = judgements.keep(kept_J), there_R[np.repeat(kept_J, width)]
        x_RD = _selected(x_RD, torch.from_numpy(np.flatnonzero(np.repeat(kept_J, width))))
    return PairExamples(
        x_RD=x_RD,
        y_R=labels(judgements, there_R.reshape(-1, width)),
        start_U=torch.tensor(judgements.start_U, dtype=torch.int64),
        width=width,
        flip_J=flips(judgements),
        kind=judgements.kind,
    )


def _selected(x_RD: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Some of the rows, in the given order."""
    return filled_rows(
        len(rows),
        x_RD.shape[1],
        x_RD.dtype,
        lambda into_RD: torch.index_select(x_RD, 0, rows, out=into_RD),
    )


def _chunk(dimension: int) -> int:
    """Rows that are worked on at a time."""
    return max(1, min(CHUNK, _CHUNK_BYTES // (4 * dimension)))


def labels(judgements: Judgements, there_JW: np.ndarray) -> torch.Tensor:
    """y of each row, (R,) float32; ``there_JW``: which of the others there are."""
    y_JW = np.ones(there_JW.shape, dtype=np.float32)
    y_J = judgements.y_R
    if judgements.kind in ("pairs", "thumbs"):
        y_JW[:, 0] = y_J
    elif judgements.kind == "top-1":
        tied_J = np.round(1.0 / y_J).astype(np.int64)
        among_JW = np.arange(1, there_JW.shape[1] + 1) < tied_J[:, None]
        y_JW = np.where(among_JW, np.float32(1) - y_J[:, None], y_JW)
    elif judgements.groups_R is not None:
        for row, groups in enumerate(judgements.groups_R):
            at = 0
            for many in groups:  # responses ``at`` to ``at + many`` share a place
                y_JW[row, at : at + many - 1] = 0.5
                at += many
    return torch.from_numpy(np.where(there_JW, y_JW, np.float32(ABSENT)).reshape(-1))


def flips(judgements: Judgements) -> torch.Tensor | None:
    """The probability of each label not to be the true one, (J,) float64; None if unknown or 0."""
    if judgements.flip_R is None:
        return None
    return torch.tensor(judgements.flip_R, dtype=torch.float64)


def distinct_texts(
    judgements: Judgements, uses_prompt: bool, shown_J: Sequence[Sequence[str]] | None = None
) -> tuple[np.ndarray, list[str], list[str], list[int]]:
    """The index of the distinct text of each response of each judgement (−1: none), and these texts
    with the judgement that each first appears in. ``shown_J`` are the responses of each judgement
    that count; None: all.
    """
    index: dict[tuple[str, str], int] = {}
    first_row_T: list[int] = []
    text_JK = np.full((len(judgements), judgements.most_responses), -1, dtype=np.int64)
    for row, (prompt, shown) in enumerate(
        zip(judgements.prompts, shown_J or judgements.responses, strict=True)
    ):
        for side, response in enumerate(shown):
            text = index.setdefault((prompt if uses_prompt else "", response), len(index))
            if text == len(first_row_T):
                first_row_T.append(row)
            text_JK[row, side] = text
    return text_JK, [prompt for prompt, _ in index], [text for _, text in index], first_row_T
