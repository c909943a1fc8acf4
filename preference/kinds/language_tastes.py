"""A basis of rewards on a language model: a head of K rows, over frozen states or through LoRA.

    r_u(x) = w_uᵀ B φ(x),   w_u = (1, v_u),   φ(x): the state that the head reads

B, and with `--train lora` or `full` what is below it, is learned as `preference.linear.tastes`
learns a basis over fixed features: v_u is solved on one half of the judgements of a user that
count, at the θ of the round, and the loss of the other half is differentiated with v_u as a
constant; then the other way round. All of a user's gradient is one vector, which is clipped as any
user's. v_u is computed where it is needed and forgotten.

What is solved needs the rewards of all of a user's judgements, so these are computed once more,
without gradients, before each pass back.

Legend: J judgements, N sampled ones, B users of a chunk, R texts, K rows of the head, V = K − 1.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy, float32_of
from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.kinds.language_reward import LanguageRewardModel
from murmuration.preference.kinds.tastes import TastesModel
from murmuration.preference.language.examples import TokenExamples
from murmuration.preference.language.reward import finite_theta, save_language_model
from murmuration.preference.language.tokens import Tokens, length_batches
from murmuration.preference.language.user_gradients import Touched
from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.tastes import accuracy_at, check_pairs, halves, weights_of_halves
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.models import PreferenceModel


@dataclass(frozen=True)
class LanguageHeadTastes(TastesModel):
    """As what it extends, on the last states of a language model; saved as one.

    Attributes:
        features: the states.
    """

    features: LanguageHead

    holds_promise = True

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Return which texts the language model can read."""
        return self.features.fits(prompts, responses)

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Write the language model with the crowd's head, and the basis beside it."""
        basis_KD = self._basis_KD(finite_theta(theta_D, self.dimension))
        tastes_VH = basis_KD[1:] / np.float32(math.sqrt(self.features.dimension))
        save_language_model(folder, self.features, basis_KD[0], model, options, tastes_VH)


class LanguageTastes(LanguageRewardModel):
    """Rewards by a head of K rows on the last token."""

    def examples(self, data: Data, left_out: LeftOut | None = None) -> "TasteTokens":
        """Return the tokens of pairs."""
        return TasteTokens(**vars(super().examples(data, left_out)))

    def _of_tokens(
        self, tokens: Tokens, text_JK: np.ndarray, start_U: torch.Tensor, schema: Schema
    ) -> "TasteTokens":
        """Return judgements in which the first response is preferred."""
        return TasteTokens(**vars(super()._of_tokens(tokens, text_JK, start_U, schema)))

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Write the language model with the crowd's head, and the other rows beside it."""
        tastes_VH = self.network.tastes_at(finite_theta(theta_D, self.dimension))
        save_language_model(folder, self.network, theta_D, model, options, tastes_VH)


@dataclass(frozen=True, eq=False)
class TasteTokens(TokenExamples):
    """Tokens of pairs, by which a head of K rows is learned, and what is below it.

    Attributes:
        own_JK: with which w each judgement is looked at, where these are known.
    """

    own_JK: torch.Tensor | None = field(default=None, kw_only=True)

    measures_personal = True

    def __post_init__(self) -> None:
        check_pairs(self.kind, self.width)

    @cached_property
    def half_J(self) -> np.ndarray:
        """Return in which half of its user's each judgement is, as `halves` has it."""
        return halves(self.text_JK, self.start_U.numpy())

    def accuracy(self, theta_D: np.ndarray | torch.Tensor) -> Accuracy:
        """As `preference.linear.tastes.accuracy_at`."""
        self.base.put(float32_of(theta_D))
        z_JK = self._differences(self.text_JK, self.measured(np.unique(self.text_JK)))
        pairs = PairExamples(z_JK, self.y_R, self.start_U)
        return accuracy_at(pairs, self.half_J, np.eye(z_JK.shape[1], dtype=np.float32))

    def _differences(self, text_N2: np.ndarray, batches: Iterable[np.ndarray]) -> torch.Tensor:
        """Return what each row says of some pairs, whose texts are in ``batches``, at the θ that
        was put last, (N, K) float32."""
        texts_R = np.unique(text_N2)
        row_RK = torch.zeros(len(texts_R), self.base.settings.tastes)
        with torch.no_grad():
            for some in batches:
                row_RK[np.searchsorted(texts_R, some)] = self.base.rows(self.tokens, some).cpu()
        first, second = (row_RK[np.searchsorted(texts_R, text_N)] for text_N in text_N2.T)
        return first - second

    def _owned(self, taken_N: np.ndarray, taken_B: np.ndarray) -> "TasteTokens":
        """Return some users' judgements with the weights of each at the θ that was put last.

        A user's are a function of that user's judgements: they alone are solved for together, and,
        where users are computed one after the other, they alone share batches.
        """
        text_N2, y_N = self.text_JK[taken_N], self.y_R[torch.from_numpy(taken_N)]
        texts_R = np.unique(text_N2)
        lengths_R = self.tokens.lengths_T[texts_R]
        batches = (texts_R[some] for some in length_batches(lengths_R, self.base.batch_tokens))
        with self.base.computing():
            z_NK = self._differences(text_N2, batches).numpy()
        cuts, arrays = np.cumsum(taken_B)[:-1], (z_NK, y_N.numpy(), self.half_J[taken_N])
        users = zip(*(np.split(each, cuts) for each in arrays), strict=True)
        own_NK = np.concatenate([z_NK[:0], *(weights_of_halves(*user) for user in users)])
        own = torch.from_numpy(own_NK)
        return replace(self, text_JK=text_N2, y_R=y_N, flip_J=None, own_JK=own)

    def _add(
        self,
        grads_BD: torch.Tensor,
        taken_N: np.ndarray,
        taken_B: np.ndarray,
        model: PreferenceModel,
        touched: Touched,
    ) -> None:
        owned, all_N = self._owned(taken_N, taken_B), np.arange(len(taken_N))
        super(TasteTokens, owned)._add(grads_BD, all_N, taken_B, model, touched)

    def _compare(self, found_D: torch.Tensor, mine_N: np.ndarray, model: PreferenceModel) -> None:
        owned = self._owned(mine_N, np.array([len(mine_N)]))
        super(TasteTokens, owned)._compare(found_D, np.arange(len(mine_N)), model)

    def differentiate(
        self, texts_R: np.ndarray, taken_N: np.ndarray, weight_N: np.ndarray, model: PreferenceModel
    ) -> None:
        """By the slope of each judgement's loss in its texts' scores by its user's own reward."""
        assert self.own_JK is not None
        own_RK = self.own_JK[torch.from_numpy(taken_N)].repeat_interleave(2, dim=0)
        row_RK = self.base.rows(self.tokens, texts_R)
        score_R = (row_RK * own_RK.to(row_RK.device)).sum(1)
        slope_R = self.slopes(texts_R, score_R.detach().cpu().numpy(), taken_N, weight_N, model)
        score_R.backward(torch.from_numpy(slope_R * self.base.scale).to(score_R))
