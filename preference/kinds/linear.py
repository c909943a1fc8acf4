"""A linear head θ over fixed features: as `preference.reward` saves and scores it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from murmuration.preference.data.judgements import LeftOut
from murmuration.preference.data.loading import Data
from murmuration.preference.features.feature_map import SCORER
from murmuration.preference.features.hashing import FeatureMap, feature_map
from murmuration.preference.kinds.model import Model
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.model_folder import DEFAULT, SaveOptions
from murmuration.preference.reward import RewardModel, rewards_at


@dataclass(frozen=True)
class LinearModel(Model):
    """Rewards θ · φ(prompt, response); see `preference.kinds.model.Model`.

    Attributes:
        features: φ.
        start: θ where training begins; None: zeros.
    """

    features: FeatureMap
    start: np.ndarray | None = field(default=None, compare=False, repr=False, kw_only=True)

    @classmethod
    def load(cls, config: Mapping[str, Any], weights: bool) -> Self:
        """The model that a config describes."""
        del weights
        return cls(feature_map(config))

    @property
    def dimension(self) -> int:
        """The dimension of the features."""
        return self.features.dimension

    @property
    def start_D(self) -> np.ndarray:
        """θ where training begins, (D,) float32."""
        return super().start_D if self.start is None else self.start

    @property
    def details(self) -> dict[str, object]:
        """The features as a result has them: without a scorer's weights."""
        shown = self.to_config()
        if SCORER in shown:
            scorer = shown[SCORER].items()
            shown[SCORER] = {name: value for name, value in scorer if name != "theta"}
        return shown

    def to_config(self) -> dict[str, Any]:
        """The config of the features."""
        return self.features.to_config()

    def examples(self, data: Data, left_out: LeftOut | None = None) -> PairExamples:
        """Feature differences of judgements."""
        judgements = data.as_judgements("--task reward is not for users' texts")
        return pair_examples(judgements, self.features, left_out)

    def scores(
        self, theta_ID: Sequence[np.ndarray], prompts: Sequence[str], responses: Sequence[str]
    ) -> np.ndarray:
        """θ · φ at each θ, (I, R)."""
        return rewards_at(theta_ID, self.features, prompts, responses)

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Save as `RewardModel.save` does."""
        RewardModel(theta_D, self.features, model).save(folder, **vars(options))
