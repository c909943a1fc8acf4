"""How much noise and ridge objective perturbation needs.

Objective perturbation adds a random linear term to a convex loss and releases the minimiser:

    θ̂ = argmin Σ_u loss_u(θ) + (β/2) ‖θ‖² + ⟨w, θ⟩,    w ~ N(0, s² I),

where loss_u is the mean log loss of user u's judgements and each row x of a judgement (the
difference of two responses' features) has ‖x‖ ≤ ``length``. Source: Chowdhury et al. 2024,
"Differentially Private Reward Estimation with Preference Feedback", Algorithm 2, whose L bounds the
features of one response, so that length = 2L.

**Labels** (``LabelObjective``; the paper's Theorem 5.2). Labels enter the loss as
⟨Σ_u mean(y x), θ⟩ alone, and one user's labels move that vector by at most ``length``: the
minimiser is post-processing of one Gaussian release. It need not be exact, any β will do, and the
least noise is that of the analytic Gaussian: at ε = 1, δ = 1e-5, 3.73 lengths, where the paper's
constants take 5.04.

**Everything** (``FullObjective``; Theorem E.1). If all judgements of a user are replaced, density
of the exact minimiser at t changes by the ratio of two Jacobians and that of two Gaussian
densities at w = −∇(loss + ridge)(t).

- Jacobians. With A = βI + what others contribute and H ⪰ 0 the user's Hessian, det(A + H) / det(A +
  H′) ≤ det(I + A^½⁻ H A^½⁻) ≤ exp(tr(H)/β) ≤ exp(length²/4β), as tr(H), a mean of σ′·‖x‖², is at
  most length²/4. The rank of H, which is 1 in the paper and up to the number of a user's judgements
  here, does not matter: a trace is averaged over judgements, and the matrix that is replaced
  can only make the denominator larger than det(A).
- Gaussians. The log ratio is (⟨−w, Δ⟩ + ‖Δ‖²/2)/s², Δ = g′ − g, where g and g′ are the user's
  gradients at t, so ‖Δ‖ ≤ 2·length. Δ depends on t, hence on w, but each of g and g′ is a mean of
  rows with coefficients in [−y, 1 − y]: so ⟨−w, Δ⟩ ≤ 2·s·length·z unless one of at most
  2·``cap`` rows has a one-sided Gaussian beyond z, which has probability at most δ for
  z = Φ⁻¹(1 − δ/(2·cap)). That is where the cap on a user's judgements comes in: it is enforced.
  A tie's coefficient, in [−½, ½], is half of a two-sided one; that is beyond with probability
  2Q(2z), Q being the Gaussian tail, which is no more than the Q(z) of the others as long as
  δ/(2·cap) ≤ 0.29. A larger δ is refused.

  Together ε = length²/4β + 2z·length/s + 2·length²/s².

``calibration="paper"`` takes Theorem E.1's constants, s = 2·length·√(8 ln(4/δ) + 2ε)/ε and
β = length²/ε, which hold for one judgement a user.

**Approximate minimisers** (Iyengar et al. 2019, Algorithm 1). Floating point cannot release the
exact minimiser. If the gradient at what is found is at most ``tolerance`` long, it is
within tolerance/β of the exact one, for every data set; so the difference is released too, as a
Gaussian of sensitivity 2·tolerance/β with a hundredth of ε and δ. Tolerances are small, so this
noise is.
"""

import math
from dataclasses import dataclass
from typing import Literal

from scipy import special

from murmuration.research.theory.analytic_gaussian import calibrate_noise

Calibration = Literal["analytic", "paper"]

#: Of ε and δ: what the difference to the exact minimiser costs.
_OUTPUT_SHARE = 0.01
#: Of the rest of ε: what the ridge costs. A small share means a strong ridge, but little noise.
_RIDGE_SHARE = 0.1
#: Of δ, to each of 2·cap rows. Up to 0.3 a tie is no worse than another row: 2Q(2z) ≤ Q(z).
_MOST_A_ROW = 0.29


