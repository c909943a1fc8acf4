"""What theory says of the estimation error: the papers' upper and lower bounds, evaluated.

Nearly all of them are rates: true up to a factor that does not depend on n, m, d, ε, δ and that
nobody states (some also hide logarithms). They say how an error falls, not how large it is, and an
upper rate below a lower one means no more than that. Where a proof states its constants, the bound
with them is given too (``proved``). Each says what it measures, for whose privacy, and under which
assumptions. The statements were checked against their proofs; where the two differ the proof is
followed, and ``note`` says so.

A user here has m judgements and N = n·m in all. Bounds for single judgements are read for users:
a user-level promise also protects each judgement, so lower bounds hold at (N, ε); upper bounds
hold with what the whole of a user costs, ε/m for each randomized label and m times the noise in
the centre.

Sources: A = AUP-RLHF (`preference.user_bounds`), L = Chowdhury et al. 2024, label DP
(`preference.label_bounds`).
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Side = Literal["lower", "upper"]
Norm = Literal["l2", "semi-norm"]
Place = Literal["central", "local"]


@dataclass(frozen=True)
class Case:
    """A run, in the terms of the bounds.

    Attributes:
        users, judgements, dimension: n, m of each user, d.
        epsilon, delta: the promise to each user. Bounds for pure ε leave δ out.
        feature_bound: L, the longest feature vector ‖φ‖; differences are at most 2L long.
        model_bound: B, the longest ‖θ*‖.
        coverage: κ, the least eigenvalue of E xxᵀ. None stands for 2L²/d, which independent
            features of length L in all directions have.
        failure: α, the chance that an upper bound fails.
        responses: K, shown in each judgement.

    Raises ValueError for a number out of range.
    """

    users: int
    judgements: int
    dimension: int
    epsilon: float
    delta: float
    feature_bound: float = 1.0
    model_bound: float = 1.0
    coverage: float | None = None
    failure: float = 0.05
    responses: int = 2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ValueError(f"--{name.replace('_', '-')} must not be {value}")
            if value == 0 and name != "delta":
                raise ValueError(f"--{name.replace('_', '-')} must be positive")
        if self.delta >= 1.0 or self.failure >= 1.0:
            raise ValueError("--delta and --failure are probabilities below 1")
        if self.responses < 2:
            raise ValueError(f"--responses must be at least 2, got {self.responses}")
        most = (2.0 * self.feature_bound) ** 2 / self.dimension
        if self.kappa > most:
            raise ValueError(
                f"--coverage {self.kappa:g} cannot be: with differences of at most "
                f"{2 * self.feature_bound:g} in {self.dimension} dimensions it is at most {most:g}"
            )

    @property
    def total(self) -> int:
        """N, all judgements."""
        return self.users * self.judgements

    @property
    def kappa(self) -> float:
        """κ."""
        if self.coverage is None:
            return 2.0 * self.feature_bound**2 / self.dimension
        return self.coverage

    @property
    def gamma(self) -> float:
        """γ: σ′ is at least that where |z| ≤ 2LB."""
        return 0.25 / math.cosh(self.feature_bound * self.model_bound) ** 2

    @property
    def flatter(self) -> float:
        """What randomized response at ε/m costs: (e^{ε/m} + 1)/(e^{ε/m} − 1)."""
        return 1.0 / math.tanh(self.epsilon / self.judgements / 2.0)

    @property
    def confidence(self) -> float:
        """log(1/α)."""
        return math.log(1.0 / self.failure)


@dataclass(frozen=True)
class Bound:
    """One bound on the error of θ̂, evaluated.

    Attributes:
        source: paper and theorem.
        side, norm: lower or upper; ``l2`` or the semi-norm of Σ_D.
        place: who randomizes: ``central`` (a trusted server) or ``local``.
        adjacency: for which neighbours ε is meant.
        measures: what of the error: its mean, its root mean square, or a quantile.
        formula: as evaluated.
        value: without constants, and without logarithms where the paper hides them.
        proved: with the constants of the proof; None where there are none.
        applies: whether ε and δ are ones it is stated for.
        note: assumptions beyond bounded features and θ*, and where the print is not followed.
    """

    source: str
    side: Side
    norm: Norm
    place: Place
    adjacency: str
    measures: str
    formula: str
    value: float
    proved: float | None = None
    applies: bool = True
    note: str = ""

    def row(self) -> dict[str, Any]:
        """For tables and JSON; ``kind`` says what ``value`` is."""
        return {**asdict(self), "kind": "rate without constants"}
