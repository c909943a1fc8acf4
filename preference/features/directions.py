"""Features along a few public directions: Bᵀφ, with orthonormal columns of B.

Noise on a sum has one part for each number of a model. Where people are few, most directions of the
features carry more noise than signal; here only a few are learnt, which public texts chose: the
start's and length's axis, then the principal directions of differences between public responses.
This is a feature map and nothing else: vectors are clipped behind it, so their sensitivity is as
ever, whatever B is. B comes from no user's texts, and goes to nodes in the features' config.

A model θ over these features is Bθ over the plain ones, and is saved as that.

Shape suffixes: R texts, N rows of differences, D plain features, K directions, F fixed axes.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.feature_map import FeatureMap

#: In a config: what `Directions.to_config` adds to that of the plain features.
DIRECTIONS = "directions"
#: The same of `preference.features.scorer.Scored.to_config`.
SCORER = "scorer"
#: Numbers of B: each request has them, and is at most a MiB long.
MOST_NUMBERS = 180_000
#: How far BᵀB may be from 1: float32 of what was orthonormal.
_TOLERANCE = 1e-4
#: Of the largest: directions along which public responses hardly differ are left out.
_NOTHING = 1e-6


class Directions:
    """The features Bᵀφ; a `preference.features.feature_map.FeatureMap`.

    Attributes:
        basis_DK: B, float32.
        plain: φ.

    Raises:
        InputError: B has another height than φ has numbers, too many numbers, a number that is not
            finite, or columns that are not orthonormal.
    """

    def __init__(self, basis_DK: np.ndarray, plain: FeatureMap) -> None:
        basis_DK = np.ascontiguousarray(basis_DK, dtype=np.float32)
        if basis_DK.ndim != 2 or len(basis_DK) != plain.dimension or not basis_DK.shape[1]:
            raise InputError(
                f"directions of shape {basis_DK.shape} for {plain.dimension} features: another "
                "version, or another map, made them"
            )
        if basis_DK.size > MOST_NUMBERS:
            raise InputError(
                f"--directions: {basis_DK.shape[1]} directions of {len(basis_DK):,} features are "
                f"more than {MOST_NUMBERS:,} numbers, which each request would hold: take fewer"
            )
        if not (np.abs(basis_DK) <= 1.0 + _TOLERANCE).all() or not _orthonormal(basis_DK):
            raise InputError("directions that are not orthonormal")
        self.basis_DK, self.plain = basis_DK, plain
        self._basis_KD = np.ascontiguousarray(basis_DK.T, dtype=np.float64)
        if (unreadable := getattr(plain, "unreadable", None)) is not None:
            self.unreadable = unreadable

    @property
    def dimension(self) -> int:
        """K."""
        return self.basis_DK.shape[1]

    @property
    def uses_prompt(self) -> bool:
        """True if the plain features do."""
        return self.plain.uses_prompt

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of R texts: (R, K) float32, of each by itself to the last bit."""
        phi_RD = np.asarray(self.plain(prompts, responses), dtype=np.float64)
        # One product for each text: of several at once the last bits may depend on their number.
        rows = [self._basis_KD @ phi_D for phi_D in phi_RD]
        return np.array(rows, dtype=np.float32).reshape(len(phi_RD), self.dimension)

    def lifted(self, theta_K: np.ndarray) -> np.ndarray:
        """Bθ: the same reward over the plain features, (D,) float32."""
        return (theta_K.astype(np.float64) @ self._basis_KD).astype(np.float32)

    def lowered(self, theta_D: np.ndarray) -> np.ndarray:
        """Bᵀθ: the part of a reward over the plain features that is within B, (K,) float32."""
        return (self._basis_KD @ theta_D.astype(np.float64)).astype(np.float32)

    def to_config(self) -> dict[str, Any]:
        """Description for `preference.features.hashing.feature_map`."""
        basis = base64.b64encode(self.basis_DK.astype("<f4").tobytes()).decode()
        described = {"count": self.dimension, "basis": basis}
        return {**self.plain.to_config(), DIRECTIONS: described}


