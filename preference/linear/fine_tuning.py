"""A crowd's reward, tuned further on one person's judgements: a few epochs of SGD from it.

Source: Charles et al. 2024, Appendix J.2, which does so with language models; its baseline of
"global, then a few local steps" is strong wherever users differ.

Legend: M judgements of one user, D dimensions.
"""

import math

import numpy as np

from murmuration.privacy.mechanisms.numba_jit import kernel

EPOCHS = 4
#: Of features of about length one.
DEFAULT_STEP = 0.1


def fine_tuned(theta_D: np.ndarray, x_MD: np.ndarray, y_M: np.ndarray, step: float) -> np.ndarray:
    """Return θ after `EPOCHS` epochs of SGD on the log loss, one judgement at a time, in order.

    Args:
        theta_D: where it starts; not changed.
        x_MD: differences of features, as of `preference.linear.examples.PairExamples`.
        y_M: 1 where the first response is preferred, 0 where the other, 0.5 of a tie.
        step: the step size; 0 changes nothing.

    Returns:
        (D,) float64, in bits that depend on these judgements and θ alone.
    """
    own_D = np.array(theta_D, dtype=np.float64)
    _descend(own_D, np.ascontiguousarray(x_MD, np.float64), np.asarray(y_M, np.float64), step)
    return own_D


@kernel()
def _descend(theta_D: np.ndarray, x_MD: np.ndarray, y_M: np.ndarray, step: float) -> None:
    for _ in range(EPOCHS):
        for m in range(len(x_MD)):
            reward = 0.0
            for d in range(len(theta_D)):
                reward += x_MD[m, d] * theta_D[d]
            p = 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, reward))))
            for d in range(len(theta_D)):
                theta_D[d] += step * (y_M[m] - p) * x_MD[m, d]
