"""General preferences without rewards, which need not be transitive.

A reward orders responses; people need not agree on an order. A general preference is a function
ℓ(a, b) = 2·P(a is preferred to b) − 1 with ℓ(b, a) = −ℓ(a, b), and nothing else. The class here is

ℓ(a, b) = ⟨w, φ(a) − φ(b)⟩ + ⟨S, p(a) ∧ p(b)⟩, within [−1, 1],

with hashed n-grams φ, a few fixed random directions p of them, and p(a) ∧ p(b) the numbers
p_i(a)·p_j(b) − p_j(a)·p_i(b) for i < j: without S a linear reward, with it circles.

It is fitted by least squares to labels that left their users randomized, each multiplied so that it
is unbiased: Zhou et al. 2025 ("S"), eq. 10, with weights for different flip probabilities and a
ridge, which the paper does not have. Post-processing: nothing here costs privacy.

Legend: N labels, R responses, D features, P directions, F = D + P(P − 1)/2 numbers of a pair.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from murmuration.preference.features.hashing import FeatureMap, HashingFeatures

_DIRECTIONS, _SEED = 16, 44


@dataclass(frozen=True, eq=False)
class GeneralPreference:
    """ℓ, estimated.

    Attributes:
        features: φ, of a response by itself.
        weights_F: w and S.
    """

    features: FeatureMap
    weights_F: np.ndarray

    @classmethod
    def fit(
        cls,
        pairs: Sequence[tuple[str, str]],
        contrast_N: np.ndarray,
        features: FeatureMap | None = None,
    ) -> "GeneralPreference":
        """The minimiser of Σ contrast² · (ℓ(preferred, other) − 1/contrast)², and a ridge.

        The ridge is the mean square of a pair's numbers, so that ℓ is about one at most where
        labels have no information.

        Args:
            pairs: N of a response that is stated to be preferred, and the other one.
            contrast_N: the probability of the true statement less that of the other; 1 for a true
                label, and 1/c(ε) for one behind randomized response.
            features: hashed n-grams if not given.
        """
        features = features or HashingFeatures()
        x_NF = _pairs(features, [first for first, _ in pairs], [other for _, other in pairs])
        weighted_NF = x_NF * contrast_N[:, None]
        square = max(float((x_NF**2).sum(axis=1).mean()), 1e-12)
        gram_FF = weighted_NF.T @ weighted_NF + square * np.eye(x_NF.shape[1])
        # contrast² · 1/contrast is the contrast.
        return cls(features, np.linalg.solve(gram_FF, x_NF.T @ contrast_N))

    def __call__(self, responses: Sequence[str], others: Sequence[str]) -> np.ndarray:
        """ℓ of R responses over as many others, (R,) float64."""
        return np.clip(_pairs(self.features, responses, others) @ self.weights_F, -1.0, 1.0)


def _pairs(features: FeatureMap, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """The numbers of pairs, (R, F) float64; swapping both negates them."""
    a_RD, b_RD = (
        features([""] * len(texts), list(texts)).astype(np.float64) for texts in (first, second)
    )
    size = a_RD.shape[1]
    directions_DP = np.random.default_rng(_SEED).standard_normal((size, _DIRECTIONS))
    directions_DP /= _DIRECTIONS**0.5  # circles are as long as differences of rewards, typically
    p_RP, q_RP = a_RD @ directions_DP, b_RD @ directions_DP
    i, j = np.triu_indices(_DIRECTIONS, 1)
    wedge_RS = p_RP[:, i] * q_RP[:, j] - p_RP[:, j] * q_RP[:, i]
    return np.concatenate([a_RD - b_RD, wedge_RS], axis=1)
