"""The linear reward model: a head θ over fixed features φ of prompt and response.

Decisions:
- A saved model is a folder: `model.safetensors` (θ), `config.json` (the features), `README.md` (its
  card). It is written beside its place and renamed into it, so that it is there whole or not at
  all.
- The features are saved by their description. For an encoder this is its name or the way to it
  (`preference.base_names`), not its weights.

    from murmuration.preference.reward import RewardModel
    model = RewardModel.load("r/model")
    model.score("Spend or save?", "Put it aside for now.")

Shape suffixes: R texts, D dimensions, I parameters.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from murmuration.preference.accuracy import Accuracy, float32_of
from murmuration.preference.base_names import name_for, place_of
from murmuration.preference.data.errors import first_line
from murmuration.preference.data.in_memory import Source
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import FeatureMap, feature_map, finite_features
from murmuration.preference.language.checkpoint import check_same, digest_of, folder_of
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.model_folder import SaveOptions, replace_folder
from murmuration.preference.models import models
from murmuration.preference.scoring import Text, scores_of, strings_of
from murmuration.privacy.regular_files import check_folder

if TYPE_CHECKING:
    from murmuration.preference.language.reward import SavedReward

FORMAT = "murmuration-linear-reward-1"
_CHUNK = 4096


def rewards_at(
    theta_ID: Sequence[np.ndarray],
    features: FeatureMap,
    prompts: Sequence[str],
    responses: Sequence[str],
) -> np.ndarray:
    """θ · φ of R prompts with R responses at each θ, (I, R) float64.

    Raises:
        InputError: a text has no finite features (names its row).
    """
    reward_IR = np.empty((len(theta_ID), len(responses)))
    for at in range(0, len(responses), _CHUNK):
        part = slice(at, min(at + _CHUNK, len(responses)))
        rows = range(part.start, part.stop)
        phi_RD = finite_features(features, prompts[part], responses[part], rows=rows)
        for place, theta_D in enumerate(theta_ID):
            reward_IR[place, part] = phi_RD.astype(np.float64) @ theta_D.astype(np.float64)
    return reward_IR


class RewardModel:
    """The reward θ · φ(prompt, response).

    Attributes:
        theta_D: float32 weights.
        features: the feature map φ, of the same dimension.
        model: the preference model that θ was estimated under, one of
            `preference.models.models()`. It says what differences of scores mean: under `btl`,
            `plackett-luce` and `thumbs` they are log odds, under `thurstone` normal quantiles.
    """

    def __init__(
        self,
        theta_D: np.ndarray | torch.Tensor,
        features: FeatureMap,
        model: str = "btl",
    ) -> None:
        """Raises InputError if θ does not have the features' dimension or is not finite, or there
        is no such preference model."""
        theta_D = float32_of(theta_D)
        if theta_D.shape != (features.dimension,):
            raise InputError(
                f"weights of shape {theta_D.shape} do not fit features of dimension "
                f"{features.dimension}"
            )
        if not np.isfinite(theta_D).all():
            raise InputError("weights of a reward model must be finite")
        if model not in models():
            raise InputError(f"the preference model {model!r} is not one of {', '.join(models())}")
        self.theta_D = theta_D
        self.features = features
        self.model = model

    def __repr__(self) -> str:
        features = self.features.to_config()
        name = features.get("path") or features.get("kind", "features")
        return f"RewardModel({self.model}, {name}, {self.features.dimension} weights)"

    def score(self, prompt: Text | Sequence[Text], response: Text | Sequence[Text]) -> Any:
        """The reward of a response (float), or of R prompts with R responses (R float64).

        Texts are strings or chat messages (`preference.scoring`). Rewards of one prompt's responses
        compare; the zero point means nothing.
        """
        return scores_of(self.score_batch, prompt, response)

    def score_batch(self, prompts: Sequence[Text], responses: Sequence[Text]) -> np.ndarray:
        """The rewards of R prompts with R responses, (R,) float64.

        Raises:
            InputError: they are not equally many, or one has no text or no finite features.
        """
        return rewards_at([self.theta_D], self.features, *strings_of(prompts, responses))[0]

    def fits(self, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray:
        """True for each of R responses, (R,) bool; `score` reports a text that cannot be read."""
        del prompt
        return np.ones(len(response), dtype=bool)

    def accuracy(
        self,
        data: Judgements | Source,
        *,
        columns: str | Mapping[str, str] = "",
        **declared: bool | int | str,
    ) -> Accuracy:
        """The model's agreement with judgements. It is exact, and no epsilon covers it.

        Args:
            data: judgements, or rows as of ``train``: a path, a data frame, or rows in memory.
            columns: columns of other names by field, or as text, field=column.
            **declared: what the rows are, where that differs from pairs (or from thumbs, of a
                model of thumbs), as settings of ``train``: kind, responses, format, scale, …

        Raises:
            InputError: rows that cannot be read, or every judgement is a tie.
        """
        judgements = read_judgements(data, self.model, columns, declared)
        return pair_examples(judgements, self.features).accuracy(self.theta_D)

    def save(
        self,
        folder: str | os.PathLike,
        card: str = "",
        *,
        overwrite: bool = False,
        beside: Callable[[Path], Mapping[str, bytes]] | None = None,
    ) -> None:
        """Writes the model's folder, whole or not at all; `card` becomes its README.md.

        `beside` gives more files, by name, from the new folder.

        For encoder features the folder holds the encoder's name, not its weights: to be used
        elsewhere, the encoder must be there too.

        Raises:
            InputError: something is there already, and `overwrite` is false or it is not a saved
                model.
        """

        options = SaveOptions(card, overwrite, beside)

        def write(new: Path) -> None:
            self._write(new)
            options.write(new)

        replace_folder(folder, write, _read_config, overwrite)

    def _write(self, folder: Path) -> None:
        config = {
            "format": FORMAT,
            "model": self.model,
            "dimension": self.features.dimension,
            "features": _described(self.features.to_config(), folder),
        }
        (folder / "model.safetensors").write_bytes(save({"theta_D": self.theta_D}))
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | os.PathLike, base: str = "") -> "RewardModel | SavedReward":
        """The reward saved in a folder: this one, or that of a language model, which scores alike.

        Args:
            folder: RUN/model, or what `murmuration export` wrote.
            base: the base or encoder that it was trained on, a folder or a hub's name, where that
                is not found by itself (`preference.base_names`).

        Raises:
            InputError: the folder is missing or is not a reward, its files do not fit each other,
                or what it needs is not there.
        """
        from murmuration.preference.language.reward import SavedReward, is_language_model

        if is_language_model(folder):
            return SavedReward.load(folder, base)
        return cls.load_linear(folder, base)

    @classmethod
    def load_linear(cls, folder: str | os.PathLike, base: str = "") -> "RewardModel":
        """Load a linear head on features; arguments and errors as of `load`."""
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
            if base and "path" not in config["features"]:
                raise InputError("--base: a reward over hashed words has none")
            features = _placed(config["features"], Path(folder), base)
            return cls(theta_D, feature_map(features, keep=False), config.get("model", "btl"))
        except InputError as error:
            raise InputError(f"{folder}: {error}") from error


def is_linear_reward(folder: Path) -> bool:
    """True if a folder seems to hold a saved linear reward, whatever is wrong with it."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and "features" in config and "format" in config


