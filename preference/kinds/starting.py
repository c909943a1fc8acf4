"""Where a linear reward begins: a public choice, or one that carries its promise.

A start is the length of a response, a saved reward on the same features, or any other scorer of
responses, whose squeezed score becomes a feature more. Training moves the model away from there,
and what is saved is the sum, an ordinary reward. Nothing here reads users' judgements.

Legend: D features.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.data.public_names import LENGTH
from murmuration.preference.features.feature_map import FeatureMap
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.features.scorer import (
    WEIGHT,
    LanguageScorer,
    LinearScorer,
    Scored,
    Scorer,
)
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.kinds.model import Model
from murmuration.preference.language.reward import is_language_model, read_about
from murmuration.preference.reward import RewardModel, is_linear_reward
from murmuration.privacy.regular_files import check_folder

#: θ of the length feature there. With the default feature, 50 words against 12 are log odds of one.
LENGTH_WEIGHT = 3.0
#: Weights of a start, in absolute value: float32 rounds them by a hundredth of a usual step.
MOST = 1e5


def described_features(config: Mapping[str, Any], start: str) -> dict[str, Any]:
    """The config of features with the start's score, if it is one of them.

    Args:
        config: of the features without it.
        start: as ``--start``; not empty.

    Raises:
        InputError: a start that cannot be used.
    """
    if start == LENGTH:  # no feature more: nothing need be loaded
        _check_length(config)
        return dict(config)
    features, _ = _begun(feature_map(config), start)
    return features.to_config()


def with_start(model: Model, start: str) -> Model:
    """A model on features of `described_features` that begins at the start; itself without one.

    Raises:
        InputError: as `described_features`.
    """
    if not start:
        return model
    linear = cast(LinearModel, model)  # of others the rules refuse a start
    if isinstance(linear.features, Scored):
        return replace(linear, start=_score_axis(linear.features))
    _, theta_D = _begun(linear.features, start)
    return replace(linear, start=theta_D)


def _begun(plain: FeatureMap, start: str) -> tuple[FeatureMap, np.ndarray]:
    """The features with the start among them, and θ there, (D,) float32."""
    if start == LENGTH:
        _check_length(plain.to_config())
        return plain, LENGTH_WEIGHT * _length_axis(plain)
    folder = Path(start)
    try:
        check_folder(folder)
        if is_linear_reward(folder):
            reward = RewardModel.load_linear(folder)
            if reward.features.to_config() == plain.to_config():
                _check_size(reward.theta_D)
                return plain, reward.theta_D
            scored = Scored(LinearScorer(reward.theta_D, reward.features), plain)
        else:
            scored = Scored(_language_scorer(folder), plain)
    except (InputError, OSError) as error:
        raise InputError(f"--start {start}: {first_line(error)}") from None
    return scored, _score_axis(scored)


def _language_scorer(folder: Path) -> Scorer:
    limits: dict[str, Any] = {}
    if is_language_model(folder):
        about = read_about(folder)["base"]
        if about.get("task", "reward") != "reward":
            raise InputError(f"a model of --task {about['task']}, which scores no responses")
        limits = {name: about[name] for name in ("max_tokens", "system") if about.get(name)}
    elif not (folder / "config.json").exists():
        raise InputError("neither a saved reward nor a sequence classifier: it has no config.json")
    scorer = LanguageScorer(str(folder), **limits)
    if not scorer.has_head:
        raise InputError(
            "a model without a trained head of one number, which scores no responses: name a "
            "sequence classifier with one label"
        )
    return scorer


def _check_length(config: Mapping[str, Any]) -> None:
    """InputError unless the last feature is the length of the response."""
    if config.get("length", "none") == "none":
        raise InputError("--start length: these features do not count a response's length")


def _check_size(theta_D: np.ndarray) -> None:
    """InputError for numbers beside which no step of training is more than their rounding."""
    if (largest := float(np.abs(theta_D).max())) > MOST:
        raise InputError(
            f"a weight of {largest:.1e}: training would not move it, and spend the budget for "
            f"nothing; scale the reward so that no weight is above {MOST:.0e}"
        )


def _length_axis(plain: FeatureMap) -> np.ndarray:
    axis_D = np.zeros(plain.dimension, dtype=np.float32)
    axis_D[-1] = 1.0
    return axis_D


def _score_axis(scored: Scored) -> np.ndarray:
    axis_D = np.zeros(scored.dimension, dtype=np.float32)
    axis_D[0] = WEIGHT
    return axis_D


def is_folder_of_a_model(start: str) -> bool:
    """True if a start is a saved model, of which somebody may have been trained on."""
    return start not in ("", LENGTH)


def digest_of_start(theta_D: np.ndarray, config: Mapping[str, Any]) -> str:
    """SHA-256 of where a run begins: of θ and of its features' config."""
    numbers = np.ascontiguousarray(theta_D, dtype="<f4").tobytes()
    text = json.dumps(dict(config), sort_keys=True).encode()
    return hashlib.sha256(numbers + text).hexdigest()
