"""The papers' upper and lower bounds on the estimation error, evaluated.

Nearly all of them are rates: true up to an unstated factor that does not depend on n, m, d, ε, δ
(some also hide logarithms). They say how an error falls, not how large it is, and an upper rate
below a lower one means no more than that. Where a proof states its constants, the bound with them
is given too (``proved``). Each says what it measures, for whose privacy, and under which
assumptions. The statements were checked against their proofs; where the two differ the proof is
followed, and ``note`` says so.

A user here has m judgements and N = n·m in all. Bounds for single judgements are read for users:
a user-level promise also protects each judgement, so lower bounds hold at (N, ε); upper bounds
hold with what the whole of a user costs, ε/m for each randomized label and m times the noise in
the centre.

Sources: A = AUP-RLHF, L = Chowdhury et al. 2024, label DP.
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
        """The factor of randomized response at ε/m: (e^{ε/m} + 1)/(e^{ε/m} − 1)."""
        return 1.0 / math.tanh(self.epsilon / self.judgements / 2.0)

    @property
    def quantile(self) -> str:
        """The wording for a bound that fails with probability α."""
        return f"with probability {1.0 - self.failure:g}"

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
        place: of the randomization: ``central`` (a trusted server) or ``local``.
        formula: as evaluated.
        value: without constants, and without logarithms where the paper hides them.
        measures: the statistic of the error: its mean, its root mean square, or a quantile.
        adjacency: of ε.
        proved: with the constants of the proof; None where there are none.
        applies: whether ε and δ are ones it is stated for.
        note: assumptions beyond bounded features and θ*, and where the print is not followed.
    """

    source: str
    side: Side
    norm: Norm
    place: Place
    formula: str
    value: float
    measures: str = "root mean square error"
    adjacency: str = "replace-labels"
    proved: float | None = None
    applies: bool = True
    note: str = ""

    def row(self) -> dict[str, Any]:
        """The row for tables and JSON; ``kind`` is that of ``value``."""
        return {**asdict(self), "kind": "rate without constants"}


# Bounds of Chowdhury et al. 2024 (L) on estimating θ* under label privacy, for ``bounds``.
#
# The paper protects single labels; how its bounds are read for users is said in ``bounds``.
#
# Misprints found:
# - ‖φ‖ ≤ L makes ‖x‖ ≤ 2L, but the proofs of Theorems 3.2, 5.1 and 5.3 use ‖x‖ ≤ L: constants only,
#   taken with 2L where constants are given here.
# - Theorem 4.5 has the step size 1/(γκ); the proof uses 1/(γ_ε κ t), γ_ε = γ(e^ε − 1)/(e^ε + 1).
# - Theorem 5.3 has √log(1/α), its proof √(1 + log(1/α)).
# - Theorem D.5: in the first display one root covers both terms; in both displays B divides where
#   the proof's choice of λ′ has it multiply, √(σB/(nγ)); and in the second, log(2/δ) lost its 8.
# - Below eq. 9 the gap has ‖Σ_D + λI‖^{−1/2} where the argument gives ‖(Σ_D + λI)^{−1/2}‖.


def all_bounds(case: Case) -> list[Bound]:
    """Every paper's bounds, sorted by norm and place, lower before upper."""
    bounds = [*user_privacy_bounds(case), *label_privacy_bounds(case)]
    return sorted(bounds, key=lambda bound: (bound.norm, bound.place, bound.side))


def label_privacy_bounds(case: Case) -> list[Bound]:
    """Theorems 3.1, 3.2, 4.2, 4.5, 5.1 and D.3; with δ > 0 also 5.3 and D.5."""
    perturbed = _perturbed(case) if case.delta else []
    return [*_local(case), *_central(case), *perturbed]


