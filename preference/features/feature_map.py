"""The interface of a feature map.

Shape suffixes: R texts, D dimensions.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

#: In a map's config: what describes the scorer (`preference.features.scorer`) in front of it.
SCORER = "scorer"


class FeatureMap(Protocol):
    """φ(prompt, response) → D numbers."""

    @property
    def dimension(self) -> int:
        """D, all features counted."""
        ...

    @property
    def uses_prompt(self) -> bool:
        """True if φ depends on the prompt; if not, equal responses are computed once."""
        ...

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, D) float32."""
        ...

    def to_config(self) -> dict:
        """JSON-able description from which `feature_map` makes an equal map."""
        ...
