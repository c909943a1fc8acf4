"""Where a linear reward begins, and along which directions it is learnt: public choices both.

A start is the length of a response, a saved reward on the same features, or any other scorer of
responses, whose squeezed score becomes a feature more. Training moves the model away from there,
and what is saved is the sum, an ordinary reward.

Directions come from public responses (`preference.features.directions`). Nothing here reads users'
judgements.

Legend: D features, K directions, N rows of differences.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.preference.data.errors import InputError, first_line
from murmuration.preference.data.loading import Data
from murmuration.preference.data.public_names import LENGTH
from murmuration.preference.features.directions import Directions, principal_directions
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
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.reward import RewardModel, is_linear_reward
from murmuration.privacy.regular_files import check_folder

#: θ of the length feature there. With the default feature, 50 words against 12 are log odds of one.
LENGTH_WEIGHT = 3.0


def described_features(
    config: Mapping[str, Any], start: str, directions: int, public: Data | None
) -> dict[str, Any]:
    """The config of features with the start's score, if it is one of them, along directions.

    Args:
        config: of the plain features.
        start: as ``--start``; empty: none.
        directions: the most directions; 0: all.
        public: judgements that are public, of which the responses count; None: none are needed.

    Raises:
        InputError: a start that cannot be used; or public responses from which no direction comes.
    """
    plain = feature_map(config)
    theta_D: np.ndarray | None = None
    if start:
        plain, theta_D = _begun(plain, start)
    if not directions or directions >= plain.dimension:
        return plain.to_config()
    if public is None:
        raise InputError(
            "--directions come from public responses: name judgements of other people with --public"
        )
    axes = [theta_D] if theta_D is not None and theta_D.any() else []
    axes += [_length_axis(plain)] if _counts_length(plain) else []
    axes_FD = np.array(axes[:directions]).reshape(-1, plain.dimension)
    basis_DK = principal_directions(_differences(plain, public), axes_FD, directions)
    return Directions(basis_DK, plain).to_config()


def with_start(model: Model, start: str) -> Model:
    """A model on features of `described_features` that begins at the start; itself without one.

    Raises:
        InputError: as `described_features`.
    """
    if not start:
        return model
    if not isinstance(model, LinearModel):
        raise InputError("--start is for a linear reward on --features")
    features = model.features
    plain = features.plain if isinstance(features, Directions) else features
    if isinstance(plain, Scored):
        theta_D = _score_axis(plain)
    else:
        _, theta_D = _begun(plain, start)
    if isinstance(features, Directions):
        theta_D = features.lowered(theta_D)
    return replace(model, start=theta_D)


def _begun(plain: FeatureMap, start: str) -> tuple[FeatureMap, np.ndarray]:
    """The features with the start among them, and θ there, (D,) float32."""
    if start == LENGTH:
        if not _counts_length(plain):
            raise InputError("--start length: these features do not count a response's length")
        return plain, LENGTH_WEIGHT * _length_axis(plain)
    folder = Path(start)
    try:
        check_folder(folder)
        if is_linear_reward(folder):
            reward = RewardModel.load_linear(folder)
            if reward.features.to_config() == plain.to_config():
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
        names = ("max_tokens", "head_pooling", "system")
        limits = {name: about[name] for name in names if about.get(name)}
    elif not (folder / "config.json").exists():
        raise InputError("neither a saved reward nor a sequence classifier: it has no config.json")
    scorer = LanguageScorer(str(folder), **limits)
    if not scorer.has_head:
        raise InputError(
            "a model without a trained head of one number, which scores no responses: name a "
            "sequence classifier with one label"
        )
    return scorer


def _counts_length(plain: FeatureMap) -> bool:
    """True if the last feature is the length of the response."""
    return plain.to_config().get("length", "none") != "none"


def _length_axis(plain: FeatureMap) -> np.ndarray:
    axis_D = np.zeros(plain.dimension, dtype=np.float32)
    axis_D[-1] = 1.0
    return axis_D


def _score_axis(scored: Scored) -> np.ndarray:
    axis_D = np.zeros(scored.dimension, dtype=np.float32)
    axis_D[0] = WEIGHT
    return axis_D


def _differences(plain: FeatureMap, public: Data) -> np.ndarray:
    """Differences of features between the first response and each other, (N, D); of single ones
    between each and their mean."""
    judgements = public.as_judgements("--public: users' texts are not judged")
    rows_ND = pair_examples(judgements, plain).x_RD.numpy()
    return rows_ND - rows_ND.mean(axis=0) if judgements.kind == "thumbs" else rows_ND


def is_folder_of_a_model(start: str) -> bool:
    """True if a start is a saved model, of which somebody may have been trained on."""
    return start not in ("", LENGTH)


def digest_of_numbers(theta_D: np.ndarray, config: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of where a run begins, and of its features' config."""
    text = json.dumps(dict(config), sort_keys=True).encode()
    numbers = np.ascontiguousarray(theta_D, dtype="<f4").tobytes()
    return {
        "start": hashlib.sha256(numbers).hexdigest(),
        "directions": hashlib.sha256(text).hexdigest(),
    }
