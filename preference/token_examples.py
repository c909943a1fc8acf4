"""Judgements as tokens, and users' gradients of a language model's reward by what is trained in it.

The counterpart of `preference.examples` and `preference.gradients` where rewards are not linear in
θ: the same sampled judgements, the same mean over each user's, the same bound on each user's
vector. Users are taken in chunks whose gradients fit into the memory that is set aside, and a
chunk's judgements in batches of so many tokens, padding included: users whose texts are about
equally long are neighbours, so that there is little padding.

Batching changes a gradient in its last digits only, but it does; that is why results are equal to
about 1e-5, not bit for bit, however users are grouped. The same users on the same nodes give the
same bits on the same machine.

Legend: J judgements of all users, N sampled ones, W others in each, K = W + 1 responses, T distinct
texts, R texts in a batch, S sampled users, B users of a chunk, D trained parameters.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from preference.examples import distinct_texts, flips, labels
from preference.judgements import Judgements
from preference.language_base import LanguageBase, naming_the_knob
from preference.models import PreferenceModel
from preference.rows import Kind
from preference.text_tokens import Tokens
from preference.user_backward import Span

if TYPE_CHECKING:
    from preference.gradients import LocalSteps


@dataclass(frozen=True, eq=False)
class TokenExamples:
    """Tokens of judgements, grouped by user like the judgements they come from.

    Attributes:
        base: the language model.
        tokens: of the distinct texts.
        text_JK: int64, which text each response is, in order of preference; −1: there is none.
        y_R, start_U, flip_J, kind: as in `preference.examples.PairExamples`, with R = J·W.
    """

    base: LanguageBase
    tokens: Tokens
    text_JK: np.ndarray
    y_R: torch.Tensor
    start_U: torch.Tensor
    flip_J: torch.Tensor | None = None
    kind: Kind = "pairs"

    @property
    def width(self) -> int:
        """W."""
        return self.text_JK.shape[1] - 1

    @property
    def dimension(self) -> int:
        """D."""
        return self.base.dimension

    @property
    def counts_U(self) -> torch.Tensor:
        """int64: how many judgements each user has."""
        return self.start_U.diff()

    def select(self, users_S: np.ndarray) -> "TokenExamples":
        """The examples of some users, in the given order."""
        users = np.asarray(users_S, dtype=np.int64)
        start = self.start_U.tolist()
        ranges = [np.arange(start[user], start[user + 1]) for user in users.tolist()]
        kept_J = torch.from_numpy(np.concatenate([np.empty(0, np.int64), *ranges]))
        return replace(
            self,
            text_JK=self.text_JK[kept_J.numpy()],
            y_R=self.y_R.view(-1, self.width)[kept_J].reshape(-1),
            start_U=torch.tensor(np.cumsum([0, *map(len, ranges)]), dtype=torch.int64),
            flip_J=None if self.flip_J is None else self.flip_J[kept_J],
        )

    def logits_R(self, theta_D: torch.Tensor) -> torch.Tensor:
        """r(first) − r(other) of each row at θ, (R,) float32; 0 where there is no such response."""
        self.base.put(theta_D)
        texts_T = np.unique(self.text_JK[self.text_JK >= 0])
        texts_T = texts_T[np.argsort(self.tokens.lengths_T[texts_T], kind="stable")]
        reward_T = torch.zeros(len(self.tokens.lengths_T) + 1)  # the last is that of no text
        at = 0
        with torch.no_grad():
            while at < len(texts_T):
                # Ascending: the last of a batch is its longest.
                ahead = self.tokens.lengths_T[texts_T[at:]] * np.arange(1, len(texts_T) - at + 1)
                end = at + max(1, int((ahead <= self.base.batch_tokens).sum()))
                part = texts_T[at:end]
                reward_T[torch.from_numpy(part)] = self.base.rewards(self.tokens, part).cpu()
                at = end
        reward_JK = reward_T[torch.from_numpy(self.text_JK)]
        logits_JW = reward_JK[:, :1] - reward_JK[:, 1:]
        return torch.where(torch.from_numpy(self.text_JK[:, 1:] >= 0), logits_JW, 0.0).reshape(-1)

    def user_gradients(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        model: PreferenceModel,
        local: "LocalSteps | None" = None,
    ) -> Iterator[torch.Tensor]:
        """Each sampled user's mean gradient at θ, chunk by chunk, (B, D) float32, in their order.

        With ``local``, how far these steps of their own lead them down from θ, θ − θ_u. A chunk is
        valid until the next is asked for.
        """
        ends_S = np.cumsum(taken_S.numpy())
        taken, theta_D = taken_N.numpy(), theta_D.float()
        most = max(1, self.base.settings.memory * 2**20 // (4 * self.dimension))
        if local and local.steps > 1:
            most = 1  # after one step of their own, users are no longer at the same place
        with naming_the_knob():
            grads_BD = torch.empty(min(most, len(ends_S)), self.dimension, device=self.base.device)
        for low in range(0, len(ends_S), most):
            high = min(low + most, len(ends_S))
            into_BD, first = grads_BD[: high - low], int(ends_S[low - 1]) if low else 0
            chosen_N, count_B = taken[first : ends_S[high - 1]], taken_S.numpy()[low:high]
            self.base.put(theta_D)
            self._add(into_BD.zero_(), chosen_N, count_B, model)
            self.base.to_theta(into_BD)
            if local is None:
                yield into_BD
                continue
            down_BD = into_BD.mul_(local.rate)
            for _ in range(local.steps - 1):
                self.base.put(theta_D.to(down_BD.device) - down_BD[0])
                gradient_BD = torch.zeros_like(down_BD)
                self._add(gradient_BD, chosen_N, count_B, model)
                down_BD += local.rate * self.base.to_theta(gradient_BD)
            yield down_BD

    def sum_over_users(
        self,
        theta_D: torch.Tensor,
        taken_N: torch.Tensor,
        taken_S: torch.Tensor,
        reduce: Callable[[torch.Tensor], torch.Tensor],
        model: PreferenceModel,
        local: "LocalSteps | None" = None,
        width: int | None = None,
    ) -> torch.Tensor:
        """As `preference.gradients.sum_over_users`: Σ over chunks of ``reduce``, (D,) float64."""
        total = torch.zeros(self.dimension if width is None else width, dtype=torch.float64)
        if len(taken_S) == 0:
            return total
        order_N, order_S = self._by_length(taken_N.numpy(), taken_S.numpy())
        chunks = self.user_gradients(
            theta_D, torch.from_numpy(order_N), torch.from_numpy(order_S), model, local
        )
        for grads_BD in chunks:
            total += reduce(grads_BD)
        return total

    def check(self, model: PreferenceModel) -> None:
        """Compute one gradient, of the longest judgement, so that what is wrong shows early.

        Raises:
            InputError: it does not fit into memory, or users cannot be told apart in a layer.
        """
        longest = np.array([self._lengths_J.argmax()])
        one = torch.ones(1, dtype=torch.int64)
        theta_D = torch.zeros(self.dimension)
        next(self.user_gradients(theta_D, torch.from_numpy(longest), one, model))

    @property
    def _lengths_J(self) -> np.ndarray:
        """Tokens of each judgement's longest text."""
        return np.append(self.tokens.lengths_T, 0)[self.text_JK].max(axis=1)

    def _by_length(self, taken_N: np.ndarray, taken_S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same users and judgements, users with long texts last."""
        first_S = np.cumsum(taken_S) - taken_S
        lengths_N = np.append(self._lengths_J[taken_N], 0)
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
    ) -> None:
        """Add users' mean gradients, at the θ that was put, to their rows."""
        user_N = np.repeat(np.arange(len(taken_B)), taken_B)
        lengths_N, shown_N = self._lengths_J[taken_N], (self.text_JK[taken_N] >= 0).sum(1)
        at = 0
        while at < len(taken_N):
            longest = np.maximum.accumulate(lengths_N[at:])
            tokens = longest * np.cumsum(shown_N[at:])
            end = at + max(1, int((tokens <= self.base.batch_tokens).sum()))
            part = slice(at, end)
            self._add_batch(grads_BD, taken_N[part], user_N[part], 1.0 / taken_B, model)
            at = end

    def _add_batch(
        self,
        grads_BD: torch.Tensor,
        taken_N: np.ndarray,
        user_N: np.ndarray,
        weight_B: np.ndarray,
        model: PreferenceModel,
    ) -> None:
        text_NK = self.text_JK[taken_N]
        there_NK = torch.from_numpy(text_NK >= 0)
        texts_R = text_NK[text_NK >= 0]
        users, shown = np.unique(user_N, return_counts=False), (text_NK >= 0).sum(1)
        ends = np.cumsum([shown[user_N == user].sum() for user in users])
        starts = [0, *ends[:-1]]
        spans: list[Span] = [
            (int(u), int(a), int(b)) for u, a, b in zip(users, starts, ends, strict=True)
        ]
        with naming_the_knob(), self.base.backward.into(grads_BD, spans, len(texts_R)):
            reward_R = self.base.rewards(self.tokens, texts_R)
            reward_NK = torch.zeros(there_NK.shape)
            reward_NK[there_NK] = reward_R.detach().cpu()
            y_NW = self.y_R.view(-1, self.width)[torch.from_numpy(taken_N)]
            slope_NW = model.residual(reward_NK[:, :1] - reward_NK[:, 1:], y_NW)
            slope_NW = slope_NW * torch.from_numpy(weight_B[user_N]).float()[:, None]
            back_NK = torch.cat([slope_NW.sum(1, keepdim=True), -slope_NW], dim=1)
            reward_R.backward(back_NK[there_NK].to(reward_R.device))


def token_examples(judgements: Judgements, base: LanguageBase) -> TokenExamples:
    """The tokens of judgements.

    Raises:
        InputError: a response does not fit into the model's context (names the row).
    """
    text_JK, prompts, responses, first_row_T = distinct_texts(judgements, uses_prompt=True)
    there_JW = text_JK[:, 1:] >= 0
    return TokenExamples(
        base=base,
        tokens=base.texts(prompts, responses, first_row_T),
        text_JK=text_JK,
        y_R=labels(judgements, there_JW),
        start_U=torch.tensor(judgements.start_U, dtype=torch.int64),
        flip_J=flips(judgements),
        kind=judgements.kind,
    )
