"""Users' texts in tokens, and users' gradients by what is trained in a language model.

The counterpart of `preference.linear.examples` and `preference.linear.gradients` where a loss is
not linear in θ: the same sampled examples, the same mean over each user's, the same bound on each
user's vector. What the loss of an example is, a reward's or the next token's, is for its kind to
say.

Passes are isolated: users are computed one after the other, their examples in batches of bounded
numbers of tokens, padding included. So a user's vector is a function of that user's examples, θ and
public constants, bit for bit on one machine: shapes, and with them the order in which a matrix
product adds up, depend on no other user. Memory is that of one batch and one gradient.

In shared passes several users share a batch, in chunks whose gradients fit into the memory that is
set aside: users whose texts are about equally long are neighbours, so that there is little padding.
That changes a gradient in its last digits only, but it does: one user then moves the others'
vectors, by an amount that was measured (docs/explanation/sharp-edges.md) and not proven.

Measures, such as logits, are taken text by text: a text's depend on nothing but the text and θ. In
a public test, where users need not be kept apart, texts share batches.

Legend: J examples of all users, N sampled ones, K texts of an example at most, T distinct texts,
M those of these examples, R texts in a batch, S sampled users, B users of a chunk, D trained
parameters.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Self

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.choices import Kind
from murmuration.preference.data.judgements import InputError, rows_of
from murmuration.preference.kinds.model import AddTo
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.machine import most_rows, out_of_memory_advice
from murmuration.preference.language.tokens import Tokens, length_batches
from murmuration.preference.language.user_gradients import Span, Touched
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import PreferenceModel

_SAME = 1e-3  # of a gradient by one parameter: what was missed is far more, rounding far less
_ROUNDING = 1e-5  # of the whole gradient: all there is where it is zero but for rounding
_OFTEN = 4  # times that plain gradients, in the network's own type, are rounded to it on their way


@dataclass(frozen=True, eq=False)
class LanguageExamples(ABC):
    """Examples of users, in the order of the users.

    Attributes:
        base: the language model.
        tokens: of the distinct texts.
        text_JK: int64, which texts each example is made of; −1: there is none.
        start_U: int64, U + 1 offsets of examples.
        kind: as of judgements; every preference model suits pairs.
        public: whether texts share batches where they are measured.
    """

    base: LanguageBase
    tokens: Tokens
    text_JK: np.ndarray
    start_U: torch.Tensor
    kind: Kind = field(default="pairs", kw_only=True)
    public: bool = field(default=False, kw_only=True)

    measures_loss = False  # unless accuracy is of next tokens
    single_rows = None  # no gradient is a multiple of a row

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of rows per judgement."""

    @abstractmethod
    def differentiate(
        self, texts_R: np.ndarray, taken_N: np.ndarray, weight_N: np.ndarray, model: PreferenceModel
    ) -> None:
        """Go forward and back through the loss of some examples, the base's ``scale`` times
        Σ weight · loss.

        ``texts_R`` are the examples' texts, one example's after the other's.
        """

    @abstractmethod
    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """Measure the model at θ on them."""

    def figures(self, theta_D: np.ndarray) -> tuple[Accuracy, dict[str, float]]:
        """The accuracy; there are no other metrics."""
        return self.accuracy(theta_D), {}

    @property
    def network(self) -> torch.nn.Module:
        """The base's."""
        return self.base.model

    def in_public(self) -> Self:
        """The same examples, declared public: texts share batches."""
        return replace(self, public=True)

    def prepare(self, taken_N: np.ndarray, together: bool) -> None:
        """Compute what losses of some examples need beside θ, before it is put.

        ``together``: texts may share batches.
        """
        del together
        text_NK = self.text_JK[taken_N]
        self.base.keep_lower(self.tokens, np.unique(text_NK[text_NK >= 0]))

    def in_batches(self, tokens: int) -> Self:
        """The same examples, computed ``tokens`` tokens at a time; 0: as suits the device."""
        return replace(self, base=self.base.in_batches(tokens))

    @property
    def dimension(self) -> int:
        """D."""
        return self.base.dimension

    @property
    def counts_U(self) -> torch.Tensor:
        """The number of examples of each user, int64."""
        return self.start_U.diff()

    def select(self, users_S: np.ndarray) -> Self:
        """The examples of some users, in the given order."""
        _, start_S, kept_J = rows_of(users_S, self.start_U.numpy())
        chosen = replace(self, text_JK=self.text_JK[kept_J], start_U=torch.from_numpy(start_S))
        return chosen._with_rows_of(self, torch.from_numpy(kept_J))

    def _with_rows_of(self, whole: Self, kept_J: torch.Tensor) -> Self:
        """The examples with the rows of their further arrays."""
        del whole, kept_J
        return self

    def user_gradients(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        local: LocalSteps | None = None,
        *,
        shared_passes: bool = False,
    ) -> Iterator[torch.Tensor]:
        """Each sampled user's mean gradient at θ, chunk by chunk, (B, D) float32, in their order.

        With ``local``, the change θ − θ_u by each user's local steps. Without ``shared_passes`` a
        chunk is one user. A chunk is valid until the next is requested, and must not be written to.
        """
        chunks = self._user_chunks(
            theta_D, taken_N, taken_S, model, local, shared_passes=shared_passes
        )
        return (grads_BD for grads_BD, _ in chunks)

    def _user_chunks(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        local: LocalSteps | None,
        *,
        shared_passes: bool,
    ) -> Iterator[tuple[torch.Tensor, Touched]]:
        """As ``user_gradients``, with the numbers of a chunk that can differ from zero."""
        self.prepare(taken_N.numpy(), shared_passes)
        ends_S = np.cumsum(taken_S.numpy())
        taken, theta_D = taken_N.numpy(), theta_D.float()
        most = 1
        # After one step of their own, users are no longer at the same place.
        if shared_passes and (local is None or local.steps == 1):
            most = most_rows(self.base.device, self.dimension)
        with out_of_memory_advice():
            grads_BD = torch.empty(min(most, len(ends_S)), self.dimension, device=self.base.device)
            grads_BD.zero_()
        touched = Touched()
        steps, rate = (local.steps, local.rate) if local else (1, 1.0)
        for low in range(0, len(ends_S), most):
            high = min(low + most, len(ends_S))
            into_BD, first = grads_BD[: high - low], int(ends_S[low - 1]) if low else 0
            chosen_N, count_B = taken[first : ends_S[high - 1]], taken_S.numpy()[low:high]
            if low == 0 or steps > 1:
                self.base.put(theta_D)
            touched.clear(into_BD)
            self._add(into_BD, chosen_N, count_B, model, touched)
            down_BD = self.base.to_theta(into_BD)
            if rate != 1.0:
                down_BD *= rate
            for _ in range(steps - 1):
                self.base.put(theta_D.to(down_BD.device) - down_BD[0])
                gradient_BD = torch.zeros_like(down_BD)
                self._add(gradient_BD, chosen_N, count_B, model, touched)
                down_BD += rate * self.base.to_theta(gradient_BD)
            yield down_BD, touched

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
        """As `preference.linear.gradients.sum_over_users`: Σ over chunks of ``reduce``, (D,)
        float64; by ``add``, if there is one.
        """
        total = torch.zeros(self.dimension if width is None else width, dtype=torch.float64)
        if len(taken_S) == 0:
            return total
        if add is not None:
            total = total.to(self.base.device)
        if shared_passes:
            order_N, order_S = self._by_length(taken_N.numpy(), taken_S.numpy())
            taken_N, taken_S = torch.from_numpy(order_N), torch.from_numpy(order_S)
        for grads_BD, touched in self._user_chunks(
            theta_D, taken_N, taken_S, model, local, shared_passes=shared_passes
        ):
            if add is None:
                total += reduce(grads_BD)
            else:
                add(total, grads_BD, touched.stretches())
        return total.cpu()

    def check(self, model: PreferenceModel) -> None:
        """Compare each user's gradient with plain automatic differentiation, at a random θ.

        At θ = 0 a new head is zero, and so is every gradient before it. For made-up examples only
        (`preference.kinds.language`), since the result is reported.

        Raises:
            InputError: it does not fit into memory; a layer does not keep users apart; or a
                gradient differs from the network's (names the parameter).
        """
        every_N, theta_D = torch.arange(len(self.text_JK)), self.base.random_theta()
        ends_U = np.cumsum(self.counts_U.numpy())
        result = self.user_gradients(theta_D, every_N, self.counts_U, model)
        try:
            for (first, end), found_1D in zip(pairwise([0, *ends_U]), result, strict=True):
                if end > first:
                    self._compare(found_1D[0], np.arange(first, end), model)
        finally:
            self.base.put(torch.zeros(self.dimension))

    def _compare(self, found_D: torch.Tensor, mine_N: np.ndarray, model: PreferenceModel) -> None:
        """Compare one user's gradient with that of their mean loss, parameter by parameter."""
        text_NK, weight_N = self.text_JK[mine_N], np.full(len(mine_N), 1.0 / len(mine_N))
        with self.base.computing(), self.base.differentiable() as parameters:
            self.differentiate(text_NK[text_NK >= 0], mine_N, weight_N, model)
            result = [
                torch.zeros_like(p) if p.grad is None else p.grad for p in parameters.values()
            ]
            grads = [gradient.float() for gradient in result]
        expected_D = self.base.to_theta(torch.cat([g.reshape(1, -1) for g in grads], dim=1))[0]
        start, scale = 0, float(expected_D.norm())
        eps = torch.finfo(getattr(torch, self.base.settings.dtype)).eps
        same, rounding = max(_SAME, _OFTEN * eps), max(_ROUNDING, eps)
        if not 0.0 < scale < math.inf:
            raise InputError(
                "--base: made-up texts give no finite gradient that is not zero: nothing could be "
                "trained"
            )
        for name, parameter in parameters.items():
            part = slice(start, start + parameter.numel())
            apart = float((found_D[part] - expected_D[part]).norm())
            if not apart <= same * float(expected_D[part].norm()) + rounding * scale:
                raise InputError(
                    f"{name!r} is used outside its own layer, where users cannot be told apart: "
                    "use --train lora with --lora-targets that leave it out"
                )
            start += parameter.numel()

    def check_memory(self, model: PreferenceModel, users: int = 1) -> None:
        """Compute one user's gradient, beside as many rows as ``users``, or texts, have gradients
        at a time.

        For made-up examples as large as any can be (`preference.kinds.language`), so that
        what does not fit into memory shows before the first round.

        Raises:
            InputError: out of memory.
        """
        rows = most_rows(self.base.device, self.dimension)
        if not self.base.settings.once_per_text:
            rows = min(users, rows)
        with out_of_memory_advice():
            held_BD = torch.empty(max(0, rows - 1), self.dimension, device=self.base.device)
            held_BD.fill_(0.0)  # before that there are no pages behind it
            every_N = torch.arange(len(self.text_JK))
            for _ in self.user_gradients(
                torch.zeros(self.dimension), every_N, self.counts_U, model
            ):
                pass

    def measured(self, texts_R: np.ndarray, together: bool = False) -> Iterator[np.ndarray]:
        """Some texts in the parts in which they are measured: one by one, or, of a public test or
        ``together``, as many as are computed at a time. What is below the first trained layer is
        computed first, where it is kept."""
        self.base.keep_lower(self.tokens, texts_R)
        if not (self.public or together):
            yield from np.split(texts_R, len(texts_R)) if len(texts_R) else ()
            return
        lengths_R = self.tokens.lengths_T[texts_R]
        for places in length_batches(lengths_R, self.base.batch_tokens):
            yield texts_R[places]

    def shown(self) -> tuple[np.ndarray, np.ndarray]:
        """The texts of these examples, (M,), ascending, and the place of each among them, (J, K);
        M: there is none. Of few users' examples both are short, however many texts there are."""
        text_M = np.unique(self.text_JK[self.text_JK >= 0])
        place_JK = np.where(self.text_JK >= 0, np.searchsorted(text_M, self.text_JK), len(text_M))
        return text_M, place_JK

    def _lengths(self, taken_N: np.ndarray) -> np.ndarray:
        """The tokens of the longest text of each of some examples; independent of all others."""
        text_NK = self.text_JK[taken_N]
        lengths_NK = self.tokens.start_T[text_NK + 1] - self.tokens.start_T[text_NK]
        return np.where(text_NK >= 0, lengths_NK, 0).max(axis=1, initial=0)

    def _by_length(self, taken_N: np.ndarray, taken_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same users and examples, with users with long texts last."""
        first_S = np.cumsum(taken_S) - taken_S
        lengths_N = np.append(self._lengths(taken_N), 0)
        longest_S = np.maximum.reduceat(lengths_N, first_S) * (taken_S > 0)
        order_S = np.argsort(longest_S, kind="stable")
        parts = [taken_N[first_S[user] : first_S[user] + taken_S[user]] for user in order_S]
        return np.concatenate([taken_N[:0], *parts]), taken_S[order_S]

    def _add(
        self,
        grads_BD: torch.Tensor,
        taken_N: np.ndarray,
        taken_B: np.ndarray,
        model: PreferenceModel,
        touched: Touched,
    ) -> None:
        """Add users' mean gradients, at the θ that was put, to their rows."""
        user_N = np.repeat(np.arange(len(taken_B)), taken_B)
        weight_B = 1.0 / np.maximum(taken_B, 1)
        for part in self._passes(taken_N):
            self._add_batch(grads_BD, taken_N[part], user_N[part], weight_B, model, touched=touched)

    def _passes(self, taken_N: np.ndarray) -> Iterator[slice]:
        """The examples of each pass: as many as fit into a batch, or one."""
        lengths_N, shown_N = self._lengths(taken_N), (self.text_JK[taken_N] >= 0).sum(1)
        at = 0
        while at < len(taken_N):
            ahead = slice(at, at + max(1, self.base.batch_tokens))  # a text has a token at least
            longest = np.maximum.accumulate(lengths_N[ahead])
            tokens = longest * np.cumsum(shown_N[ahead])
            end = at + max(1, int((tokens <= self.base.batch_tokens).sum()))
            yield slice(at, end)
            at = end

    def padding(
        self, taken_N: torch.Tensor, taken_S: torch.Tensor, *, shared_passes: bool
    ) -> float:
        """The share of what passes over some users' examples compute that is padding."""
        order_N, order_S, most = taken_N.numpy(), taken_S.numpy(), 1
        if shared_passes:
            order_N, order_S = self._by_length(order_N, order_S)
            most = most_rows(self.base.device, self.dimension)
        real = computed = 0
        for mine_N in np.split(order_N, np.cumsum(order_S)[most - 1 : -1 : most]):
            for part in self._passes(mine_N):
                text_NK = self.text_JK[mine_N[part]]
                lengths_R = self.tokens.lengths_T[text_NK[text_NK >= 0]]
                real += int(lengths_R.sum())
                computed += len(lengths_R) * int(lengths_R.max())
        return 1.0 - real / max(1, computed)

    def _add_batch(
        self,
        grads_BD: torch.Tensor,
        taken_N: np.ndarray,
        user_N: np.ndarray,
        weight_B: np.ndarray,
        model: PreferenceModel,
        *,
        touched: Touched,
    ) -> None:
        text_NK = self.text_JK[taken_N]
        texts_R = text_NK[text_NK >= 0]
        users, shown = np.unique(user_N), (text_NK >= 0).sum(1)
        ends = np.cumsum([shown[user_N == user].sum() for user in users])
        starts = [0, *ends[:-1]]
        spans: list[Span] = [
            (int(u), int(a), int(b)) for u, a, b in zip(users, starts, ends, strict=True)
        ]
        into = self.base.backward.into(grads_BD, spans, len(texts_R), touched)
        with self.base.computing(), into:
            self.differentiate(texts_R, taken_N, weight_B[user_N], model)
