"""Length-controlled win rates, as in AlpacaEval 2: what longer answers win by length is taken off.

Wins are fitted by a logistic regression (Dubois et al. 2024, arXiv 2404.04475),

P(win) = sigmoid(theta + phi tanh(d / s)),

where d is the length of an answer less that of the other, in characters, and s the standard
deviation of d. The length-controlled win rate is that at d = 0, sigmoid(theta). Theirs has one term
more, of how hard each instruction is, which is fitted to many models on one list of instructions;
here there is no such list. A ridge of 0.001 keeps estimates finite where one number says all.

It is no cause: where longer answers are better, length takes the credit for that, too.

Legend: R answers, B weightings of them.
"""

import numpy as np

_RIDGE = 1e-3  # in sums over answers: of no weight beside a single one
_STEPS, _LONGEST_STEP, _CLOSE = 100, 2.0, 1e-9  # of Newton's method, in logits


def relative_length(longer_R: np.ndarray) -> np.ndarray:
    """tanh(d / s) of differences d in characters, (R,); zeros if all are equal."""
    spread = float(longer_R.std())
    return np.tanh(longer_R / spread) if spread else np.zeros(len(longer_R))


def fit_wins(
    wins_R: np.ndarray,
    relative_R: np.ndarray,
    weights_BR: np.ndarray,
    start_12: np.ndarray | None = None,
) -> np.ndarray:
    """Fit theta and phi, (B, 2), for each weighting of the answers.

    Args:
        wins_R: 1, 0, or 0.5 of a tie.
        relative_R: as of `relative_length`.
        weights_BR: weight of each answer.
        start_12: where Newton's method begins; from zero by default.
    """
    x_R2 = np.stack([np.ones_like(relative_R), relative_R], axis=1)
    fit_B2 = np.zeros((len(weights_BR), 2)) + (0.0 if start_12 is None else start_12)
    for _ in range(_STEPS):
        chance_BR = 1.0 / (1.0 + np.exp(-(fit_B2 @ x_R2.T)))
        slope_B2 = (weights_BR * (wins_R - chance_BR)) @ x_R2 - _RIDGE * fit_B2
        curve_BR = weights_BR * chance_BR * (1.0 - chance_BR)
        curve_B22 = np.einsum("br,ri,rj->bij", curve_BR, x_R2, x_R2, optimize=True)
        step_B2 = np.linalg.solve(curve_B22 + _RIDGE * np.eye(2), slope_B2[:, :, None])[:, :, 0]
        length_B1 = np.linalg.norm(step_B2, axis=1, keepdims=True)
        fit_B2 += step_B2 * np.minimum(1.0, _LONGEST_STEP / np.maximum(length_B1, _CLOSE))
        if length_B1.max() < _CLOSE:
            break
    return fit_B2


def rate_at_equal_length(fit_B2: np.ndarray) -> np.ndarray:
    """The fitted win rates at equal length, (B,)."""
    return 1.0 / (1.0 + np.exp(-fit_B2[:, 0]))
