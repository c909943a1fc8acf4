"""The lengths of averaged gradients of public users, by group size.

Source: Charles et al. 2024, Appendix I, eq. 8: L_ULS(G) is about the median, over users, of the
length of the mean gradient of at most G of their judgements, at the model that training starts
from; here that is θ = 0. The lengths of the users who are trained on are private, so the estimate
comes from people whose judgements are public, or from a synthetic population: it has no privacy
cost, and is as good as these people are like the others.

Legend: U users, J judgements, W rows of a judgement, D dimensions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.models import PreferenceModel

#: Users that are looked at. The paper takes 128; more make the ratios of lengths steadier.
USERS = 512
_DRAWS = 8  # choices of judgements of each user
ROWS = 200_000  # judgements whose gradients are held at once, about


@dataclass(frozen=True, eq=False)
class GroupNorms:
    """Statistics of public users' gradients, and L as a function of G.

    Attributes:
        lengths: the median length by group size, for 1, 2, 4, … up to the most judgements that a
            user has.
        drift: the length of the mean over users of their gradients: the length of a step.
        median_judgements: of a user; what the paper recommends as the group size of ELS.
        counts_U: judgements of each user in the estimate.
        dimension: D.
    """

    lengths: Mapping[int, float]
    drift: float
    median_judgements: int
    counts_U: np.ndarray = field(repr=False)
    dimension: int

    @classmethod
    def of(cls, examples: PairExamples, model: PreferenceModel, seed: int = 0) -> "GroupNorms":
        """Estimate from users' examples, by random choices of judgements that ``seed`` repeats.

        Raises ValueError for no users, or gradients that are all zero.
        """
        generator = np.random.default_rng([3, seed])
        counts_U = examples.counts_U.numpy()
        if not counts_U.sum():
            raise ValueError("there are no judgements to estimate from")
        chosen = generator.permutation(np.flatnonzero(counts_U))[:USERS]
        sizes = [1 << k for k in range(int(counts_U[chosen].max() - 1).bit_length() + 1)]
        norms: dict[int, list[float]] = {size: [] for size in sizes}
        total_D = np.zeros(examples.dimension)
        for user in chosen:
            grads_JD = _gradients(examples, model, int(user), generator)
            total_D += grads_JD.mean(axis=0)
            for _ in range(_DRAWS):
                running_JD = np.cumsum(grads_JD[generator.permutation(len(grads_JD))], axis=0)
                for size in sizes:
                    taken = min(size, len(running_JD))
                    norms[size].append(float(np.linalg.norm(running_JD[taken - 1])) / taken)
        lengths = {size: float(np.median(result)) for size, result in norms.items()}
        if min(lengths.values()) <= 0.0:
            raise ValueError(
                "most users' gradients are zero: the judgements are ties, or both texts look alike"
            )
        return cls(
            lengths,
            float(np.linalg.norm(total_D)) / len(chosen),
            max(1, int(np.median(counts_U[chosen]))),
            counts_U[chosen],
            examples.dimension,
        )

    def length(self, group_size: int) -> float:
        """L(G): exact for powers of two, between them by the next smaller; constant at the end."""
        return self.lengths[max(size for size in self.lengths if size <= group_size)]

    def used(self, group_size: int) -> float:
        """Judgements that an average user gives to a round with this group size."""
        return float(np.minimum(self.counts_U, group_size).mean())


def _gradients(
    examples: PairExamples, model: PreferenceModel, user: int, generator: np.random.Generator
) -> np.ndarray:
    """The gradients of a user's judgements at θ = 0, (J, D) float64; of very many, some."""
    first, last = examples.start_U[user : user + 2].tolist()
    judgements = np.arange(first, last)
    if len(judgements) > (most := max(1, ROWS // USERS)):
        judgements = np.sort(generator.permutation(judgements)[:most])
    picked_J = torch.from_numpy(judgements)
    y_JW = examples.y_R.view(-1, examples.width)[picked_J]
    x_JWD = examples.x_RD.view(-1, examples.width, examples.dimension)[picked_J]
    slopes_JW = model.residual(torch.zeros_like(y_JW), y_JW)
    return torch.einsum("jw,jwd->jd", slopes_JW.double(), x_JWD.double()).numpy()
