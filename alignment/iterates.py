"""The last parameters that a run of a language model released, as an ensemble of rewards.

A run with ``--keep-last N`` keeps in ``RUN/iterates`` the parameters after each of its last N
rounds. They were made of what the ledger charged and of nothing else, so they are covered by the
run's promise together with the model (`docs/explanation/privacy.md`). They are of one
release, each a few steps from the next, and share most of its error: how far they differ says where
noise still moves the reward, and is no confidence bound.

Legend: I iterates, R answers, P prompts, D parameters.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from murmuration.preference.base_names import place_of
from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.kinds.model import Model
from murmuration.preference.language.reward import read_about

FOLDER = "iterates"  # beside the model, in the run's folder


class Iterates:
    """Rewards of texts by each of several parameters of one model."""

    def __init__(self, model: Model, theta_ID: Sequence[np.ndarray]) -> None:
        """Raises InputError if there are fewer than two, or they are not of the model."""
        if len(theta_ID) < 2:
            raise InputError(
                "--pessimism: for a language model's reward it needs the parameters of several "
                "rounds: train it with --keep-last, and name it as RUN/model"
            )
        if any(one.shape != (model.dimension,) or not np.isfinite(one).all() for one in theta_ID):
            raise InputError(f"--pessimism: {FOLDER}/ beside the reward is of another model")
        self._model, self._theta_ID = model, theta_ID

    @classmethod
    def beside(cls, model: str | Path) -> "Iterates":
        """The iterates of the run whose model is in a folder.

        Raises:
            InputError: there are none, or they cannot be read.
        """
        folder = Path(model).expanduser().resolve()
        described = read_about(folder)["base"]
        trained = base_of(described | {"path": place_of(described["path"], folder)})
        return cls(trained, [_theta(file) for file in files_of(folder)])

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """(I, R) float64; NaN of an answer that is too long to be read. Only differences for one
        prompt and one iterate mean anything."""
        found_IR = np.full((len(self._theta_ID), len(responses)), np.nan)
        read = np.flatnonzero(self._model.fits(prompts, responses)).tolist()
        if read:
            asked, answers = [prompts[at] for at in read], [responses[at] for at in read]
            found_IR[:, read] = self._model.scores(self._theta_ID, asked, answers)
        return found_IR


class Disagreement:
    """The standard deviation over iterates of what an answer is worth over the reference's answers
    to its prompt, in logits."""

    def __init__(
        self,
        iterates: Iterates,
        prompts: Sequence[str],
        answers: Sequence[str],
        place_R: np.ndarray,
    ) -> None:
        self._iterates = iterates
        rewards_IR = iterates(prompts, answers)
        self._mean_IP = np.stack(
            [
                [np.nanmean(row_R[place_R == place]) for place in range(place_R.max() + 1)]
                for row_R in rewards_IR
            ]
        )
        self._most = 0.0
        self._most = float(self(prompts, answers, place_R).max())

    def __call__(
        self, prompts: Sequence[str], responses: Sequence[str], place_R: np.ndarray
    ) -> np.ndarray:
        """(R,); of an answer that cannot be read the most that the reference's answers have."""
        apart_IR = self._iterates(prompts, responses) - self._mean_IP[:, place_R]
        found_R = apart_IR.std(axis=0, ddof=1)
        return np.where(np.isnan(found_R), self._most, found_R)


def files_of(model: str | Path) -> list[Path]:
    """The files of the run whose model is in a folder, in the order of rounds."""
    run = Path(model).expanduser().resolve().parent
    return sorted((run / FOLDER).glob("round-*.safetensors"))


def _theta(file: Path) -> np.ndarray:
    try:
        return load_file(file)["theta_D"]
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
