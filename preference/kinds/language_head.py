"""A language model's head alone: a linear head over its last states, saved as a language model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from murmuration.preference.features.language_head import LanguageHead
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.language.reward import save_language_model
from murmuration.preference.model_folder import DEFAULT, SaveOptions


@dataclass(frozen=True)
class LanguageHeadModel(LinearModel):
    """A linear model on the last states of a language model."""

    features: LanguageHead

    holds_promise = True

    def fits(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """True for each text that the language model can read."""
        return self.features.fits(prompts, responses)

    def save(
        self, folder: Path, theta_D: np.ndarray, model: str, options: SaveOptions = DEFAULT
    ) -> None:
        """Write the language model with this head."""
        save_language_model(folder, self.features, theta_D, model, options)
