"""One crowd, many tastes: a shared basis of rewards, and weights that are each user's own.

    r_u(x) = w_uᵀ B x,   w_u = (1, v_u),   v_u = argmin_v Σ_i loss_i((1, v)ᵀ B x_i) + ½|v|²,

The first row of B is the crowd's reward, whose weight is one for everybody. The others are
directions in which people differ; v_u says how much a user goes along each. The ridge is a normal
prior of variance one: it shrinks to the crowd's reward, and fixes the scale of B's rows, which the
data then choose. A rotation of these rows and of v changes no reward, so they are known up to
rotation.

The gradient of B is taken on other judgements than v: one half gives v, and the other (1, v) ⊗ g
with g the derivative of the loss at that v; and the other way round. On the same judgements v would
follow what is chance in them, and B would learn that chance; on others E[v ⊗ g] is what users have
in common with themselves, and it is zero where B is right. v itself is treated as constant (as in
Singhal et al. 2021, federated reconstruction).

The halves share no response, by any user: else what somebody thinks of one response would pass for
a taste, since a judgement tells of the others with it, and says nothing about new responses. A
judgement that shares responses with both halves counts for the crowd's row alone, at the crowd's
reward.

Decisions:
- v is computed anew from the user's own judgements wherever it is needed, and forgotten. Nothing
  keeps it, and it leaves in no form but in this one product, which is clipped like any user's
  gradient. So a user's vector is a function of that user's judgements and of B, its length is
  bounded by the clip norm, and what is promised to users is what is promised with K = 1.
- θ is B less where it starts (`preference.linear.basis_start`), one row after the other, so that
  training starts at θ = 0 as ever.
- What a basis makes degenerate is no error, which would depend on judgements: the step is not
  taken, v stays.
- Newton's steps with halving from v = 0, in float64, one user after the other: the same bits in
  any company.

Sources: Bose et al. 2025 (LoRe: a shared basis of rewards, without privacy).

Legend: R rows, N judgements taken, M judgements of one user, B users, D dimensions, K rows of the
basis, V = K − 1 weights of a user, E = K·D numbers of θ.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy, float32_of, with_personal
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.rows import InputError, Kind
from murmuration.preference.features.hashing import FeatureMap
from murmuration.preference.kinds.array_examples import ArrayExamples
from murmuration.preference.kinds.model import AddTo
from murmuration.preference.linear.basis_start import start_KD
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.linear.gradients import ONE_STEP, chunk_cuts, sum_of_chunks
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import PreferenceModel
from murmuration.privacy.mechanisms.numba_jit import kernel

#: The preference model that tastes are for.
MODEL = "btl"
#: What there is to say of a reward without tastes.
ONE_FOR_ALL = "the model has one reward for all: train it with --tastes 2 or more"
#: Of judgements that are in neither half.
NEITHER = 2
_NEWTON_STEPS, _HALVINGS = 12, 30
_SMALL = 1e-6  # a step that gains no more than this is the last: the next would gain its square


def own_weights(x_MD: np.ndarray, y_M: np.ndarray, basis_KD: np.ndarray) -> np.ndarray:
    """Return the v of who made these judgements, (V,) float64; zeros of who made none."""
    z_MK = np.ascontiguousarray(x_MD, np.float64) @ basis_KD.T.astype(np.float64)
    v = np.zeros(len(basis_KD) - 1)
    _solve(z_MK, y_M.astype(np.float64), 0, len(z_MK), v)
    return v


def weights_of(
    judgements: Judgements,
    features: FeatureMap,
    basis_KD: np.ndarray,
    left_out: LeftOut | None = None,
) -> np.ndarray:
    """Return the same of judgements, in which no user is told from another.

    ``left_out`` takes those without finite features.

    Raises:
        InputError: they are no pairs, or features are not finite and there is nothing to take them.
    """
    examples = pair_examples(judgements, features, left_out)
    if examples.kind != "pairs":
        raise InputError(f"own judgements must be pairs, not {examples.kind}")
    return own_weights(examples.x_RD.numpy(), examples.y_R.numpy(), basis_KD)


def weights_of_halves(z_MK: np.ndarray, y_M: np.ndarray, half_M: np.ndarray) -> np.ndarray:
    """Return with which w = (1, v) each judgement of one user is looked at, (M, K) float32: that of
    the other half, and of `NEITHER` that of nobody, (1, 0, …).

    Args:
        z_MK: what each row of the basis says of each judgement, B x.
        y_M: labels.
        half_M: of `halves`.
    """
    w_MK = np.zeros(z_MK.shape, dtype=np.float32)
    w_MK[:, 0] = 1.0
    for known, other in ((0, 1), (1, 0)):
        mine = half_M == known
        w_MK[half_M == other, 1:] = own_weights(z_MK[mine], y_M[mine], np.eye(z_MK.shape[1]))
    return w_MK


@kernel(error_model="numpy")
def _objective(z: np.ndarray, y: np.ndarray, first: int, end: int, v: np.ndarray) -> float:
    total = 0.0
    for k in range(len(v)):
        total += 0.5 * v[k] * v[k]
    for m in range(first, end):
        reward = z[m, 0]
        for k in range(len(v)):
            reward += v[k] * z[m, k + 1]
        total += max(reward, 0.0) + math.log1p(math.exp(-abs(reward))) - y[m] * reward
    return total


@kernel(error_model="numpy")
def _newton(
    z: np.ndarray, y: np.ndarray, first: int, end: int, v: np.ndarray, step: np.ndarray
) -> None:
    """Newton's step at ``v``, by a Cholesky decomposition of the curvature, which is at least 1."""
    count = len(v)
    curvature = np.zeros((count, count))
    for k in range(count):
        step[k], curvature[k, k] = v[k], 1.0
    for m in range(first, end):
        reward = z[m, 0]
        for k in range(count):
            reward += v[k] * z[m, k + 1]
        p = 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, reward))))
        for k in range(count):
            step[k] += (p - y[m]) * z[m, k + 1]
            for i in range(k + 1):
                curvature[k, i] += p * (1.0 - p) * z[m, k + 1] * z[m, i + 1]
    for k in range(count):
        for i in range(k + 1):
            total = curvature[k, i]
            for j in range(i):
                total -= curvature[k, j] * curvature[i, j]
            curvature[k, i] = math.sqrt(total) if i == k else total / curvature[i, i]
    for k in range(count):
        for i in range(k):
            step[k] -= curvature[k, i] * step[i]
        step[k] /= curvature[k, k]
    for k in range(count - 1, -1, -1):
        for i in range(k + 1, count):
            step[k] -= curvature[i, k] * step[i]
        step[k] /= curvature[k, k]