def _local(case: Case) -> list[Bound]:
    d, total, length = case.dimension, case.total, case.feature_bound
    excess = math.expm1(min(case.epsilon / case.judgements, 700.0))
    squared = d / total * (1.0 + excess**-2)
    loglog = math.log(math.log(max(4, total)) / case.failure)
    stretch = case.flatter / (case.gamma * case.kappa)
    # From Assouad, d²/(16‖X‖_F²) and d²/(32(e^ε − 1)²‖X‖_F²) with ‖X‖_F² ≤ N(2L)².
    assouad = d**2 / (total * (2.0 * length) ** 2) * max(1.0 / 16.0, excess**-2 / 32.0)
    split = "; each label randomized at ε/m"
    pair = (d + case.confidence) / total
    return [
        Bound(
            "L Thm 3.1",
            "lower",
            "semi-norm",
            "local",
            "√(d/N + d/((e^{ε/m} − 1)²N))",
            math.sqrt(squared),
            note="for large n; each label randomized by itself, with ε/m",
        ),
        Bound(
            "L Thm 3.2",
            "lower",
            "l2",
            "local",
            "√(d/L² · (d/N + d/((e^{ε/m} − 1)²N)))",
            math.sqrt(d * squared) / length,
            proved=math.sqrt(assouad),
            note="for large n; each label randomized by itself, with ε/m",
        ),
        Bound(
            "L Thm 4.2",
            "upper",
            "semi-norm",
            "local",
            "2/γ · (e^{ε/m} + 1)/(e^{ε/m} − 1) · √((d + log 1/α)/N)",
            2.0 / case.gamma * case.flatter * math.sqrt(pair),
            case.quantile,
            note="pure ε, in ‖·‖_{Σ_D + λI} with the λ that the paper takes, at which both terms "
            "are equal; exact minimizer of the de-biased loss" + split,
        ),
        Bound(
            "L Thm 4.5",
            "upper",
            "l2",
            "local",
            "L/(γκ) · (e^{ε/m} + 1)/(e^{ε/m} − 1) · √(log(log(N)/α)/N)",
            length * stretch * math.sqrt(loglog / total),
            case.quantile,
            proved=4.0 * length * stretch * math.sqrt((624.0 * loglog + 1.0) / total),
            applies=case.failure < 1.0 / math.e and total >= 4,
            note="pure ε; one pass of projected SGD over independent judgements" + split,
        ),
    ]


def _central(case: Case) -> list[Bound]:
    d, total, budget = case.dimension, case.total, case.epsilon + case.delta
    sampling, private = d**2 / (total * case.feature_bound**2), d / (total * budget) ** 2
    # dΔ²/2·(0.9 − 10nΔ(ε + δ)) at the proof's Δ = 0.04/(n(ε + δ)).
    assouad = max(sampling / 64.0, private * 0.04**2 * 0.5 / 2.0)
    return [
        Bound(
            "L Thm 5.1",
            "lower",
            "l2",
            "central",
            "√(d²/(NL²) + d/(N²(ε + δ)²))",
            math.sqrt(sampling + private),
            proved=math.sqrt(assouad),
            note="for large n; holds for users a fortiori, where A Thm 6 is stronger; the private "
            "term is proved for pairs with ‖x‖∞ ≤ 1",
        ),
        Bound(
            "L Thm D.3",
            "lower",
            "semi-norm",
            "central",
            "√(d/N + d²/(N²ε²))",
            math.sqrt(d / total + (d / (total * case.epsilon)) ** 2),
            applies=case.delta == 0.0,
            note="for large n and pure ε: with δ > 0 only the first term is known to hold",
        ),
    ]


def _perturbed(case: Case) -> list[Bound]:
    """Objective perturbation, with Theorem 5.2's noise for the m labels of a user, not for one."""
    d, total, length = case.dimension, case.total, case.feature_bound
    gamma, kappa, confidence = case.gamma, case.kappa, case.confidence
    root = math.sqrt(8.0 * math.log(2.0 / case.delta) + 4.0 * case.epsilon)
    sigma = case.judgements * length * root / case.epsilon
    statistical = length * math.sqrt((1.0 + confidence) / total)
    perturbed = sigma * (math.sqrt(d) + math.sqrt(confidence)) / total
    semi = math.sqrt(sigma * case.model_bound / (total * gamma)) * (d * confidence) ** 0.25
    scaled = "σ = m·L√(8 log(2/δ) + 4ε)/ε"
    return [
        Bound(
            "L Thm 5.3",
            "upper",
            "l2",
            "central",
            f"(L√((1 + log 1/α)/N) + σ(√d + √log 1/α)/N)/(κγ), {scaled}",
            (statistical + perturbed) / (kappa * gamma),
            case.quantile,
            applies=total >= 32.0 * length**2 * math.log(d / case.failure) / kappa,
            note="for N ≥ 32L² log(d/α)/κ; exact minimizer, β = √N/B",
        ),
        Bound(
            "L Thm D.5",
            "upper",
            "semi-norm",
            "central",
            f"1/γ · √((d + log 1/α)/N) + √(σB/(Nγ)) · (d log 1/α)^¼, {scaled}",
            math.sqrt((d + confidence) / total) / gamma + semi,
            case.quantile,
            note="in ‖·‖_{Σ_D + λ′I}, λ′ = σ√(d log 1/α)/(γNB); B multiplies as in the proof",
        ),
    ]


