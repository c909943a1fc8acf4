"""The analytic Gaussian mechanism: the least noise for one Gaussian release.

Source: Balle & Wang 2018, "Improving the Gaussian Mechanism for Differential Privacy: Analytical
Calibration and Optimal Denoising", Theorem 8. A release f(D) + N(0, s² I) of a function whose value
moves by at most Δ in ℓ2 between neighbours is (ε, δ)-private exactly if

    Φ(Δ/2s − εs/Δ) − e^ε Φ(−Δ/2s − εs/Δ) ≤ δ.

Here ``noise`` is always s/Δ: the noise over the *sensitivity*. Under a relation that swaps one
clipped vector for another the sensitivity is two clip norms, so s = noise · 2C; the accountants'
``noise_multiplier``, which is s/C, is then twice as large
(``privacy.accounting.events.PoissonGaussian`` with probability 1 supplies that two itself). Several
Gaussians are one, with 1/noise² added up.
"""

import math

from scipy.special import log_ndtr


def delta_of(noise: float, epsilon: float) -> float:
    """The least delta of one Gaussian at ``epsilon`` ≥ 0; ``noise`` is std over sensitivity."""
    _check_positive("the noise", noise)
    if not epsilon >= 0.0:
        raise ValueError(f"epsilon must be at least 0, got {epsilon}")
    first = float(log_ndtr(0.5 / noise - epsilon * noise))
    second = epsilon + float(log_ndtr(-0.5 / noise - epsilon * noise))
    # e^first − e^second, without the loss of digits where both are close or tiny.
    return 0.0 if second >= first else math.exp(first) * -math.expm1(second - first)


def calibrate_noise(epsilon: float, delta: float) -> float:
    """The least standard deviation over sensitivity for (epsilon, delta), rounded up.

    At epsilon = 1, delta = 1e-5 it is 3.73. Raises ValueError for parameters out of range.
    """
    _check_positive("epsilon", epsilon)
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    low, high = 1e-9, 1.0
    while delta_of(high, epsilon) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta_of(middle, epsilon) > delta else (low, middle)
    return high * (1.0 + 1e-10)  # over what rounding in the comparison may have hidden


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{name} must be a positive finite number, got {value}")
