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
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.base_names import name_for, place_of
from murmuration.preference.choices import MOST_TASTES
from murmuration.preference.data.in_memory import Source
from murmuration.preference.data.judgements import InputError, Judgements, LeftOut
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.data.sources import first_line
from murmuration.preference.features.hashing import FeatureMap
from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.language.adapters import with_adapter
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.checkpoint import TASTES
from murmuration.preference.language.tokens import Tokens, length_batches
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.linear.tastes import ONE_FOR_ALL, weights_of
from murmuration.preference.model_folder import DEFAULT, SaveOptions, replace_folder
from murmuration.preference.scoring import Text, scores_of, strings_of

FORMAT = "murmuration-language-reward-1"
FILE = "murmuration.json"


def save_language_model(
    folder: str | os.PathLike,
    base: LanguageBase | LanguageHead,
    theta_D: np.ndarray,
    model: str = "btl",
    options: SaveOptions = DEFAULT,
    tastes_VH: np.ndarray | None = None,
) -> None:
    """Write the folder of a language model at θ, whole or not at all.

    Args:
        folder: where.
        base: the network.
        theta_D: θ.
        model: of preferences, by its name.
        options: what is written beside it, and whether over another.
        tastes_VH: of `SavedReward`; None: one reward for all.

    Raises:
        InputError: θ has not the base's dimension or is not finite; or something is there already,
            and may not be overwritten or is not a saved model.
    """
    theta_D = finite_theta(theta_D, base.dimension)

    def write(new: Path) -> None:
        base.write(new, theta_D)
        about = {"format": FORMAT, "model": model, "base": _described(base, new)}
        (new / FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        if tastes_VH is not None:
            (new / TASTES).write_bytes(save({"tastes_VH": tastes_VH}))
        options.write(new)

    replace_folder(folder, write, read_about, options.overwrite)


def finite_theta(theta_D: np.ndarray, dimension: int) -> np.ndarray:
    """Return a float32 copy of θ; InputError if it has another dimension or is not finite."""
    theta_D = np.array(theta_D, dtype=np.float32)
    if theta_D.shape != (dimension,) or not np.isfinite(theta_D).all():
        raise InputError(f"weights must be {dimension} finite numbers")
    return theta_D


def _described(base: LanguageBase | LanguageHead, folder: Path) -> dict[str, Any]:
    """Return the base's description, which is named as in a folder that is passed on."""
    described = base.to_config()
    paths = {key: described[key] for key in ("path", "merged") if described.get(key)}
    return described | {key: name_for(path, folder) for key, path in paths.items()}


class SavedReward:
    """The reward of a model that `save_language_model` saved.

    Attributes:
        model: of preferences, as of `RewardModel`.
        features: None: none says how unusual a text is.
        tastes_VH: float32, what the head reads times these rows is how people differ from the
            crowd, where the run had `--tastes`: those of `personal`. No row otherwise.
        own_V: how much of each is in the reward; zeros: it is the crowd's.
    """

    features = None

    def __init__(
        self,
        base: LanguageBase,
        model: str = "btl",
        tastes_VH: np.ndarray | None = None,
        own_V: np.ndarray | None = None,
    ) -> None:
        self._base, self.model = base, model
        self.tastes_VH = np.zeros((0, 1), np.float32) if tastes_VH is None else tastes_VH
        self.own_V = np.zeros(len(self.tastes_VH)) if own_V is None else own_V

    @classmethod
    def load(cls, folder: str | os.PathLike, base: str = "") -> "SavedReward":
        """From a folder; ``base`` as of `RewardModel.load`.

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
        limits["head_pooling"] = about.get("head_pooling", "last")
        limits["system"] = about.get("system", "")
        if adapter:  # which is about that base and no other
            path = base_of_adapter(folder, about, base)
            limits["digest"] = about.get("digest", "")
        else:
            path = str(folder)
        loaded = LanguageBase(BaseSettings(path=path, train="head", **limits))
        if adapter:
            loaded.model = with_adapter(loaded.model, folder).to(loaded.device)
        tastes_VH = _read_tastes(folder, loaded)
        if tastes_VH is not None:
            loaded.add_tastes(tastes_VH)
        return cls(loaded, str(saved.get("model", "btl")), tastes_VH)

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self._base.model.parameters())
        return f"SavedReward({self.model}, {weights:,} weights)"

    def fits(self, prompt: Sequence[str], response: Sequence[str]) -> np.ndarray:
        """Return which of R responses fit into what is read of a text, (R,) bool; others have no
        score."""
        return self._base.texts.fits(prompt, response)

    def score(self, prompt: Text | Sequence[Text], response: Text | Sequence[Text]) -> Any:
        """As `RewardModel.score`; only differences count."""
        return scores_of(self.score_batch, prompt, response)

    def score_batch(self, prompts: Sequence[Text], responses: Sequence[Text]) -> np.ndarray:
        """The rewards of R prompts with R responses, (R,) float64.

        Computed in batches of texts of about equal length: last digits may depend on them.
        """
        own_K = np.concatenate([[1.0], self.own_V])
        return self.rows_batch(*strings_of(prompts, responses)) @ own_K

    def rows_batch(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Return what each row of the head says of R texts, (R, 1 + V) float64: the crowd's reward,
        and each taste."""
        return rows_of(self._base, self._base.texts(prompts, responses))

    def rows_each(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """As `rows_batch`, of each text by itself: nobody's text moves another's last digits."""
        tokens = self._base.texts(prompts, responses)
        return rows_of(self._base, tokens, ([text] for text in range(len(responses))))

    def accuracy(
        self,
        data: Judgements | Source,
        *,
        columns: str | Mapping[str, str] = "",
        **declared: bool | int | str,
    ) -> Accuracy:
        """As `RewardModel.accuracy`."""
        judgements = read_judgements(data, self.model, columns, declared)
        own_K = np.concatenate([[1.0], self.own_V])
        return pair_examples(judgements, self.as_features).accuracy(own_K)

    @property
    def tastes(self) -> int:
        """V."""
        return len(self.tastes_VH)

    @property
    def as_features(self) -> FeatureMap:
        """Return what each row of the head says of a text, as its features."""
        return _AsFeatures(self)

    def personal(
        self, data: Judgements | Source, *, columns: str = "", **declared: bool | int | str
    ) -> "SavedReward":
        """As `RewardModel.personal`."""
        if not len(self.tastes_VH):
            raise InputError(ONE_FOR_ALL)
        rows = {"one_user_per_row": True, **declared}
        return self.with_own(self.own_weights(read_judgements(data, self.model, columns, rows)))

    def own_weights(self, judgements: Judgements, left_out: LeftOut | None = None) -> np.ndarray:
        """As `RewardModel.own_weights`."""
        return weights_of(judgements, self.as_features, np.eye(1 + len(self.tastes_VH)), left_out)

    def with_own(self, own_V: np.ndarray) -> "SavedReward":
        """As `RewardModel.with_own`."""
        return SavedReward(self._base, self.model, self.tastes_VH, own_V)


@dataclass(frozen=True)
class _AsFeatures:
    """Rewards by the rows of a head, as a text's features."""

    reward: SavedReward
    uses_prompt: bool = True

    @property
    def dimension(self) -> int:
        return 1 + len(self.reward.tastes_VH)

    def unreadable(self, prompts: Sequence[str], responses: Sequence[str]) -> list[str]:
        return self.reward._base.texts.unreadable(prompts, responses)

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        return self.reward.rows_each(prompts, responses).astype(np.float32)

    def to_config(self) -> dict:
        raise TypeError("a reward as a feature belongs to no model, and is not saved")


def rows_of(
    base: LanguageBase, tokens: Tokens, batches: Iterable[Sequence[int] | np.ndarray] | None = None
) -> np.ndarray:
    """Return what each row of a base's head says of texts, at the θ that was put last, (R, K)
    float64; the first is the crowd's reward. ``batches`` are of texts of about equal length if
    nothing is said."""
    row_RK = np.empty((len(tokens.lengths_T), base.head_shape[0]))
    batches = length_batches(tokens.lengths_T, base.batch_tokens) if batches is None else batches
    with torch.no_grad():
        for texts_R in map(np.asarray, batches):
            row_RK[texts_R] = base.rows(tokens, texts_R).cpu()
    return row_RK


def _read_tastes(folder: Path, base: LanguageBase) -> np.ndarray | None:
    path = folder / TASTES
    if not path.exists():
        return None
    try:
        tastes_VH = load_file(path)["tastes_VH"]
    except (SafetensorError, OSError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: does not hold tastes ({first_line(error)})") from error
    _, width = base.head_shape
    fits = tastes_VH.shape[1:] == (width,) and 1 <= len(tastes_VH) < MOST_TASTES
    if not fits or tastes_VH.dtype != np.float32 or not np.isfinite(tastes_VH).all():
        raise InputError(
            f"{path}: {tastes_VH.dtype} rows of shape {tastes_VH.shape} are not 1 to "
            f"{MOST_TASTES - 1} rows of {width} finite float32 numbers"
        )
    return tastes_VH


def base_of_adapter(folder: Path, about: Mapping[str, Any], given: str = "") -> str:
    """Return where what an adapter in a folder changes is found; ``about`` is the base in its FILE.

    Raises:
        InputError: it is nowhere.
    """
    digest = str(about.get("digest", ""))
    return place_of(str(about["path"]), folder, given=given, digest=digest)


def is_language_model(folder: str | os.PathLike) -> bool:
    """Return whether a folder says that it holds a language model."""
    return (Path(folder) / FILE).exists()


def system_of(path: str | os.PathLike) -> str:
    """Return the system prompt that a saved language model was trained with; empty of none, and of
    any other base, or of a folder that will not load."""
    try:
        base = read_about(Path(path).expanduser()).get("base")
    except InputError:
        return ""
    return str(base.get("system", "")) if isinstance(base, dict) else ""


def read_about(folder: Path) -> dict[str, Any]:
    """Return what `murmuration.json` in a folder says."""
    path = folder / FILE
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: not a saved language model: {first_line(error)}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise InputError(f"{path}: not a language model of format {FORMAT}")
    return about