@kernel(error_model="numpy")
def _solve(z: np.ndarray, y: np.ndarray, first: int, end: int, v: np.ndarray) -> None:
    """The v of judgements ``first`` to ``end``, of whose rows ``z`` (M, K) has the rewards."""
    v[:] = 0.0
    if first == end:
        return
    step, there = np.empty_like(v), np.empty_like(v)
    best = _objective(z, y, first, end, v)
    for _ in range(_NEWTON_STEPS):
        _newton(z, y, first, end, v, step)
        scale, gained = 1.0, 0.0
        for _ in range(_HALVINGS):
            for k in range(len(v)):
                there[k] = v[k] - scale * step[k]
            value = _objective(z, y, first, end, there)
            if value < best:
                gained = best - value
                best = value
                v[:] = there
                break
            scale *= 0.5
        if not gained > _SMALL:
            break


def check_pairs(kind: Kind, width: int) -> None:
    """Raise InputError unless judgements are pairs."""
    if width != 1 or kind != "pairs":
        raise InputError("--tastes is for pairs: leave it out for judgements of another kind")


def halves(text_JK: np.ndarray, start_U: np.ndarray) -> np.ndarray:
    """Return in which half of its user's each judgement is, (J,) int8: 0, 1, or `NEITHER`.

    One after the other: with the half that has its responses already, `NEITHER` where both do, and
    the smaller one where none does. A function of one user's judgements at a time.

    Args:
        text_JK: which text each response is; −1: there is none.
        start_U: where users' judgements begin, and the end.
    """
    half_J = np.full(len(text_JK), NEITHER, dtype=np.int8)
    for first, end in pairwise(start_U.tolist()):
        place: dict[int, int] = {}  # of a text
        sizes = [0, 0]
        for judgement in range(first, end):
            texts = [text for text in text_JK[judgement].tolist() if text >= 0]
            there = {place[text] for text in texts if text in place}
            if len(there) > 1:
                continue
            half = there.pop() if there else int(sizes[1] < sizes[0])
            place.update((text, half) for text in texts)
            sizes[half] += 1
            half_J[judgement] = half
    return half_J


@kernel()
def _by_half(rows: np.ndarray, half_J: np.ndarray, ordered: np.ndarray) -> tuple[int, int]:
    """Order one user's rows by half; return where the second begins, and those of neither."""
    at, ends = 0, np.zeros(3, np.int64)
    for half in range(3):
        for row in rows:
            if half_J[row] == half:
                ordered[at] = row
                at += 1
        ends[half] = at
    return ends[0], ends[1]


@kernel()
def _tested_part(half: int, second: int, neither: int, end: int) -> tuple[int, int, int, int]:
    """Begin and end of what gives v, and of what is looked at with that v, in step 0, 1 or 2."""
    if half == 0:
        return 0, second, second, neither
    if half == 1:
        return second, neither, 0, second
    return 0, 0, neither, end


