"""Bounds of Chowdhury et al. 2024 (L) on estimating θ* under label privacy, for ``bounds``.

The paper protects single labels; how its bounds are read for users is said in ``bounds``.

Misprints found:
- ‖φ‖ ≤ L makes ‖x‖ ≤ 2L, but the proofs of Theorems 3.2, 5.1 and 5.3 use ‖x‖ ≤ L: constants only,
  taken with 2L where constants are given here.
- Theorem 4.5 has the step size 1/(γκ); the proof uses 1/(γ_ε κ t), γ_ε = γ(e^ε − 1)/(e^ε + 1).
- Theorem 5.3 has √log(1/α), its proof √(1 + log(1/α)).
- Theorem D.5: in the first display one root covers both terms; in both displays B divides where
  the proof's choice of λ′ has it multiply, √(σB/(nγ)); and in the second, log(2/δ) lost its 8.
- Below eq. 9 the gap has ‖Σ_D + λI‖^{−1/2} where the argument gives ‖(Σ_D + λI)^{−1/2}‖.
"""

import math

from preference.bounds import Bound, Case, Norm, Place, Side

_ROOT = "root mean square error"


def bounds(case: Case) -> list[Bound]:
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
        _bound(
            "L Thm 3.1",
            "lower",
            "semi-norm",
            "local",
            "√(d/N + d/((e^{ε/m} − 1)²N))",
            math.sqrt(squared),
            note="for large n; each label randomized by itself, with ε/m",
        ),
        _bound(
            "L Thm 3.2",
            "lower",
            "l2",
            "local",
            "√(d/L² · (d/N + d/((e^{ε/m} − 1)²N)))",
            math.sqrt(d * squared) / length,
            proved=math.sqrt(assouad),
            note="for large n; each label randomized by itself, with ε/m",
        ),
        _bound(
            "L Thm 4.2",
            "upper",
            "semi-norm",
            "local",
            "2/γ · (e^{ε/m} + 1)/(e^{ε/m} − 1) · √((d + log 1/α)/N)",
            2.0 / case.gamma * case.flatter * math.sqrt(pair),
            case,
            note="pure ε, in ‖·‖_{Σ_D + λI} with the λ that the paper takes, at which both terms "
            "are equal; exact minimizer of the de-biased loss" + split,
        ),
        _bound(
            "L Thm 4.5",
            "upper",
            "l2",
            "local",
            "L/(γκ) · (e^{ε/m} + 1)/(e^{ε/m} − 1) · √(log(log(N)/α)/N)",
            length * stretch * math.sqrt(loglog / total),
            case,
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
        _bound(
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
        _bound(
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
        _bound(
            "L Thm 5.3",
            "upper",
            "l2",
            "central",
            f"(L√((1 + log 1/α)/N) + σ(√d + √log 1/α)/N)/(κγ), {scaled}",
            (statistical + perturbed) / (kappa * gamma),
            case,
            applies=total >= 32.0 * length**2 * math.log(d / case.failure) / kappa,
            note="for N ≥ 32L² log(d/α)/κ; exact minimizer, β = √N/B",
        ),
        _bound(
            "L Thm D.5",
            "upper",
            "semi-norm",
            "central",
            f"1/γ · √((d + log 1/α)/N) + √(σB/(Nγ)) · (d log 1/α)^¼, {scaled}",
            math.sqrt((d + confidence) / total) / gamma + semi,
            case,
            note="in ‖·‖_{Σ_D + λ′I}, λ′ = σ√(d log 1/α)/(γNB); B multiplies as in the proof",
        ),
    ]


def _bound(
    source: str,
    side: Side,
    norm: Norm,
    place: Place,
    formula: str,
    value: float,
    case: Case | None = None,
    *,
    proved: float | None = None,
    applies: bool = True,
    note: str,
) -> Bound:
    """``case`` for bounds that hold with a probability."""
    measures = _ROOT if case is None else f"with probability {1.0 - case.failure:g}"
    return Bound(
        source,
        side,
        norm,
        place,
        "replace-labels",
        measures,
        formula,
        value,
        proved,
        applies,
        note,
    )
