"""What (ε, δ) alone allows an attacker, in closed form: an oracle for bounds from whole curves."""

import math


def found_at_most(epsilon: float, delta: float, false_positives: float) -> float:
    """The most users that any attacker can rightly say to be in, as a share of those who are, when
    wrong about this share of those who are not.

    (ε, δ) allows no more than e^ε·f + δ, nor than 1 − e^−ε·(1 − δ − f) (Kairouz et al. 2015).
    """
    if math.isinf(epsilon):
        return 1.0
    many = math.exp(min(epsilon, 700.0)) * false_positives + delta
    few = 1.0 - math.exp(-epsilon) * (1.0 - delta - false_positives)
    return max(0.0, min(1.0, many, few))
