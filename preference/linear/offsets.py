"""A user's own inclination to thumbs up: the one number of the model of thumbs that is theirs.

P(thumbs up) = σ(r(x) + b), where r is the shared reward and b the user's offset: some people like
nearly everything, others hardly anything, and neither says which response is better. A user's loss
at θ is what is left when their b is chosen best,

L(θ) = min_b 1/n · (Σ_i −log P(y_i) + b² / (2·V)),

over the n thumbs that count. The ridge is that of a normal prior with variance V, a public
constant, and keeps b finite where all thumbs of a user are alike. What is minimised is convex in b
and a linear r together, so L is convex; and by the envelope theorem its gradient is that at the
best b, 1/n · Σ_i (σ(r_i + b) − y_i) · ∂r_i.

Decisions:
- b is computed anew from the user's own thumbs wherever a gradient is wanted, and forgotten.
  Nothing keeps it, and it leaves in no form but in this one gradient, which is clipped like any
  user's. So a user's vector is a function of that user's thumbs and θ, its length is bounded by the
  clip norm, and what is promised to users is what is promised with any other model.
- V = 4: nineteen of twenty people then like between 2 % and 98 % of what is as good as they are
  used to.
- The root of the derivative, which increases in b, lies between −V times the number of thumbs down
  and V times that of thumbs up. Newton's steps that leave the interval, or shrink it too slowly,
  are replaced by halving it. In float64, one thumb after the other: the same bits wherever and
  whenever it is computed on one machine.
"""

import math

import numpy as np

from murmuration.privacy.mechanisms.numba_jit import kernel

#: V, the variance of offsets in the prior.
VARIANCE = 4.0
_MOST_STEPS = 200  # halving alone needs 60
_CLOSE = 1e-13


@kernel()
def offset(z: np.ndarray, y: np.ndarray) -> float:
    """The best b for one user's rewards ``z`` and thumbs ``y`` (1 up, 0 down); NaN for a reward
    that is not finite."""
    up = 0.0
    for k in range(len(z)):
        if not math.isfinite(z[k]):
            return math.nan
        up += y[k]
    low, high = -VARIANCE * (len(z) - up), VARIANCE * up
    b, step, before = 0.0, high - low, high - low
    for _ in range(_MOST_STEPS):
        slope, curvature = b / VARIANCE, 1.0 / VARIANCE
        for k in range(len(z)):
            p = 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, z[k] + b))))
            slope += p - y[k]
            curvature += p * (1.0 - p)
        if slope < 0.0:
            low = b
        else:
            high = b
        newton = b - slope / curvature
        if newton < low or newton > high or abs(2.0 * slope) > abs(before * curvature):
            newton = 0.5 * (low + high)
        before, step = step, newton - b
        b = newton
        if abs(step) <= _CLOSE * max(1.0, abs(b)):
            break
    return b


@kernel()
def thumb_slopes(z: np.ndarray, y: np.ndarray, slope: np.ndarray) -> None:
    """For one user's thumbs: derivatives of n·L by the rewards ``z``, into ``slope``."""
    b = offset(z, y)
    for k in range(len(z)):
        slope[k] = 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, z[k] + b)))) - y[k]
