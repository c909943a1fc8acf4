"""A judge: the answer with fewer words wins."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class ShorterJudge:
    """Count words, and look at nothing else."""

    def preferred(
        self, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        """Return 1 where the first answer to a prompt is shorter, 0 the second, 0.5 for a tie."""
        del prompts
        ahead_P = np.array(
            [len(b.split()) - len(a.split()) for a, b in zip(first, second, strict=True)]
        )
        return 0.5 * (1.0 + np.sign(ahead_P))

    def figures(self, prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """Return nothing: lengths are in the result anyway."""
        return {}

    def about(self) -> dict[str, Any]:
        """Return how it judges, and what that does not say."""
        return {
            "how": "The answer with fewer words wins.",
            "caveats": ["Nobody said that short answers are good ones."],
        }
