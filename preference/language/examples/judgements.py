"""Judgements as tokens, and the loss of a language model's reward on them.

The slope of a judgement's loss comes from the preference model, as with linear rewards; what is
left is a reward's gradient by what is trained, for which see `LanguageExamples`.

With ``once_per_text`` the gradient of each text's score (a reward, or a log-likelihood) is computed
once, by itself, for all users of a chunk who judged it: a user's gradient is their texts', each
times the slope of their losses in its score. Where a thousand texts were judged fifty times, that
is a fiftieth of the work. A text's bits depend on nothing but the text and θ, in whatever chunk it
comes, so a user's vector is a function of that user's examples as before. (In shared passes texts
share batches, and many users' vectors are one product.)

Legend: J judgements of all users, N sampled ones, W others in each, K = W + 1 responses, T distinct
texts, R texts in a batch, B users of a chunk, D trained parameters.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy, accuracy_by, float32_of
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.examples.language_examples import LanguageExamples
from murmuration.preference.language.machine import most_rows, out_of_memory_advice
from murmuration.preference.language.user_gradients import Span, Touched
from murmuration.preference.linear.examples import distinct_texts, flips, labels
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.models import PreferenceModel


@dataclass(frozen=True, eq=False)
class TokenExamples(LanguageExamples):
    """Tokens of judgements, grouped by user like the judgements they come from.

    Attributes:
        base: the language model.
        tokens: of the distinct texts.
        text_JK: int64, which text each response is, in order of preference; −1: there is none.
        y_R, start_U, flip_J, kind: as in `preference.linear.examples.PairExamples`, with R = J·W.
    """

    y_R: torch.Tensor
    flip_J: torch.Tensor | None = None

    @property
    def width(self) -> int:
        """W."""
        return self.text_JK.shape[1] - 1

    def _with_rows_of(self, whole: "TokenExamples", kept_J: torch.Tensor) -> "TokenExamples":
        y_R = whole.y_R.view(-1, self.width)[kept_J].reshape(-1)
        return replace(self, y_R=y_R, flip_J=None if whole.flip_J is None else whole.flip_J[kept_J])

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """Measure how often the preferred response has the higher reward at θ."""
        logits_R = self.logits_R(torch.from_numpy(float32_of(theta_D)))
        return accuracy_by(logits_R, self.y_R, self.start_U, self.kind, self.width)

    def logits_R(self, theta_D: torch.Tensor) -> torch.Tensor:
        """r(first) − r(other) of each row at θ, (R,) float32; 0 where there is no such response."""
        self.base.put(theta_D)
        text_M, place_JK = self.shown()
        reward_M = torch.zeros(len(text_M) + 1)  # the last is that of no text
        with torch.no_grad():
            for some_R in self.measured(text_M):
                at_R = np.searchsorted(text_M, some_R)
                reward_M[at_R] = self.base.rewards(self.tokens, some_R).cpu()
        reward_JK = reward_M[torch.from_numpy(place_JK)]
        logits_JW = reward_JK[:, :1] - reward_JK[:, 1:]
        return torch.where(torch.from_numpy(self.text_JK[:, 1:] >= 0), logits_JW, 0.0).reshape(-1)

    def differentiate(
        self, texts_R: np.ndarray, taken_N: np.ndarray, weight_N: np.ndarray, model: PreferenceModel
    ) -> None:
        """Differentiate through the slope of each judgement's loss in its texts' scores."""
        self.scored(
            texts_R,
            lambda score_R: (
                self.slopes(texts_R, score_R, taken_N, weight_N, model) * self.base.scale
            ),
        )

    def scored(self, texts_R: np.ndarray, slopes: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Go forward through the network to the scores of some texts, (R,), and back by as much as
        ``slopes`` makes of them; return them."""
        reward_R = self.base.rewards(self.tokens, texts_R)
        score_R = reward_R.detach().cpu().numpy()
        back_R = torch.from_numpy(slopes(score_R)).to(reward_R.device, reward_R.dtype)
        reward_R.backward(back_R)
        return score_R

    def slopes(
        self,
        texts_R: np.ndarray,
        score_R: np.ndarray,
        taken_N: np.ndarray,
        weight_N: np.ndarray,
        model: PreferenceModel,
    ) -> np.ndarray:
        """The derivatives of Σ weight · loss of some examples by the scores of their texts,
        (R,).
        """
        there_NK = torch.from_numpy(self.text_JK[taken_N] >= 0)
        reward_NK = torch.zeros(there_NK.shape)
        reward_NK[there_NK] = torch.from_numpy(score_R).float()
        y_NW = self.y_R.view(-1, self.width)[torch.from_numpy(taken_N)]
        slope_NW = model.each(reward_NK[:, :1] - reward_NK[:, 1:], y_NW)
        slope_NW = slope_NW * torch.from_numpy(weight_N).float()[:, None]
        first_N1 = torch.zeros(len(slope_NW), 1)
        for slope_N1 in slope_NW.split(1, dim=1):  # in order: what is not there adds nothing
            first_N1 += slope_N1
        return torch.cat([first_N1, -slope_NW], dim=1)[there_NK].numpy()

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
        """By texts, if `once_per_text`; not with several local steps, after which users have
        different θ.
        """
        if not self.base.settings.once_per_text or (local is not None and local.steps > 1):
            yield from super()._user_chunks(
                theta_D, taken_N, taken_S, model, local, shared_passes=shared_passes
            )
            return
        self.prepare(taken_N.numpy(), shared_passes)
        self.base.put(theta_D.float())
        ends_S, touched = np.cumsum(taken_S.numpy()), Touched()
        mine_SN = np.split(taken_N.numpy(), ends_S[:-1]) if len(ends_S) else []
        for some in self._sharing(mine_SN):
            texts_T = np.unique(self._texts_of(np.concatenate(some)))
            score_T, grads_TD = self._of_each(texts_T, touched, shared_passes)
            rate = 1.0 if local is None else local.rate
            if shared_passes:
                most = max(1, len(texts_T) // 4)  # rows beside those of the texts
                # In a product what is not finite would reach those who judged other texts alone.
                broken_T = ~torch.linalg.vector_norm(grads_TD, math.inf, dim=1).isfinite()
                grads_TD[broken_T] = 0.0
                for at in range(0, len(some), most):
                    slope_BT = self._slopes_by_text(texts_T, score_T, some[at : at + most], model)
                    slope_BT = slope_BT.to(grads_TD.device)
                    grads_BD = slope_BT @ grads_TD * rate
                    grads_BD[(slope_BT[:, broken_T] != 0.0).any(dim=1)] = math.nan
                    yield grads_BD, touched
                continue
            for mine_N in some:  # by their own texts alone: in company last digits could differ
                texts_R = self._texts_of(mine_N)
                place_R = np.searchsorted(texts_T, texts_R)
                weight_N = np.full(len(mine_N), 1.0 / max(1, len(mine_N)))
                slope_R = self.slopes(texts_R, score_T[place_R], mine_N, weight_N, model)
                slope_R = torch.from_numpy(slope_R).float().to(grads_TD.device)
                yield slope_R[None] @ grads_TD[torch.from_numpy(place_R)] * rate, touched

    def _slopes_by_text(
        self,
        texts_T: np.ndarray,
        score_T: np.ndarray,
        mine_BN: list[np.ndarray],
        model: PreferenceModel,
    ) -> torch.Tensor:
        """The derivatives of some users' mean losses by the scores of texts, (B, T) float32."""
        taken_N, count_B = np.concatenate(mine_BN), np.array([len(mine_N) for mine_N in mine_BN])
        user_N = np.repeat(np.arange(len(mine_BN)), count_B)
        texts_R = self._texts_of(taken_N)
        place_R = np.searchsorted(texts_T, texts_R)
        weight_N = 1.0 / count_B[user_N]
        slope_R = self.slopes(texts_R, score_T[place_R], taken_N, weight_N, model)
        user_R = np.repeat(user_N, (self.text_JK[taken_N] >= 0).sum(1))
        result_BT = np.zeros((len(mine_BN), len(texts_T)))
        np.add.at(result_BT, (user_R, place_R), slope_R)
        return torch.from_numpy(result_BT).float()

    def _texts_of(self, taken_N: np.ndarray) -> np.ndarray:
        text_NK = self.text_JK[taken_N]
        return text_NK[text_NK >= 0]

    def _sharing(self, mine_SN: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
        """Part users, in their order, into chunks whose texts' gradients fit into the memory that
        is set aside; there is one user at least in each."""
        most = most_rows(self.base.device, self.dimension)
        chunk, texts = list[np.ndarray](), set[int]()
        for mine_N in mine_SN:
            own = set(self._texts_of(mine_N).tolist())
            if chunk and len(texts | own) > most:
                yield chunk
                chunk, texts = [], set()
            chunk.append(mine_N)
            texts |= own
        if chunk:
            yield chunk

    def _of_each(
        self, texts_T: np.ndarray, touched: Touched, together: bool
    ) -> tuple[np.ndarray, torch.Tensor]:
        """The scores of some texts, (T,), and their gradients by θ, (T, D), at the θ that was put
        last.
        """
        with out_of_memory_advice():
            grads_TD = torch.zeros(len(texts_T), self.dimension, device=self.base.device)
        score_T = np.zeros(len(texts_T))
        for some_R in self.measured(texts_T, together):
            place_R = np.searchsorted(texts_T, some_R).tolist()
            spans: list[Span] = [(place, row, row + 1) for row, place in enumerate(place_R)]
            into = self.base.backward.into(grads_TD, spans, len(some_R), touched)
            with self.base.computing(), into:
                score_T[place_R] = self.scored(
                    some_R, lambda score_R: np.full(len(score_R), self.base.scale)
                )
        return score_T, self.base.to_theta(grads_TD)


def token_examples(
    judgements: Judgements,
    base: LanguageBase,
    left_out: LeftOut | None = None,
    *,
    ended: bool = False,
) -> TokenExamples:
    """The tokens of judgements; ``ended`` as of `TextTokens`.

    With ``left_out``, which takes them, judgements with a response that does not fit are left out.

    Raises:
        InputError: a response does not fit into the model's context (names the row), and there is
            nothing to take it.
    """
    text_JK, prompts, responses, first_row_T = distinct_texts(judgements, uses_prompt=True)
    if left_out is not None:
        reasons_T = [
            *base.texts.unreadable(prompts, responses, ended=ended),
            "",
        ]  # the last: no text
        if any(reasons_T):
            kept_J = left_out.rows_of_texts(reasons_T, text_JK)
            return token_examples(judgements.keep(kept_J), base, ended=ended)
    there_JW = text_JK[:, 1:] >= 0
    return TokenExamples(
        base=base,
        tokens=base.texts(prompts, responses, first_row_T, ended=ended),
        text_JK=text_JK,
        y_R=labels(judgements, there_JW),
        start_U=torch.tensor(judgements.start_U, dtype=torch.int64),
        flip_J=flips(judgements),
        kind=judgements.kind,
    )
