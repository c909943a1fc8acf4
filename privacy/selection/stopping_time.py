"""The distribution of the number of candidates, which must stay secret.

The truncated negative binomial distribution of Papernot and Steinke (2022, Definition 1), on
k = 1, 2, …: with shape η > −1 and 0 < γ < 1

    P[K = k] ∝ (1 − γ)^k · Π_{l<k} (l + η) / (l + 1).

η = 1 is the geometric distribution (Liu and Talwar 2019), η = 0 the logarithmic one. The smaller η
is, the less is paid, and the more often very few candidates are run.
"""

import math
from dataclasses import dataclass

import numpy as np

_LEAST_MASS = 2.0**-70  # what is less likely is not drawn
_MOST_RUNS = 10_000.0  # on average


@dataclass(frozen=True)
class StoppingTime:
    """A truncated negative binomial number of runs, of shape ``eta`` and parameter ``gamma``."""

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.eta) and -1.0 < self.eta <= 100.0):
            raise ValueError(f"eta must be above -1 and at most 100, got {self.eta}")
        if not 1e-12 <= self.gamma < 1.0:
            raise ValueError(f"gamma must be in [1e-12, 1), got {self.gamma}")

    @classmethod
    def with_mean(cls, runs: float, eta: float) -> "StoppingTime":
        """The stopping time of this shape with so many expected runs, rounded to a whole γ above.

        Raises:
            ValueError: there is none.
        """
        if not (math.isfinite(runs) and 1.0 < runs <= _MOST_RUNS):
            raise ValueError(
                f"the expected number of runs must be above 1 and at most {_MOST_RUNS:g}, "
                f"got {runs:g}"
            )
        cls(eta, 0.5)  # names what is wrong with the shape
        low, high = math.log(1e-12), math.log1p(-1e-12)
        if cls(eta, math.exp(low)).mean < runs:
            raise ValueError(f"no stopping time with eta = {eta:g} has {runs:g} expected runs")
        for _ in range(100):
            middle = (low + high) / 2.0
            if cls(eta, math.exp(middle)).mean > runs:
                low = middle
            else:
                high = middle
        return cls(eta, math.exp(high))

    @property
    def mean(self) -> float:
        """Return the expected number of runs."""
        if self.eta == 0.0:
            return (1.0 / self.gamma - 1.0) / math.log(1.0 / self.gamma)
        left = -math.expm1(self.eta * math.log(self.gamma))
        return self.eta * (1.0 - self.gamma) / (self.gamma * left)

    def masses(self, most: int) -> np.ndarray:
        """The probabilities of 1 to ``most`` runs, (most,)."""
        if self.eta == 0.0:
            first = (1.0 - self.gamma) / math.log(1.0 / self.gamma)
        else:
            first = (1.0 - self.gamma) * self.eta / math.expm1(-self.eta * math.log(self.gamma))
        k = np.arange(1, most)
        return first * np.cumprod(np.append(1.0, (1.0 - self.gamma) * (k + self.eta) / (k + 1)))

    def draw(self, generator: np.random.Generator) -> int:
        """Draw a number of runs; within ``random_stopping.DRAWN`` of the distribution."""
        left = float(generator.random())
        k, mass = 1, float(self.masses(1)[0])
        while left >= mass > _LEAST_MASS:
            left -= mass
            mass *= (1.0 - self.gamma) * (k + self.eta) / (k + 1)
            k += 1
        return k
