"""A linear head θ over fixed features: as `preference.reward` saves and scores it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.hashing import FeatureMap, feature_map
from murmuration.preference.kinds.model import Examples
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.models import PreferenceModel
from murmuration.preference.reward import RewardModel, rewards_at


@dataclass(frozen=True)
class LinearModel:
    """Rewards θ · φ(prompt, response); see `preference.kinds.model.Model`.

    Attributes:
        features: φ.
    """

    features: FeatureMap

    trains, computes, holds_promise = True, True, False

    @classmethod
    def load(cls, config: Mapping[str, Any], weights: bool) -> Self:
        """Return the model that a config describes."""
        del weights
        return cls(feature_map(config))

    @property
    def dimension(self) -> int:
        """That of the features."""
        return self.features.dimension

    @property
    def details(self) -> Mapping[str, object]:
        """Nothing."""
        return {}

    def to_config(self) -> dict[str, Any]:
        """Return the features' description."""
        return self.features.to_config()

    def loaded(self) -> Self:
        """Return itself."""
        return self

    def examples(self, data: Data, left_out: LeftOut | None = None) -> PairExamples:
        """Return feature differences."""
        judgements = data.as_judgements("--task reward is not for users' texts")
        return pair_examples(judgements, self.features, left_out)

    def reuse(self, made: Examples) -> None:
        """Return None: other features make others."""
        del made

    def try_out(self, schema: Schema, model: PreferenceModel, group_size: int, users: int) -> int:
        """Return zero: any machine can compute it."""
        del schema, model, group_size, users
        return 0

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """Return θ · φ at each θ, (I, R)."""
        return rewards_at(theta_ID, self.features, prompts, responses)

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Return that all can be read."""
        del prompts
        return np.ones(len(responses), dtype=bool)

    def choice(self, theta_D: np.ndarray, test: Any) -> dict[str, object]:
        """Return nothing."""
        del theta_D, test
        return {}

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """As `RewardModel.save`."""
        RewardModel(theta_D, self.features, model).save(folder, **vars(options))