def _orthonormal(basis_DK: np.ndarray) -> bool:
    gram_KK = basis_DK.T.astype(np.float64) @ basis_DK.astype(np.float64)
    return bool((np.abs(gram_KK - np.eye(len(gram_KK))) <= _TOLERANCE).all())


def directions_of(config: Any, plain: FeatureMap) -> Directions:
    """The map that a config describes, over plain features.

    Raises:
        InputError: it describes none; or as for `Directions`.
    """
    try:
        count, numbers = config["count"], numbers_in(config["basis"])
        if type(count) is not int or count < 1:
            raise TypeError(f"a count of {count!r}")
        basis_DK = numbers.reshape(plain.dimension, count)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"directions that cannot be read: {error}") from None
    return Directions(basis_DK, plain)


def numbers_in(text: Any) -> np.ndarray:
    """The float32 numbers that a text in base64 holds; TypeError or ValueError if it holds none."""
    if not isinstance(text, str):
        raise TypeError("numbers that are no text")
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def principal_directions(rows_ND: np.ndarray, axes_FD: np.ndarray, count: int) -> np.ndarray:
    """An orthonormal basis: the given axes, then the principal directions of the rows beside them.

    Args:
        rows_ND: differences of features of public responses, finite.
        axes_FD: axes that are within it whatever the rows are; F ≤ ``count``.
        count: the most directions altogether.

    Returns:
        B, (D, K) float32. K is less than ``count`` where axes and rows have no more directions.
    """
    dimension = rows_ND.shape[1]
    basis = list[np.ndarray]()
    for axis_D in np.asarray(axes_FD, dtype=np.float64):
        rest_D = axis_D / max(float(np.linalg.norm(axis_D)), 1e-300)
        for _ in range(2):  # the second time takes away what rounding left
            for other_D in basis:
                rest_D = rest_D - (other_D @ rest_D) * other_D
        if (length := float(np.linalg.norm(rest_D))) > _NOTHING:
            basis.append(rest_D / length)
    fixed_DF = np.array(basis).reshape(-1, dimension).T
    gram_DD = rows_ND.T.astype(np.float64) @ rows_ND.astype(np.float64)
    beside_DD = np.eye(dimension) - fixed_DF @ fixed_DF.T
    spread_D, vectors_DD = np.linalg.eigh(beside_DD @ gram_DD @ beside_DD)
    order = np.argsort(-spread_D, kind="stable")
    there = [place for place in order if spread_D[place] > _NOTHING * max(spread_D.max(), 1e-300)]
    chosen_DK = vectors_DD[:, there[: count - fixed_DF.shape[1]]]
    chosen_DK = chosen_DK - fixed_DF @ (fixed_DF.T @ chosen_DK)
    # The sign of an eigenvector means nothing: that of its largest number is made positive.
    if chosen_DK.shape[1]:
        largest_K = np.abs(chosen_DK).argmax(axis=0)
        chosen_DK = chosen_DK * np.sign(chosen_DK[largest_K, np.arange(chosen_DK.shape[1])])
        chosen_DK, corner_KK = np.linalg.qr(chosen_DK)
        chosen_DK = chosen_DK * np.sign(np.diag(corner_KK))
    return np.hstack([fixed_DF, chosen_DK]).astype(np.float32)


def without_numbers(config: Mapping[str, Any]) -> dict[str, Any]:
    """A features' config to be shown: of directions their count, and no scorer's weights."""
    shown = {name: value for name, value in config.items() if name != "theta"}
    if DIRECTIONS in shown:
        shown[DIRECTIONS] = shown[DIRECTIONS]["count"]
    for name, value in shown.items():
        if isinstance(value, Mapping):
            shown[name] = without_numbers(value)
    return shown
