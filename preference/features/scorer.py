"""The score of a saved reward as one feature more, in front of the others.

The score is squeezed, so that no text can have a large feature: asinh(s / 4) over asinh(250), cut
off where |s| is 1,000. That keeps the order of scores; a score near zero counts for what it is, and
a large one about as its logarithm. At the weight `WEIGHT` the squeezed score of a small s is worth
s again: log odds, if the model was trained as preference models are.

Shape suffixes: R texts, D features.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.feature_map import SCORER, FeatureMap

_STEEPEST, _LARGEST = 4.0, 1_000.0
#: At which a small score counts for itself.
WEIGHT = _STEEPEST * math.asinh(_LARGEST / _STEEPEST)


class LinearScorer:
    """A saved linear reward: θ · φ, with φ and θ in its config, so that nodes need no folder."""

    def __init__(self, theta_D: np.ndarray, features: FeatureMap) -> None:
        """Raises InputError for another number of weights than of features, weights that are not
        finite, or features that have a scorer of their own."""
        self.theta_D, self.features = np.asarray(theta_D, dtype=np.float32), features
        if self.theta_D.shape != (features.dimension,) or not np.isfinite(self.theta_D).all():
            raise InputError(
                f"a scorer's weights must be {features.dimension} finite numbers, one for each "
                "feature"
            )
        if SCORER in features.to_config():
            raise InputError("a scorer that stands on another scorer")

    @property
    def uses_prompt(self) -> bool:
        """True if the features do."""
        return self.features.uses_prompt

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """θ · φ of R texts, (R,) float64."""
        theta_D = self.theta_D.astype(np.float64)
        phi_RD = np.asarray(self.features(prompts, responses), dtype=np.float64)
        return np.array([float(phi_D @ theta_D) for phi_D in phi_RD])

    def to_config(self) -> dict[str, Any]:
        """Description for `scorer_of`."""
        theta = base64.b64encode(self.theta_D.astype("<f4").tobytes()).decode()
        return {"features": self.features.to_config(), "theta": theta}


class Scored:
    """A squeezed score, and other features behind it; a `FeatureMap`."""

    def __init__(self, scorer: LinearScorer, others: FeatureMap) -> None:
        self.scorer, self.others = scorer, others

    @property
    def dimension(self) -> int:
        """1 + D."""
        return 1 + self.others.dimension

    @property
    def uses_prompt(self) -> bool:
        """True if the scorer or the other features do."""
        return self.scorer.uses_prompt or self.others.uses_prompt

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, 1 + D) float32."""
        phi_RD = np.empty((len(responses), self.dimension), dtype=np.float32)
        if len(responses):
            phi_RD[:, 0] = squeezed(self.scorer.score(prompts, responses))
            phi_RD[:, 1:] = self.others(prompts, responses)
        return phi_RD

    def to_config(self) -> dict[str, Any]:
        """Description for `preference.features.hashing.feature_map`."""
        return {**self.others.to_config(), SCORER: self.scorer.to_config()}


def squeezed(score_R: np.ndarray) -> np.ndarray:
    """Scores within [−1, 1], float32; NaN stays, which stops where features are checked."""
    # One by one: an array's functions may differ in their last bits with a number's place in it.
    cut_R = np.clip(np.asarray(score_R, dtype=np.float64), -_LARGEST, _LARGEST).tolist()
    return np.array([math.asinh(s / _STEEPEST) * _STEEPEST / WEIGHT for s in cut_R], np.float32)


def scorer_of(config: Mapping[str, Any], features: FeatureMap) -> LinearScorer:
    """The scorer on ``features`` that a config describes; InputError if it describes none."""
    try:
        return LinearScorer(_numbers_in(config["theta"]), features)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"a scorer that cannot be read: {error}") from None


def _numbers_in(text: Any) -> np.ndarray:
    """The float32 numbers that a text in base64 holds; TypeError or ValueError if it holds none."""
    if not isinstance(text, str):
        raise TypeError("numbers that are no text")
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    except binascii.Error as error:
        raise ValueError(str(error)) from None
