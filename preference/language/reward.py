"""A trained language model as it is saved, and used as a reward for a prompt and a response.

A saved model is a folder that transformers (or peft, for LoRA) loads by itself, with its tokenizer
and card; `murmuration.json` beside them says what it was trained as and how texts are written down
for it. A LoRA folder names its base (`preference.base_names`) and does not hold it. One that says
the next token is saved here, too, and used by `preference.language.likelihood`.

    from murmuration import RewardModel
    RewardModel.load("r/model").score("Spend or save?", "Put it aside for now.")
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.base_names import name_for, place_of
from murmuration.preference.data.errors import first_line
from murmuration.preference.data.in_memory import Source
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.language.adapters import with_adapter
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.tokens import Tokens, length_batches
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.model_folder import DEFAULT, SaveOptions, replace_folder
from murmuration.preference.scoring import Text, scores_of, strings_of
from murmuration.privacy.regular_files import check_folder

FORMAT = "murmuration-language-reward-1"
FILE = "murmuration.json"


def save_language_model(
    folder: str | os.PathLike,
    base: LanguageBase | LanguageHead,
    theta_D: np.ndarray,
    model: str = "btl",
    options: SaveOptions = DEFAULT,
) -> None:
    """Write the folder of a language model at θ, whole or not at all.

    Args:
        folder: where.
        base: the network.
        theta_D: θ.
        model: of preferences, by its name.
        options: what is written beside it, and whether over another.

    Raises:
        InputError: θ has not the base's dimension or is not finite; or something is there already,
            and may not be overwritten or is not a saved model.
    """
    theta_D = finite_theta(theta_D, base.dimension)

    def write(new: Path) -> None:
        base.write(new, theta_D)
        about = {"format": FORMAT, "model": model, "base": _described(base, new)}
        (new / FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        options.write(new)

    replace_folder(folder, write, read_about, options.overwrite)


def finite_theta(theta_D: np.ndarray, dimension: int) -> np.ndarray:
    """A float32 copy of θ; InputError if it has another dimension or is not finite."""
    theta_D = np.array(theta_D, dtype=np.float32)
    if theta_D.shape != (dimension,) or not np.isfinite(theta_D).all():
        raise InputError(f"weights must be {dimension} finite numbers")
    return theta_D


def _described(base: LanguageBase | LanguageHead, folder: Path) -> dict[str, Any]:
    """The base's config, with paths as they are named in a folder that is passed on."""
    described = base.to_config()
    paths = {key: described[key] for key in ("path", "merged") if described.get(key)}
    return described | {key: name_for(path, folder) for key, path in paths.items()}


