"""The epsilon of one Gaussian by bisection of its exact delta: what accountants are held to."""

from murmuration.privacy.analytic_gaussian import delta_of


def epsilon_of(noise: float, delta: float) -> float:
    """The least epsilon of one Gaussian at ``delta``, rounded up; ``noise`` is over sensitivity."""
    if delta_of(noise, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(noise, high) > delta:
        low, high = high, 2.0 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if delta_of(noise, middle) > delta else (low, middle)
    return high * (1.0 + 1e-10)
