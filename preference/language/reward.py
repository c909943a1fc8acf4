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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from murmuration.preference.base_names import name_for, place_of
from murmuration.preference.bases import Base
from murmuration.preference.data.judgements import InputError
from murmuration.preference.data.sources import first_line
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.language.adapters import with_adapter
from murmuration.preference.language.base_model import BaseSettings, LanguageBase
from murmuration.preference.language.policies import policy_rewards
from murmuration.preference.language.policy_class import PolicyClass
from murmuration.preference.language.tokens import length_batches
from murmuration.preference.model_folder import replace_folder
from murmuration.preference.reward import RewardModel
from murmuration.preference.scoring import Text, scores_of, strings_of

FORMAT = "murmuration-language-reward-1"
FILE = "murmuration.json"


class LanguageReward:
    """A language model at θ; see `save`."""

    def __init__(
        self, theta_D: np.ndarray, base: LanguageBase | LanguageHead, model: str = "btl"
    ) -> None:
        """Raises InputError if θ has not the base's dimension or is not finite."""
        theta_D = np.array(theta_D, dtype=np.float32)
        if theta_D.shape != (base.dimension,) or not np.isfinite(theta_D).all():
            raise InputError(f"weights must be {base.dimension} finite numbers")
        self.theta_D, self.base, self.model = theta_D, base, model

    def score(self, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray:
        """The rewards of R prompts with R responses, (R,) float64; a policy's are those that it
        stands for. Only differences count.

        Raises:
            InputError: it gives no reward, or a response does not fit into what is read of a text.
        """
        if isinstance(self.base, LanguageHead):
            return RewardModel(self.theta_D, self.base, self.model).score(prompt, response)
        if self.base.settings.task == "policy":
            return policy_rewards(self.base, self.theta_D, prompt, response)
        if self.base.settings.task != "reward":
            raise InputError(f"a language model of --task {self.base.settings.task} has no reward")
        self.base.put(self.theta_D)
        return _rewards(self.base, prompt, response)

    def save(
        self,
        folder: str | os.PathLike,
        card: str = "",
        *,
        overwrite: bool = False,
        beside: Callable[[Path], Mapping[str, bytes]] | None = None,
    ) -> None:
        """Writes the model's folder, whole or not at all; ``card`` becomes its README.md.

        ``beside`` is given the folder that is written, and gives more files by name.

        Raises:
            InputError: something is there already, and ``overwrite`` is false or it is not a saved
                model.
        """

        def write(new: Path) -> None:
            self.base.write(new, self.theta_D)
            about = {"format": FORMAT, "model": self.model, "base": self._described(new)}
            (new / FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
            (new / "README.md").write_text(card.rstrip("\n") + "\n", encoding="utf-8")
            for name, content in (beside(new) if beside else {}).items():
                (new / name).write_bytes(content)

        replace_folder(folder, write, read_about, overwrite)

    def _described(self, folder: Path) -> dict[str, Any]:
        """The base, which is named as in a folder that is passed on."""
        described = self.base.to_config()
        paths = {key: described[key] for key in ("path", "merged") if described.get(key)}
        return described | {key: name_for(path, folder) for key, path in paths.items()}


class SavedReward:
    """The reward of a model that `LanguageReward` saved."""

    def __init__(self, base: LanguageBase) -> None:
        self._base = base

    @classmethod
    def load(cls, folder: str | os.PathLike, base: str = "") -> "SavedReward":
        """From a folder; ``base`` as of `RewardModel.load`.

        Raises:
            InputError: the folder is not such a model, or its base is not there.
        """
        folder = Path(folder)
        about = read_about(folder)["base"]
        if (task := about.get("task", "reward")) != "reward":
            raise InputError(f"{folder}: a language model of --task {task}, which gives no reward")
        adapter = (folder / "adapter_config.json").exists()
        limits = {name: about[name] for name in ("max_tokens", "batch_tokens")}
        limits["dtype"] = about.get("dtype", "float32")
        if adapter:  # which is about that base and no other
            path = base_of_adapter(folder, about, base)
            limits["digest"] = about.get("digest", "")
        else:
            path = str(folder)
        loaded = LanguageBase(BaseSettings(path=path, train="head", **limits))
        if adapter:
            loaded.model = with_adapter(loaded.model, folder).to(loaded.device)
        return cls(loaded)

    def fits(self, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray:
        """Which of R responses fit into what is read of a text, (R,) bool; others have no score."""
        return self._base.texts.fits(prompt, response)

    def score(self, prompt: Text | Sequence[Text], response: Text | Sequence[Text]) -> Any:
        """As `RewardModel.score`; only differences count."""
        return scores_of(self.score_batch, prompt, response)

    def score_batch(self, prompts: Sequence[Text], responses: Sequence[Text]) -> np.ndarray:
        """The rewards of R prompts with R responses, (R,) float64.

        Computed in batches of texts of about equal length: last digits may depend on them.
        """
        asked, said = strings_of(prompts, responses)
        return _rewards(self._base, asked, said)


def _rewards(base: LanguageBase, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray:
    """By a base with a head, at the θ that was put last."""
    tokens, found = base.texts(prompt, response), np.empty(len(response))
    with torch.no_grad():
        for texts_R in length_batches(tokens.lengths_T, base.batch_tokens):
            found[texts_R] = base.rewards(tokens, texts_R).cpu()
    return found


def base_of_adapter(folder: Path, about: Mapping[str, Any], given: str = "") -> str:
    """Where what an adapter in a folder changes is found; ``about`` is the base in its FILE.

    Raises:
        InputError: it is nowhere.
    """
    digest = str(about.get("digest", ""))
    return place_of(str(about["path"]), folder, given=given, digest=digest)


def is_language_model(folder: str | os.PathLike) -> bool:
    """Whether a folder says that it holds a language model."""
    return (Path(folder) / FILE).exists()


def read_about(folder: Path) -> dict[str, Any]:
    """What `murmuration.json` in a folder says."""
    path = folder / FILE
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not a saved language model: {first_line(error)}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"{path}: not a language model of format {FORMAT}")
    return about


def reward_model(theta_D: np.ndarray, base: Base, model: str) -> RewardModel | LanguageReward:
    """The model with these weights, to be saved; of a class the policy that they choose."""
    if isinstance(base, PolicyClass):
        return LanguageReward(np.zeros(0), base.unrounded(base.chosen(theta_D)), model)
    if isinstance(base, LanguageBase | LanguageHead):
        return LanguageReward(theta_D, base, model)
    return RewardModel(theta_D, base, model)