# Bounds of AUP-RLHF (A) on estimating θ* under user-level label privacy, for ``bounds``.
#
# Misprints found: Theorem 6's first term lacks the 1/L of its proof. Theorems 2 and 6 bound the
# mean error, their proof the root mean square, from which the mean does not follow. Remark 1 has κ
# at *least* of order L²/d, where ‖x‖ ≤ 2L makes it at *most* that. (Theorem 3's noise multiplier is
# upside down, too; nothing here uses it.)

_MEAN = "mean error"


def user_privacy_bounds(case: Case) -> list[Bound]:
    """Theorems 1, 2, 4 (5 for more than two responses) and 6."""
    n, m, d, length = case.users, case.judgements, case.dimension, case.feature_bound
    sampling, private = d / math.sqrt(n * m), math.sqrt(d / m) / n
    budget = case.epsilon + case.delta
    # Assouad: d²/(16‖X‖_F²) with ‖x‖ ≤ 2L, and dΔ²/2·(0.9 − 10√m·nΔ(ε + δ)) with the proof's Δ.
    assouad = max((sampling / length) ** 2 / 64.0, (private / budget) ** 2 * 0.04**2 * 0.5 / 2.0)
    randomized = case.flatter * math.sqrt((d + case.confidence) / case.total) / case.gamma
    many = case.responses > 2
    gamma = math.exp(-4.0 * length * case.model_bound) / 2.0 if many else case.gamma
    factor = length / (case.kappa * gamma) * (case.responses**2 if many else 1)
    flatter = "(e^{ε/m} + 1)/(e^{ε/m} − 1) · √((d + log 1/α)/(nm))"
    return [
        Bound(
            "A Thm 2",
            "lower",
            "l2",
            "central",
            "d/√(nm) + √d/(√m·n·ε)",
            sampling + private / case.epsilon,
            _MEAN,
            note="informal: Theorem 6 without δ; as printed, for L of order 1",
        ),
        Bound(
            "A Thm 6",
            "lower",
            "l2",
            "central",
            "d/(L√(nm)) + √d/(√m·n·(ε + δ))",
            sampling / length + private / budget,
            proved=math.sqrt(assouad),
            note="for large n, m; L and the root mean square as in the proof, print: mean, no L; "
            "the private term is proved for pairs with ‖x‖∞ ≤ 1",
        ),
        Bound(
            "A Thm 1",
            "upper",
            "l2",
            "local",
            f"1/(γ√λ_min(Σ_D)) · {flatter}",
            randomized / math.sqrt(case.kappa),
            case.quantile,
            note="pure ε; exact minimizer of the de-biased loss; κ stands for λ_min(Σ_D)",
        ),
        Bound(
            "A Thm 1, proof",
            "upper",
            "semi-norm",
            "local",
            f"1/γ · {flatter}",
            randomized,
            case.quantile,
            note="pure ε; needs Σ_D of full rank",
        ),
        Bound(
            "A Thm 5" if many else "A Thm 4",
            "upper",
            "l2",
            "central",
            ("K²" if many else "") + "L/(κγ) · (1/√(mn) + √d/(√m·n·ε)), without logarithms",
            factor * (1.0 / math.sqrt(m * n) + private / case.epsilon),
            _MEAN,
            "replace, replace-labels",
            applies=case.epsilon <= 10.0,
            note="for ε ≤ 10, full batches, judgements independent and alike across users; its "
            "concentration test costs more than ε/2 (docs/research/aup.md)"
            + ("; γ = e^{−4LB}/2, κ of the K-wise covariance" if many else ""),
        ),
    ]
