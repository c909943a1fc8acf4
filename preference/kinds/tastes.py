"""A shared basis of rewards over fixed features; users' weights are nowhere in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from murmuration.preference.choices import MOST_TASTES
from murmuration.preference.data.judgements import InputError, LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.linear.basis_start import start_KD
from murmuration.preference.linear.examples import made_up_pairs, pairs_with_texts
from murmuration.preference.linear.tastes import TasteExamples, halves
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.reward import RewardModel, rewards_at


@dataclass(frozen=True)
class TastesModel(LinearModel):
    """Rewards w_uᵀ B φ(prompt, response), at θ = B less its start; see
    `preference.linear.tastes`.

    Attributes:
        tastes: K, the rows of B.
    """

    tastes: int = 2

    @classmethod
    def load(cls, config: Mapping[str, Any], weights: bool) -> Self:
        """Return the model that a config describes."""
        del weights
        rest = dict(config)
        tastes = rest.pop("tastes", None)
        if type(tastes) is not int or not 2 <= tastes <= MOST_TASTES:
            raise InputError(f"tastes must be a whole number, 2 to {MOST_TASTES}; got {tastes!r}")
        return cls(feature_map(rest), tastes)

    @property
    def dimension(self) -> int:
        """K·D."""
        return self.tastes * self.features.dimension

    def to_config(self) -> dict[str, Any]:
        """Return the features' description, and K."""
        return {**self.features.to_config(), "tastes": self.tastes}

    def examples(self, data: Data, left_out: LeftOut | None = None) -> TasteExamples:  # type: ignore[override]
        """Return feature differences, and halves of each user's that share no response."""
        judgements = data.as_judgements("--task reward is not for users' texts")
        pairs, text_JK = pairs_with_texts(judgements, self.features, left_out)
        return TasteExamples(pairs, self.tastes, halves(text_JK, pairs.start_U.numpy()))

    def largest_examples(self, schema: Schema, users: int, each: int) -> TasteExamples:  # type: ignore[override]
        """Return random differences, of which none is larger than another."""
        pairs = made_up_pairs(self.features.dimension, schema, users, each)
        texts_J2 = np.arange(2 * len(pairs.x_RD)).reshape(-1, 2)
        return TasteExamples(pairs, self.tastes, halves(texts_J2, pairs.start_U.numpy()))

    def _basis_KD(self, theta_E: np.ndarray) -> np.ndarray:
        start = start_KD(self.tastes, self.features.dimension)
        return start + np.asarray(theta_E, dtype=np.float32).reshape(start.shape)

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """Return the crowd's rewards at each θ, (I, R)."""
        crowd_ID = [self._basis_KD(theta_E)[0] for theta_E in theta_ID]
        return rewards_at(crowd_ID, self.features, prompts, responses)

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """As `RewardModel.save`: the crowd's reward, with the basis beside it."""
        basis_KD = self._basis_KD(theta_D)
        reward = RewardModel(basis_KD[0], self.features, model, tastes_VD=basis_KD[1:])
        reward.save(folder, **vars(options))