@dataclass(frozen=True)
class LabelObjective:
    """Noise of the linear term where labels are protected; see the module's docstring.

    Attributes:
        epsilon, delta: the promise, for all labels of one user, under ``replace-labels``.
        length: bound on ‖x‖ of each row, enforced by clipping rows, which are public.
        calibration: ``analytic``, or ``paper`` for the constants of Theorem 5.2.
    """

    epsilon: float
    delta: float
    length: float
    calibration: Calibration = "analytic"

    def __post_init__(self) -> None:
        _check(self.epsilon, self.delta, self.length, self.calibration)

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of w."""
        if self.calibration == "analytic":
            return self.length * calibrate_noise(self.epsilon, self.delta)
        root = math.sqrt(2.0 * math.log(2.0 / self.delta) + self.epsilon)
        return self.length * root / self.epsilon


@dataclass(frozen=True)
class FullObjective:
    """Noise, ridge and tolerance where all judgements of a user are protected.

    Attributes:
        epsilon, delta: the promise, for everything of one user, under ``replace``.
        length: bound on ‖x‖ of each row, enforced by clipping rows.
        cap: the most judgements of one user, enforced; one with ``paper``.
        tolerance: bound on the length of the gradient where the solver stops.
        calibration: ``analytic`` for the bound derived above, or ``paper`` for Theorem E.1.
    """

    epsilon: float
    delta: float
    length: float
    cap: int = 1
    tolerance: float = 1e-6
    calibration: Calibration = "analytic"

    def __post_init__(self) -> None:
        _check(self.epsilon, self.delta, self.length, self.calibration)
        if self.cap < 1:
            raise ValueError(f"the cap on a user's judgements must be at least 1, got {self.cap}")
        if self.calibration == "paper" and self.cap > 1:
            raise ValueError(
                "the paper's constants (Theorem E.1) hold for one judgement a user; use the "
                "analytic calibration for more"
            )
        if self.delta / (2 * self.cap) > _MOST_A_ROW:
            raise ValueError(
                f"delta must be at most {_MOST_A_ROW:g} for each of the {2 * self.cap} judgements "
                f"that are replaced or replace them, got {self.delta:g} in all"
            )
        if not (math.isfinite(self.tolerance) and self.tolerance > 0.0):
            raise ValueError(f"the tolerance must be a positive number, got {self.tolerance}")

    @property
    def _exact(self) -> tuple[float, float]:
        """(epsilon, delta) of the exact minimiser."""
        return self.epsilon * (1 - _OUTPUT_SHARE), self.delta * (1 - _OUTPUT_SHARE)

    @property
    def ridge(self) -> float:
        """β, the least there must be."""
        epsilon, _ = self._exact
        if self.calibration == "paper":
            return self.length**2 / epsilon
        return self.length**2 / (4.0 * _RIDGE_SHARE * epsilon)

    @property
    def std(self) -> float:
        """Standard deviation of each coordinate of w."""
        epsilon, delta = self._exact
        if self.calibration == "paper":
            return 2 * self.length * math.sqrt(8 * math.log(4 / delta) + 2 * epsilon) / epsilon
        z = -float(special.ndtri(delta / (2 * self.cap)))
        left = (1.0 - _RIDGE_SHARE) * epsilon
        # The root of 2u² + 2zu = left for u = length/s, without cancellation.
        return self.length * (math.sqrt(z * z + 2.0 * left) + z) / left

    @property
    def output_std(self) -> float:
        """Standard deviation of what is added to each coordinate of the approximate minimiser."""
        share = calibrate_noise(self.epsilon * _OUTPUT_SHARE, self.delta * _OUTPUT_SHARE)
        return 2.0 * self.tolerance / self.ridge * share


def _check(epsilon: float, delta: float, length: float, calibration: str) -> None:
    for name, value in (("epsilon", epsilon), ("the bound on rows", length)):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be a positive finite number, got {value}")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}")
    if calibration not in ("analytic", "paper"):
        raise ValueError(f"the calibration must be analytic or paper, got {calibration!r}")
