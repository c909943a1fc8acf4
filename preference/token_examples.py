"""Judgements as tokens, and the loss of a language model's reward on them.

The slope of a judgement's loss comes from the model of preferences, as with linear rewards; what is
left is a reward's gradient by what is trained, for which see `preference.language_examples`.

Legend: J judgements of all users, N sampled ones, W others in each, K = W + 1 responses, T distinct
texts, R texts in a batch.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from preference.examples import distinct_texts, flips, labels
from preference.judgements import Judgements, LeftOut
from preference.language_base import LanguageBase
from preference.language_examples import LanguageExamples
from preference.models import PreferenceModel


@dataclass(frozen=True, eq=False)
class TokenExamples(LanguageExamples):
    """Tokens of judgements, grouped by user like the judgements they come from.

    Attributes:
        base: the language model.
        tokens: of the distinct texts.
        text_JK: int64, which text each response is, in order of preference; −1: there is none.
        y_R, start_U, flip_J, kind: as in `preference.examples.PairExamples`, with R = J·W.
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

    def logits_R(self, theta_D: torch.Tensor) -> torch.Tensor:
        """r(first) − r(other) of each row at θ, (R,) float32; 0 where there is no such response."""
        self.base.put(theta_D)
        reward_T = torch.zeros(len(self.tokens.lengths_T) + 1)  # the last is that of no text
        with torch.no_grad():
            for text in np.unique(self.text_JK[self.text_JK >= 0]).tolist():
                reward_T[text] = self.base.rewards(self.tokens, np.array([text]))[0].cpu()
        reward_JK = reward_T[torch.from_numpy(self.text_JK)]
        logits_JW = reward_JK[:, :1] - reward_JK[:, 1:]
        return torch.where(torch.from_numpy(self.text_JK[:, 1:] >= 0), logits_JW, 0.0).reshape(-1)

    def differentiate(
        self, texts_R: np.ndarray, taken_N: np.ndarray, weight_N: np.ndarray, model: PreferenceModel
    ) -> None:
        """By the slope of each judgement's loss in its rewards."""
        there_NK = torch.from_numpy(self.text_JK[taken_N] >= 0)
        reward_R = self.base.rewards(self.tokens, texts_R)
        reward_NK = torch.zeros(there_NK.shape)
        reward_NK[there_NK] = reward_R.detach().cpu()
        y_NW = self.y_R.view(-1, self.width)[torch.from_numpy(taken_N)]
        slope_NW = model.each(reward_NK[:, :1] - reward_NK[:, 1:], y_NW)
        slope_NW = slope_NW * torch.from_numpy(weight_N).float()[:, None]
        first_N1 = torch.zeros(len(slope_NW), 1)
        for slope_N1 in slope_NW.split(1, dim=1):  # in order: what is not there adds nothing
            first_N1 += slope_N1
        back_NK = torch.cat([first_N1, -slope_NW], dim=1)
        reward_R.backward(back_NK[there_NK].to(reward_R.device))


def token_examples(
    judgements: Judgements, base: LanguageBase, left_out: LeftOut | None = None
) -> TokenExamples:
    """The tokens of judgements.

    With ``left_out``, which takes them, judgements with a response that does not fit are left out.

    Raises:
        InputError: a response does not fit into the model's context (names the row), and there is
            nothing to take it.
    """
    text_JK, prompts, responses, first_row_T = distinct_texts(judgements, uses_prompt=True)
    if left_out is not None:
        fits_T = np.append(base.texts.fits(prompts, responses), True)  # the last: no text
        kept_J = np.asarray(fits_T[text_JK].all(axis=1))
        if not kept_J.all():
            left_out.add_all(kept_J, "a response that does not fit into the context")
            return token_examples(judgements.keep(kept_J), base)
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
