"""The linear reward model: a head θ over fixed features φ of prompt and response.

Decisions:
- A saved model is a folder: `model.safetensors` (θ), `config.json` (the features), `README.md` (its
  card). It is written beside its place and renamed into it, so that it is there whole or not at
  all.
- The features are saved by their description. For an encoder this is its path or name, not its
  weights.
- Accuracy is taken on feature differences, where two texts with equal features tie exactly.

    from preference.reward import RewardModel
    model = RewardModel.load("r/model")
    model.score("Spend or save?", "Put it aside for now.")

Shape suffixes: R texts or rows (judgements), D dimensions, U users.
"""

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from preference.examples import PairExamples, pair_examples
from preference.features import FeatureMap, feature_map, finite_features
from preference.judgements import InputError, Judgements
from preference.sources import first_line

FORMAT = "murmuration-linear-reward-1"
_CHUNK = 4096


@dataclass(frozen=True)
class Accuracy:
    """How often the preferred response scores higher; ties among the judgements are left out.

    Attributes:
        pooled: mean over judgements; NaN without any.
        by_user: mean over users of each user's mean; NaN without any.
        users: users with a judgement that is not a tie.
        judgements: judgements that are not ties.
    """

    pooled: float
    by_user: float
    users: int
    judgements: int


def accuracy_of(theta_D: np.ndarray | torch.Tensor, examples: PairExamples) -> Accuracy:
    """Accuracy of a head on pairs.

    A judgement is right when the preferred response scores higher, and half right when both score
    exactly the same. Without a judgement that is not a tie, the means are NaN and the counts 0.
    """
    margin_R = (examples.x_RD @ torch.from_numpy(_weights(theta_D))) * torch.sign(
        examples.y_R - 0.5
    )
    right_R = torch.where(margin_R > 0, 1.0, 0.0) + torch.where(margin_R == 0, 0.5, 0.0)
    decided_R = examples.y_R != 0.5
    user_R = torch.repeat_interleave(torch.arange(len(examples.counts_U)), examples.counts_U)
    zeros_U = torch.zeros(len(examples.counts_U), dtype=torch.float64)
    right_U = zeros_U.index_add(0, user_R[decided_R], right_R[decided_R].double())
    decided_U = zeros_U.index_add(0, user_R, decided_R.double())
    counted_U = decided_U > 0
    judgements, users = int(decided_U.sum()), int(counted_U.sum())
    if not judgements:
        return Accuracy(float("nan"), float("nan"), 0, 0)
    return Accuracy(
        pooled=float(right_U.sum()) / judgements,
        by_user=float((right_U[counted_U] / decided_U[counted_U]).mean()),
        users=users,
        judgements=judgements,
    )


class RewardModel:
    """The reward θ · φ(prompt, response).

    Attributes:
        theta_D: float32 weights.
        features: the feature map φ, of the same dimension.
    """

    def __init__(self, theta_D: np.ndarray | torch.Tensor, features: FeatureMap) -> None:
        """Raises InputError if θ does not have the features' dimension or is not finite."""
        theta_D = _weights(theta_D)
        if theta_D.shape != (features.dimension,):
            raise InputError(
                f"weights of shape {theta_D.shape} do not fit features of dimension "
                f"{features.dimension}"
            )
        if not np.isfinite(theta_D).all():
            raise InputError("weights of a reward model must be finite")
        self.theta_D = theta_D
        self.features = features

    @overload
    def score(self, prompt: str, response: str) -> float: ...

    @overload
    def score(self, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray: ...

    def score(self, prompt, response):
        """The reward of a response (float), or of R prompts with R responses (R float64).

        Rewards of one prompt's responses compare; the zero point means nothing.
        """
        if isinstance(prompt, str) and isinstance(response, str):
            return float(self.score([prompt], [response])[0])
        if isinstance(prompt, str) or isinstance(response, str) or len(prompt) != len(response):
            raise InputError("score takes one prompt and one response, or equally many of both")
        reward_R = np.empty(len(response))
        for at in range(0, len(response), _CHUNK):
            part = slice(at, min(at + _CHUNK, len(response)))
            phi_RD = finite_features(
                self.features, prompt[part], response[part], rows=range(part.start, part.stop)
            )
            reward_R[part] = phi_RD.astype(np.float64) @ self.theta_D.astype(np.float64)
        return reward_R

    def accuracy(self, judgements: Judgements) -> Accuracy:
        """How often the model agrees with pair judgements (`accuracy_of`).

        Raises InputError if there is no judgement that is not a tie.
        """
        if not judgements.decided:
            raise InputError("every judgement is a tie: there is no accuracy to measure")
        return accuracy_of(self.theta_D, pair_examples(judgements, self.features))

    def save(self, folder: str | os.PathLike, card: str = "", *, overwrite: bool = False) -> None:
        """Writes the model's folder, whole or not at all; `card` becomes its README.md.

        For encoder features the folder holds the encoder's path or name, not its weights: to be
        used elsewhere, the encoder must be there too.

        Raises:
            InputError: something is there already, and `overwrite` is false or it is not a saved
                model.
        """
        place = Path(folder).absolute()
        if place.exists() or place.is_symlink():
            if not overwrite:
                raise InputError(f"{folder}: already exists; choose another place for the model")
            _read_config(place)  # never removes what is not a model
        token = secrets.token_hex(4)
        new, old = (place.with_name(f".{place.name}.{token}.{kind}") for kind in ("new", "old"))
        new.mkdir(parents=True)
        try:
            self._write(new, card)
            if place.exists():
                place.rename(old)
            new.rename(place)
            _sync(place.parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)

    def _write(self, folder: Path, card: str) -> None:
        config = {
            "format": FORMAT,
            "dimension": self.features.dimension,
            "features": self.features.to_config(),
        }
        (folder / "model.safetensors").write_bytes(save({"theta_D": self.theta_D}))
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(card.rstrip("\n") + "\n", encoding="utf-8")
        for file in folder.iterdir():
            _sync(file)
        _sync(folder)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "RewardModel":
        """The model saved in a folder.

        Raises:
            InputError: the folder is missing or is not such a model, its files do not fit each
                other, or its encoder cannot be loaded.
        """
        config = _read_config(Path(folder))
        path = Path(folder) / "model.safetensors"
        try:
            theta_D = load_file(path)["theta_D"]
        except FileNotFoundError:
            raise InputError(f"{path}: no such file; the model is not complete") from None
        except (SafetensorError, OSError, KeyError) as error:
            raise InputError(
                f"{path}: does not hold a reward model's weights ({first_line(error)})"
            ) from error
        if theta_D.shape != (config["dimension"],):
            raise InputError(
                f"{path}: weights of shape {theta_D.shape} do not fit dimension "
                f"{config['dimension']} in config.json"
            )
        try:
            return cls(theta_D, feature_map(config["features"]))
        except InputError as error:
            raise InputError(f"{folder}: {error}") from error


def _weights(theta_D: np.ndarray | torch.Tensor) -> np.ndarray:
    """A float32 copy: arrays from a network buffer are read-only, and a trainer changes its own."""
    if isinstance(theta_D, torch.Tensor):
        theta_D = theta_D.detach().cpu().numpy()
    return np.array(theta_D, dtype=np.float32)


def _read_config(folder: Path) -> dict:
    path = folder / "config.json"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: not a reward model: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {first_line(error)}") from error
    known = isinstance(config, dict) and config.get("format") == FORMAT
    if not known or not isinstance(config.get("features"), dict) or "dimension" not in config:
        raise InputError(f"{path}: not a reward model of format {FORMAT}")
    return config


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
