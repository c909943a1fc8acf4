"""Bounds of AUP-RLHF (A) on estimating θ* under user-level label privacy, for ``bounds``.

Misprints found: Theorem 6's first term lacks the 1/L of its proof. Theorems 2 and 6 bound the mean
error, their proof the root mean square, from which the mean does not follow. Remark 1 has κ at
*least* of order L²/d, where ‖x‖ ≤ 2L makes it at *most* that. (Theorem 3's noise multiplier is
upside down, too; nothing here uses it.)
"""

import math

from preference.bounds import Bound, Case

_MEAN = "mean error"
_ROOT = "root mean square error"


def bounds(case: Case) -> list[Bound]:
    """Theorems 1, 2, 4 (5 for more than two responses) and 6."""
    return [_informal(case), _lower(case), _randomized(case), _semi(case), _adaptive(case)]


def _informal(case: Case) -> Bound:
    n, m, d = case.users, case.judgements, case.dimension
    return Bound(
        "A Thm 2",
        "lower",
        "l2",
        "central",
        "replace-labels",
        _MEAN,
        "d/√(nm) + √d/(√m·n·ε)",
        d / math.sqrt(n * m) + math.sqrt(d / m) / (n * case.epsilon),
        note="informal: Theorem 6 without δ; as printed, for L of order 1",
    )


def _lower(case: Case) -> Bound:
    n, m, d, length = case.users, case.judgements, case.dimension, case.feature_bound
    budget = case.epsilon + case.delta
    sampling = d / (length * math.sqrt(n * m))
    private = math.sqrt(d / m) / (n * budget)
    # Assouad: d²/(16‖X‖_F²) with ‖x‖ ≤ 2L, and dΔ²/2·(0.9 − 10√m·nΔ(ε + δ)) with the proof's Δ.
    squared = max(sampling**2 / 64.0, private**2 * 0.04**2 * 0.5 / 2.0)
    return Bound(
        "A Thm 6",
        "lower",
        "l2",
        "central",
        "replace-labels",
        _ROOT,
        "d/(L√(nm)) + √d/(√m·n·(ε + δ))",
        sampling + private,
        proved=math.sqrt(squared),
        note="for large n, m; L and the root mean square as in the proof, print: mean, no L; "
        "the private term is proved for pairs with ‖x‖∞ ≤ 1",
    )


def _randomized(case: Case) -> Bound:
    rate = case.flatter * math.sqrt((case.dimension + case.confidence) / case.total) / case.gamma
    return Bound(
        "A Thm 1",
        "upper",
        "l2",
        "local",
        "replace-labels",
        _quantile(case),
        "1/(γ√λ_min(Σ_D)) · (e^{ε/m} + 1)/(e^{ε/m} − 1) · √((d + log 1/α)/(nm))",
        rate / math.sqrt(case.kappa),
        note="pure ε; exact minimizer of the de-biased loss; κ stands for λ_min(Σ_D)",
    )


def _semi(case: Case) -> Bound:
    rate = case.flatter * math.sqrt((case.dimension + case.confidence) / case.total) / case.gamma
    return Bound(
        "A Thm 1, proof",
        "upper",
        "semi-norm",
        "local",
        "replace-labels",
        _quantile(case),
        "1/γ · (e^{ε/m} + 1)/(e^{ε/m} − 1) · √((d + log 1/α)/(nm))",
        rate,
        note="pure ε; needs Σ_D of full rank",
    )


def _adaptive(case: Case) -> Bound:
    n, m, d = case.users, case.judgements, case.dimension
    many = case.responses > 2
    gamma = math.exp(-4.0 * case.feature_bound * case.model_bound) / 2.0 if many else case.gamma
    rate = 1.0 / math.sqrt(m * n) + math.sqrt(d / m) / (n * case.epsilon)
    factor = case.feature_bound / (case.kappa * gamma) * (case.responses**2 if many else 1)
    return Bound(
        "A Thm 5" if many else "A Thm 4",
        "upper",
        "l2",
        "central",
        "replace, replace-labels",
        _MEAN,
        ("K²" if many else "") + "L/(κγ) · (1/√(mn) + √d/(√m·n·ε)), without logarithms",
        factor * rate,
        applies=case.epsilon <= 10.0,
        note="for ε ≤ 10, full batches, judgements independent and alike across users; its "
        "concentration test costs more than ε/2 (docs/aup.md)"
        + ("; γ = e^{−4LB}/2, κ of the K-wise covariance" if many else ""),
    )


def _quantile(case: Case) -> str:
    return f"with probability {1.0 - case.failure:g}"