@kernel(fastmath={"reassoc", "contract", "arcp", "nsz"})
def _rewards(x_RD: np.ndarray, rows: np.ndarray, basis_KD: np.ndarray, z: np.ndarray) -> None:
    """B x of some rows, each by itself."""
    for m in range(len(rows)):
        for k in range(len(basis_KD)):
            dot, row = np.float32(0.0), rows[m]
            for d in range(x_RD.shape[1]):
                dot += x_RD[row, d] * basis_KD[k, d]
            z[m, k] = dot


@kernel(error_model="numpy")
def updates(
    x_RD: np.ndarray,
    y_R: np.ndarray,
    taken_N: np.ndarray,
    ends_B: np.ndarray,
    half_J: np.ndarray,
    basis_KD: np.ndarray,
    steps: int,
    rate: float,
    out_BE: np.ndarray,
) -> None:
    """B − B_u of each user after gradient steps of their own, into ``out_BE``; one at rate 1 gives
    the gradient. User b takes judgements ``taken_N[ends_B[b − 1]:ends_B[b]]``."""
    tastes, dimension = basis_KD.shape
    here_KD = np.empty_like(basis_KD)
    v, mean_D = np.empty(tastes - 1), np.empty(dimension, np.float32)
    for b in range(len(ends_B)):
        taken = taken_N[(ends_B[b - 1] if b else 0) : ends_B[b]]
        rows = np.empty_like(taken)
        second, neither = _by_half(taken, half_J, rows)
        y, z = np.empty(len(rows)), np.empty((len(rows), tastes))
        for m in range(len(rows)):
            y[m] = y_R[rows[m]]
        out_KD = out_BE[b].reshape(tastes, dimension)
        out_KD[:] = 0.0
        for _ in range(steps):
            for k in range(tastes):
                for d in range(dimension):
                    here_KD[k, d] = basis_KD[k, d] - out_KD[k, d]
            _rewards(x_RD, rows, here_KD, z)
            for half in range(3):
                first, end, other, last = _tested_part(half, second, neither, len(rows))
                if other == last:
                    continue
                _solve(z, y, first, end, v)
                mean_D[:] = 0.0
                for m in range(other, last):
                    reward = z[m, 0]
                    for k in range(tastes - 1):
                        reward += v[k] * z[m, k + 1]
                    p = 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, reward))))
                    if math.isnan(reward):
                        p = math.nan
                    weight, row = np.float32(rate * (p - y[m]) / len(rows)), rows[m]
                    for d in range(dimension):
                        mean_D[d] += weight * x_RD[row, d]
                for k in range(tastes):
                    weight = np.float32(v[k - 1] if k else 1.0)
                    for d in range(dimension):
                        out_KD[k, d] += weight * mean_D[d]


@kernel(error_model="numpy")
def _personal_logits(
    x_RD: np.ndarray,
    y_R: np.ndarray,
    start_U: np.ndarray,
    half_J: np.ndarray,
    basis_KD: np.ndarray,
    out_R: np.ndarray,
) -> None:
    """The logit of each row with the weights of its user's other half; the crowd's of neither."""
    v = np.empty(len(basis_KD) - 1)
    for u in range(len(start_U) - 1):
        rows = np.empty(start_U[u + 1] - start_U[u], np.int64)
        second, neither = _by_half(np.arange(start_U[u], start_U[u + 1]), half_J, rows)
        y, z = np.empty(len(rows)), np.empty((len(rows), len(basis_KD)))
        for m in range(len(rows)):
            y[m] = y_R[rows[m]]
        _rewards(x_RD, rows, basis_KD, z)
        for half in range(3):
            first, end, other, last = _tested_part(half, second, neither, len(rows))
            _solve(z, y, first, end, v)
            for m in range(other, last):
                reward = z[m, 0]
                for k in range(len(v)):
                    reward += v[k] * z[m, k + 1]
                out_R[rows[m]] = reward


def accuracy_at(pairs: PairExamples, half_J: np.ndarray, basis_KD: np.ndarray) -> Accuracy:
    """Return the accuracy of the crowd's reward, and by user of each user's own (`personal`).

    Of the latter each half of a user's judgements is predicted with the weights that the other half
    gives, so both are about the same judgements. Those in neither half are predicted by the crowd's
    reward.
    """
    crowd_R = pairs.logits_R(torch.from_numpy(basis_KD[0]))
    logits_R, of_pairs = torch.empty(len(pairs.y_R)), (pairs.x_RD, pairs.y_R, pairs.start_U)
    arrays = (part.numpy() for part in of_pairs)
    _personal_logits(*arrays, half_J, basis_KD, logits_R.numpy())
    return with_personal(crowd_R, logits_R, pairs)