def _described(features: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Features, an encoder named as in a folder that is passed on; one in a folder with what it
    is known by. So are the models that they stand on."""
    described = {
        name: _described(value, folder) if isinstance(value, Mapping) else value
        for name, value in features.items()
    }
    if path := features.get("path"):
        known = {"digest": digest_of(Path(path))} if Path(path).is_absolute() else {}
        described |= {"path": name_for(path, folder)} | known
    return described


def _placed(features: Mapping[str, Any], folder: Path, base: str) -> dict[str, Any]:
    """Features with each model that they name where it is here; InputError if it is not, or is
    another one."""
    placed = {
        name: _placed(value, folder, "") if isinstance(value, Mapping) else value
        for name, value in features.items()
    }
    if "path" in features:
        digest = str(placed.pop("digest", ""))
        path = place_of(str(features["path"]), folder, given=base, digest=digest)
        placed["path"] = path
        if digest:
            check_same(path, digest_of(folder_of(path)), digest)
    return placed


def _read_config(folder: Path) -> dict:
    path = folder / "config.json"
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    try:
        check_folder(folder)
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{folder}: not a reward model: it has no config.json") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {first_line(error)}") from error
    known = isinstance(config, dict) and config.get("format") == FORMAT
    if not known or not isinstance(config.get("features"), dict) or "dimension" not in config:
        of_run = path.parent / "model"
        hint = f"; that is the folder of a run, its model is {of_run}" if of_run.is_dir() else ""
        raise InputError(f"{path}: not a reward model of format {FORMAT}{hint}")
    return config
