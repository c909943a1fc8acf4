"""The linear reward model: a head θ over fixed features φ of prompt and response.

Decisions:
- A saved model is a folder: `model.safetensors` (θ), `config.json` (the features), `README.md` (its
  card). It is written beside its place and renamed into it, so that it is there whole or not at
  all.
- The features are saved by their description. For an encoder this is its name or the way to it
  (`preference.base_names`), not its weights.
- Accuracy is taken on feature differences, where two texts with equal features tie exactly.

    from murmuration.preference.reward import RewardModel
    model = RewardModel.load("r/model")
    model.score("Spend or save?", "Put it aside for now.")

Shape suffixes: R texts, D dimensions, U users, J judgements, W others in each, K = W + 1 responses.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from murmuration.preference.base_names import name_for, place_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.sources import first_line
from murmuration.preference.features.hashing import FeatureMap, feature_map, finite_features
from murmuration.preference.language.checkpoint import check_same, digest_of, folder_of
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.preference.model_folder import replace_folder
from murmuration.preference.models import models
from murmuration.preference.scoring import Text, scores_of, strings_of

if TYPE_CHECKING:
    from murmuration.preference.language.examples import TokenExamples
    from murmuration.preference.language.policy_class import ClassExamples
    from murmuration.preference.language.reward import SavedReward

FORMAT = "murmuration-linear-reward-1"
_CHUNK = 4096
_SAME = 1e-4  # shares of an answer closer than this are equal: y is float32


@dataclass(frozen=True)
class Accuracy:
    """How often the preferred response scores higher; ties among the judgements are left out.

    Attributes:
        pooled: mean over judgements; NaN without any.
        by_user: mean over users of each user's mean; NaN without any.
        users: users with a judgement that is not a tie.
        judgements: judgements that are not ties.
        chance: what guessing comes to, as a mean over judgements; NaN without any.
        loss: of models that say the next token, where `judgements` are tokens: the mean
            cross-entropy in nats; NaN for a reward.
    """

    pooled: float
    by_user: float
    users: int
    judgements: int
    chance: float
    loss: float = math.nan


def accuracy_of(
    theta_D: np.ndarray | torch.Tensor, examples: "PairExamples | TokenExamples | ClassExamples"
) -> Accuracy:
    """Accuracy of a head, as `accuracy_by` has it."""
    return accuracy_by(examples.logits_R(torch.from_numpy(_weights(theta_D))), examples)


def accuracy_by(
    logits_R: torch.Tensor, examples: "PairExamples | TokenExamples | ClassExamples"
) -> Accuracy:
    """Accuracy of logits: of pairs, and of the best of several; of a ranking, its first place; of
    thumbs as `_accuracy_of_thumbs` has it.

    A judgement is right when the preferred response scores highest, and right in part, one over
    their number, when several score exactly the same. Judgements in which several responses are
    preferred equally are left out. Without any other, the means are NaN and the counts 0.
    """
    if examples.kind == "thumbs":
        return _accuracy_of_thumbs(logits_R.numpy(), examples.y_R.numpy(), examples.start_U.numpy())
    logits_JW = logits_R.view(-1, examples.width)
    y_JW = examples.y_R.view(-1, examples.width)
    there_JW = torch.isfinite(y_JW)
    if examples.kind == "ranking":
        y_JW = _of_first_place(y_JW)
    mass_JW = torch.where(there_JW, 1.0 - y_JW, 0.0)  # of the answer, on each of the others
    mass_JK = torch.cat([1.0 - mass_JW.sum(1, keepdim=True), mass_JW], dim=1)
    scores_JW = torch.where(there_JW, -logits_JW, -math.inf)
    scores_JK = torch.nn.functional.pad(scores_JW, (1, 0))
    preferred_J = mass_JK.argmax(1, keepdim=True)
    preferred = mass_JK.gather(1, preferred_J)
    decided_J = (mass_JK > preferred - _SAME).sum(1) == 1
    highest_JK = scores_JK == scores_JK.amax(1, keepdim=True)
    right_J = highest_JK.gather(1, preferred_J).squeeze(1) / highest_JK.sum(1).clamp(min=1)
    user_J = torch.repeat_interleave(torch.arange(len(examples.counts_U)), examples.counts_U)
    zeros_U = torch.zeros(len(examples.counts_U), dtype=torch.float64)
    right_U = zeros_U.index_add(0, user_J[decided_J], right_J[decided_J].double())
    decided_U = zeros_U.index_add(0, user_J, decided_J.double())
    counted_U = decided_U > 0
    judgements, users = int(decided_U.sum()), int(counted_U.sum())
    if not judgements:
        return Accuracy(math.nan, math.nan, 0, 0, math.nan)
    return Accuracy(
        pooled=float(right_U.sum()) / judgements,
        by_user=float((right_U[counted_U] / decided_U[counted_U]).mean()),
        users=users,
        judgements=judgements,
        chance=float((1.0 / (1.0 + there_JW.sum(1)[decided_J].double())).mean()),
    )


def _accuracy_of_thumbs(reward_J: np.ndarray, y_J: np.ndarray, start_U: np.ndarray) -> Accuracy:
    """How often what a user liked scores higher than what that same user did not.

    Over all such pairs of a user, equal scores half; so no offset enters, which nobody could know
    of people who were not trained on. Users without thumbs of both kinds are left out, and the
    pooled mean weights users by how many thumbs they gave.
    """
    share_U, thumbs_U = [], []
    for first, end in pairwise(start_U.tolist()):
        up = y_J[first:end] > 0.5
        liked, disliked = reward_J[first:end][up], np.sort(reward_J[first:end][~up])
        if not (len(liked) and len(disliked)):
            continue
        below = np.searchsorted(disliked, liked) + np.searchsorted(disliked, liked, side="right")
        share_U.append(float(below.mean()) / (2.0 * len(disliked)))
        thumbs_U.append(end - first)
    if not share_U:
        return Accuracy(math.nan, math.nan, 0, 0, math.nan)
    return Accuracy(
        pooled=float(np.average(share_U, weights=thumbs_U)),
        by_user=float(np.mean(share_U)),
        users=len(share_U),
        judgements=sum(thumbs_U),
        chance=0.5,
    )


def _of_first_place(y_JW: torch.Tensor) -> torch.Tensor:
    """The y of rankings as if only the first place had been given: 1, or 1 − 1/t for those that t
    share."""
    shares_JW = (y_JW < 1.0).cumprod(dim=1)
    mass_J1 = 1.0 / (1.0 + shares_JW.sum(dim=1, keepdim=True))
    first_JW = torch.where(shares_JW > 0, 1.0 - mass_J1, 1.0)
    return torch.where(torch.isfinite(y_JW), first_JW, y_JW)


class RewardModel:
    """The reward θ · φ(prompt, response).

    Attributes:
        theta_D: float32 weights.
        features: the feature map φ, of the same dimension.
        model: the model of preferences that θ was estimated under, one of
            `preference.models.models()`. It says what differences of scores mean: under `btl`,
            `plackett-luce` and `thumbs` they are log odds, under `thurstone` normal quantiles.
    """

    def __init__(
        self, theta_D: np.ndarray | torch.Tensor, features: FeatureMap, model: str = "btl"
    ) -> None:
        """Raises InputError if θ does not have the features' dimension or is not finite, or there
        is no such model of preferences."""
        theta_D = _weights(theta_D)
        if theta_D.shape != (features.dimension,):
            raise InputError(
                f"weights of shape {theta_D.shape} do not fit features of dimension "
                f"{features.dimension}"
            )
        if not np.isfinite(theta_D).all():
            raise InputError("weights of a reward model must be finite")
        if model not in models():
            raise InputError(
                f"the model of preferences {model!r} is not one of {', '.join(models())}"
            )
        self.theta_D = theta_D
        self.features = features
        self.model = model

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
        asked, said = strings_of(prompts, responses)
        reward_R = np.empty(len(said))
        for at in range(0, len(said), _CHUNK):
            part = slice(at, min(at + _CHUNK, len(said)))
            phi_RD = finite_features(
                self.features, asked[part], said[part], rows=range(part.start, part.stop)
            )
            reward_R[part] = phi_RD.astype(np.float64) @ self.theta_D.astype(np.float64)
        return reward_R

    def accuracy(self, judgements: Judgements) -> Accuracy:
        """How often the model agrees with judgements (`accuracy_of`).

        Raises InputError if there is no judgement that is not a tie.
        """
        if not judgements.decided:
            raise InputError("every judgement is a tie: there is no accuracy to measure")
        return accuracy_of(self.theta_D, pair_examples(judgements, self.features))

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

        def write(new: Path) -> None:
            self._write(new, card)
            for name, content in (beside(new) if beside else {}).items():
                (new / name).write_bytes(content)

        replace_folder(folder, write, _read_config, overwrite)

    def _write(self, folder: Path, card: str) -> None:
        config = {
            "format": FORMAT,
            "model": self.model,
            "dimension": self.features.dimension,
            "features": _described(self.features.to_config(), folder),
        }
        (folder / "model.safetensors").write_bytes(save({"theta_D": self.theta_D}))
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(card.rstrip("\n") + "\n", encoding="utf-8")

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
        """The same of features with a head alone; arguments and errors as of `load`."""
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
            features = dict(config["features"])
            if "path" in features:
                digest = str(features.pop("digest", ""))
                path = place_of(str(features["path"]), Path(folder), given=base, digest=digest)
                features["path"] = path
                if digest:
                    check_same(path, digest_of(folder_of(path)), digest)
            elif base:
                raise InputError("--base: a reward over hashed words has none")
            return cls(theta_D, feature_map(features), config.get("model", "btl"))
        except InputError as error:
            raise InputError(f"{folder}: {error}") from error


def _weights(theta_D: np.ndarray | torch.Tensor) -> np.ndarray:
    """A float32 copy: arrays from a network buffer are read-only, and a trainer changes its own."""
    if isinstance(theta_D, torch.Tensor):
        theta_D = theta_D.detach().cpu().numpy()
    return np.array(theta_D, dtype=np.float32)


def _described(features: dict, folder: Path) -> dict:
    """Features, an encoder named as in a folder that is passed on; one in a folder with what it
    is known by."""
    path = features.get("path")
    if not path:
        return features
    known = {"digest": digest_of(Path(path))} if Path(path).is_absolute() else {}
    return features | {"path": name_for(path, folder)} | known


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