@dataclass(frozen=True, eq=False)
class TasteExamples(ArrayExamples):
    """Pairs of judgements, by which a shared basis is learned; as of
    `preference.kinds.model.TrainingExamples`, with θ of E = K·D numbers.

    Attributes:
        pairs: the judgements.
        tastes: K.
        half_J: of `halves`.
    """

    pairs: PairExamples
    tastes: int
    half_J: np.ndarray

    single_rows = None
    measures_personal = True

    def __post_init__(self) -> None:
        check_pairs(self.pairs.kind, self.pairs.width)
        if self.half_J.shape != (len(self.pairs.x_RD),):
            raise InputError("halves and judgements differ in number")

    @property
    def dimension(self) -> int:
        """E."""
        return self.tastes * self.pairs.dimension

    @property
    def kind(self) -> Kind:
        """Pairs."""
        return self.pairs.kind

    @property
    def width(self) -> int:
        """One."""
        return self.pairs.width

    @property
    def y_R(self) -> torch.Tensor:
        """Return the labels."""
        return self.pairs.y_R

    @property
    def start_U(self) -> torch.Tensor:
        """Return where users' judgements begin."""
        return self.pairs.start_U

    @property
    def counts_U(self) -> torch.Tensor:
        """Return how many judgements each user has."""
        return self.pairs.counts_U

    @property
    def flip_J(self) -> torch.Tensor | None:
        """Return the labels' probabilities not to be the true ones."""
        return self.pairs.flip_J

    @cached_property
    def _start_KD(self) -> np.ndarray:
        return start_KD(self.tastes, self.pairs.dimension)

    def basis_KD(self, theta_E: np.ndarray | torch.Tensor) -> np.ndarray:
        """Return B at θ, float32.

        Raises:
            ValueError: θ has not K·D numbers.
        """
        theta_E = float32_of(theta_E)
        if theta_E.shape != (self.dimension,):
            raise ValueError(f"a model of shape {theta_E.shape} for {self.dimension} numbers")
        return self._start_KD + theta_E.reshape(self._start_KD.shape)

    def select(self, users_S: np.ndarray) -> Self:
        """Return the examples of some users, in the given order."""
        starts = self.start_U.numpy()
        parts = [self.half_J[starts[user] : starts[user + 1]] for user in users_S]
        half_J = np.concatenate([self.half_J[:0], *parts])
        return replace(self, pairs=self.pairs.select(users_S), half_J=half_J)

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """As `accuracy_at`, at θ."""
        return accuracy_at(self.pairs, self.half_J, self.basis_KD(theta_D))

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """Return the same, and nothing else."""
        return self.accuracy(theta_D), {}

    def user_gradients(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        *,
        batch_users: bool = False,
    ) -> Iterator[torch.Tensor]:
        """As of `preference.linear.gradients.user_gradients`, of E numbers each."""
        del batch_users
        updates_of, chunks = self._work(theta_D, taken_N, taken_S, model, ONE_STEP)
        for chunk in range(chunks):
            yield updates_of(chunk)

    def sum_over_users(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        reduce: Callable[[torch.Tensor], torch.Tensor],
        model: PreferenceModel,
        local: LocalSteps | None = None,
        width: int | None = None,
        batch_users: bool = False,
        add: AddTo | None = None,
    ) -> torch.Tensor:
        """As of `preference.linear.gradients.sum_over_users`, of E numbers each."""
        del batch_users, add
        updates_of, chunks = self._work(theta_D, taken_N, taken_S, model, local or ONE_STEP)
        return sum_of_chunks(
            lambda chunk: reduce(updates_of(chunk)),
            chunks,
            self.dimension if width is None else width,
        )

    def _work(
        self,
        theta_E: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        local: LocalSteps,
    ) -> tuple[Callable[[int], torch.Tensor], int]:
        """Return what computes a chunk of users, (B, E) float32, and how many chunks there are."""
        if model.name != MODEL:
            raise ValueError(f"--tastes is for --model {MODEL}, not {model.name}")
        basis_KD = self.basis_KD(theta_E)
        ends_S = np.cumsum(taken_S.numpy())
        cuts = chunk_cuts(taken_S.numpy(), 4 * self.dimension)

        def updates_of(chunk: int) -> torch.Tensor:
            users = slice(cuts[chunk], cuts[chunk + 1])
            first = int(ends_S[users.start - 1]) if users.start else 0
            ends_B = ends_S[users] - first
            out_BE = torch.empty(len(ends_B), self.dimension)
            updates(
                self.pairs.x_RD.numpy(),
                self.y_R.numpy(),
                taken_N[first : first + int(ends_B[-1])].numpy(),
                ends_B,
                self.half_J,
                basis_KD,
                local.steps,
                local.rate,
                out_BE.numpy(),
            )
            return out_BE

        return updates_of, len(cuts) - 1
