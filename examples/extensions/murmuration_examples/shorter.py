"""A judge: the answer with fewer words wins."""

from collections.abc import Sequence
from typing import Any

import numpy as np


class ShorterJudge:
    """Count words, and look at nothing else."""

    def preferred(
        self, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> np.ndarray:
        """1 if the first answer to a prompt is shorter, 0 if the second, 0.5 for a tie."""
        del prompts
        ahead_P = np.array(
            [len(b.split()) - len(a.split()) for a, b in zip(first, second, strict=True)]
        )
        return 0.5 * (1.0 + np.sign(ahead_P))

    def figures(self, prompts: Sequence[str], answers: Sequence[str]) -> dict[str, Any]:
        """Empty: lengths are in the result anyway."""
        return {}

    def about(self) -> dict[str, Any]:
        """A description of the judge, with its caveat."""
        return {
            "how": "The answer with fewer words wins.",
            "caveats": ["Nobody said that short answers are good ones."],
        }