class SavedReward:
    """The reward of a model that `save_language_model` saved.

    Attributes:
        model: of preferences, as of `RewardModel`.
    """

    def __init__(self, base: LanguageBase, model: str = "btl") -> None:
        self._base, self.model = base, model

    @classmethod
    def load(cls, folder: str | os.PathLike, base: str = "") -> "SavedReward":
        """Load a folder; ``base`` as of `RewardModel.load`.

        Raises:
            InputError: the folder is not such a model, or its base is not there.
        """
        folder = Path(folder)
        saved = read_about(folder)
        about = saved["base"]
        if (task := about.get("task", "reward")) != "reward":
            raise InputError(f"{folder}: a language model of --task {task}, which gives no reward")
        adapter = (folder / "adapter_config.json").exists()
        limits = {name: about[name] for name in ("max_tokens", "batch_tokens")}
        limits["dtype"] = about.get("dtype", "float32")
        limits["system"] = about.get("system", "")
        if adapter:  # which is about that base and no other
            path = base_of_adapter(folder, about, base)
            limits["digest"] = about.get("digest", "")
        else:
            path = str(folder)
        loaded = LanguageBase(BaseSettings(path=path, train="head", **limits))
        loaded.texts.keep = False
        if adapter:
            loaded.model = with_adapter(loaded.model, folder).to(loaded.device)
        return cls(loaded, str(saved.get("model", "btl")))

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self._base.model.parameters())
        return f"SavedReward({self.model}, {weights:,} weights)"

    def fits(self, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray:
        """True for each of R responses that fits into the context, (R,) bool; others have no
        score.
        """
        return self._base.texts.fits(prompt, response)

    def score(self, prompt: Text | Sequence[Text], response: Text | Sequence[Text]) -> Any:
        """Score as `RewardModel.score` does; only differences count."""
        return scores_of(self.score_batch, prompt, response)

    def score_batch(self, prompts: Sequence[Text], responses: Sequence[Text]) -> np.ndarray:
        """The rewards of R prompts with R responses, (R,) float64.

        Computed in batches of texts of about equal length: last digits may depend on them.
        """
        return rewards_of(self._base, self._base.texts(*strings_of(prompts, responses)))

    def accuracy(
        self,
        data: Judgements | Source,
        *,
        columns: str | Mapping[str, str] = "",
        **declared: bool | int | str,
    ) -> Accuracy:
        """The accuracy, as `RewardModel.accuracy`."""
        judgements = read_judgements(data, self.model, columns, declared)
        return pair_examples(judgements, _AsFeature(self._base)).accuracy(np.ones(1))


@dataclass(frozen=True)
class _AsFeature:
    """A text's reward, as its one feature."""

    base: LanguageBase
    uses_prompt: bool = True
    dimension: int = 1

    def unreadable(self, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
        return self.base.texts.unreadable(prompts, responses)

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """The rewards of texts, (R, 1) float32, each computed by itself: no text changes the last
        digits of another's.
        """
        tokens = self.base.texts(prompts, responses)
        alone = np.arange(len(responses))[:, None]
        return rewards_of(self.base, tokens, alone)[:, None].astype(np.float32)

    def to_config(self) -> dict:
        raise TypeError("a reward as a feature belongs to no model, and is not saved")


def rewards_of(
    base: LanguageBase, tokens: Tokens, batches: Iterable[np.ndarray] | None = None
) -> np.ndarray:
    """The rewards of texts at the θ that was put last, (R,) float64.

    ``batches`` default to texts of about equal length.
    """
    reward_R = np.empty(len(tokens.lengths_T))
    batches = length_batches(tokens.lengths_T, base.batch_tokens) if batches is None else batches
    with torch.no_grad():
        for texts_R in batches:
            reward_R[texts_R] = base.rewards(tokens, texts_R).cpu()
    return reward_R


def base_of_adapter(folder: Path, about: Mapping[str, Any], given: str = "") -> str:
    """Find the base of an adapter in a folder; ``about`` is the base in its FILE.

    Raises:
        InputError: it is nowhere.
    """
    digest = str(about.get("digest", ""))
    return place_of(str(about["path"]), folder, given=given, digest=digest)


def is_language_model(folder: str | os.PathLike) -> bool:
    """True if a folder holds a saved language model."""
    return (Path(folder) / FILE).exists()


def system_of(path: str | os.PathLike) -> str:
    """The system prompt that a saved language model was trained with; empty if there is none, and
    for any other base.

    Raises:
        InputError: as `read_about`.
    """
    folder = Path(path).expanduser()
    try:
        saved = is_language_model(folder)
    except OSError:  # whoever loads it says why it cannot be read
        return ""
    return str(read_about(folder)["base"].get("system", "")) if saved else ""


def read_about(folder: Path) -> dict[str, Any]:
    """The content of `murmuration.json` in a folder.

    Raises:
        InputError: it is none, or of a version that read other states: its settings are not ours.
    """
    path = folder / FILE
    try:
        check_folder(folder)
        about = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not a saved language model: {first_line(error)}") from error
    base = about.get("base") if isinstance(about, dict) else None
    if not isinstance(base, dict) or about.get("format") != FORMAT:
        raise InputError(f"{path}: not a language model of format {FORMAT}")
    if unknown := sorted(base.keys() - {"kind", *BaseSettings.__dataclass_fields__}):
        raise InputError(
            f"{path}: {', '.join(unknown)}: settings that this version does not have; train anew"
        )
    return about
