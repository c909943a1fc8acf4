"""The score of a public model as one feature more, in front of the others.

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
from typing import Any, Protocol

import numpy as np
import torch

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.feature_map import SCORER, FeatureMap
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings

_STEEPEST, _LARGEST = 4.0, 1_000.0
#: At which a small score counts for itself.
WEIGHT = _STEEPEST * math.asinh(_LARGEST / _STEEPEST)


class Scorer(Protocol):
    """A model that scores responses."""

    @property
    def uses_prompt(self) -> bool:
        """True if a score depends on the prompt."""
        ...

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Scores of R texts, (R,) float64, of each by itself."""
        ...

    def to_config(self) -> dict[str, Any]:
        """Description for `scorer_of`."""
        ...


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


class LanguageScorer:
    """A sequence classifier with one score, as transformers saves it, or a saved language reward.

    Raises:
        InputError: it cannot be loaded, or is not what ``digest`` says; its path is then named as
            that of a base is.
    """

    uses_prompt = True

    def __init__(self, path: str, digest: str = "", **limits: Any) -> None:
        self._settings = BaseSettings(path=path, digest=digest, train="head", **limits)
        self._base = LanguageBase(self._settings)
        self._base.texts.keep = False

    @property
    def has_head(self) -> bool:
        """True unless its head gives every response the same, as one that was never trained."""
        weights = (
            parameter
            for name, parameter in self._base.model.named_parameters()
            if self._base.is_of_head(name) and name.endswith("weight")
        )
        return all(bool(torch.count_nonzero(weight)) for weight in weights)

    def score(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Rewards of R texts, (R,) float64, each computed alone."""
        tokens = self._base.texts(prompts, responses)
        with torch.no_grad():
            rewards = [self._base.rewards(tokens, np.array([n])) for n in range(len(responses))]
        return np.array([float(each[0]) for each in rewards], dtype=np.float64)

    def unreadable(self, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
        """The reason why the model cannot read each text; "" if it can."""
        return self._base.texts.unreadable(prompts, responses)

    def to_config(self) -> dict[str, Any]:
        """Description for `scorer_of`."""
        settings = self._base.settings.described
        return {name: settings[name] for name in _DESCRIBED if settings.get(name)}


_DESCRIBED = ("path", "digest", "max_tokens", "dtype", "system")


class Scored:
    """A squeezed score, and other features behind it; a `FeatureMap`."""

    def __init__(self, scorer: Scorer, others: FeatureMap) -> None:
        self.scorer, self.others = scorer, others
        if any(hasattr(part, "unreadable") for part in (scorer, others)):
            self.unreadable = self._unreadable

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

    def _unreadable(self, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
        reasons = [""] * len(responses)
        for part in (self.scorer, self.others):
            if (unreadable := getattr(part, "unreadable", None)) is not None:
                both = zip(reasons, unreadable(prompts, responses), strict=True)
                reasons = [one or other for one, other in both]
        return reasons

    def to_config(self) -> dict[str, Any]:
        """Description for `preference.features.hashing.feature_map`."""
        return {**self.others.to_config(), SCORER: self.scorer.to_config()}


def squeezed(score_R: np.ndarray) -> np.ndarray:
    """Scores within [−1, 1], float32; NaN stays, which stops where features are checked."""
    # One by one: an array's functions may differ in their last bits with a number's place in it.
    cut_R = np.clip(np.asarray(score_R, dtype=np.float64), -_LARGEST, _LARGEST).tolist()
    return np.array([math.asinh(s / _STEEPEST) * _STEEPEST / WEIGHT for s in cut_R], np.float32)


def scorer_of(config: Any, features: FeatureMap | None) -> Scorer:
    """The scorer that a config describes; ``features`` are those that it names, if it names any.

    Raises:
        InputError: it describes none, or one that cannot be loaded.
    """
    try:
        if features is not None:
            return LinearScorer(_numbers_in(config["theta"]), features)
        known = {name: config[name] for name in _DESCRIBED if name in config}
        if not isinstance(config, Mapping) or known != dict(config):
            raise ValueError("it names what no scorer has")
        return LanguageScorer(**known)
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
