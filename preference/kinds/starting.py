"""Where a linear reward begins: a public choice, or one that carries its promise.

A start is the length of a response, a saved reward on the same features, or one on others, whose
squeezed score becomes a feature more. Training moves the model away from there,
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
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.features.scorer import WEIGHT, LinearScorer, Scored
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.kinds.model import Model
from murmuration.preference.reward import RewardModel, read_saved
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
    plain = feature_map(config)
    try:
        check_folder(Path(start))
        reward = RewardModel.load_linear(start)
        if reward.features.to_config() == plain.to_config():
            _check_size(reward.theta_D)
            return plain.to_config()
        return Scored(LinearScorer(reward.theta_D, reward.features), plain).to_config()
    except (InputError, OSError) as error:
        raise InputError(f"--start {start}: {first_line(error)}") from None


def with_start(model: Model, start: str) -> Model:
    """A model on features of `described_features` that begins at the start; itself without one."""
    if not start:
        return model
    linear = cast(LinearModel, model)  # of others the rules refuse a start
    if start == LENGTH:
        theta_D = _axis(linear.dimension, -1, LENGTH_WEIGHT)
    elif isinstance(linear.features, Scored):
        theta_D = _axis(linear.dimension, 0, WEIGHT)
    else:
        _, theta_D = read_saved(Path(start))
    return replace(linear, start=theta_D)


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


def _axis(dimension: int, place: int, weight: float) -> np.ndarray:
    axis_D = np.zeros(dimension, dtype=np.float32)
    axis_D[place] = weight
    return axis_D


def is_folder_of_a_model(start: str) -> bool:
    """True if a start is a saved model, of which somebody may have been trained on."""
    return start not in ("", LENGTH)


def digest_of_start(theta_D: np.ndarray, config: Mapping[str, Any]) -> str:
    """SHA-256 of where a run begins: of θ and of its features' config."""
    numbers = np.ascontiguousarray(theta_D, dtype="<f4").tobytes()
    text = json.dumps(dict(config), sort_keys=True).encode()
    return hashlib.sha256(numbers + text).hexdigest()
