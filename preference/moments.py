"""Users' averaged rows: Σ slope·x over each user's judgements, divided by their number.

Legend: J judgements, W rows in each, U users, B users in a chunk, D dimensions.
"""

from collections.abc import Iterator

import torch

from preference.examples import PairExamples

_CHUNK_NUMBERS = 2**22


def averaged(
    examples: PairExamples, slopes_JW: torch.Tensor
) -> Iterator[tuple[slice, torch.Tensor]]:
    """For chunks of users, in order: which users, and their averaged rows (B, D) float64.

    Sums of products are float64, so they do not depend on how users are cut into chunks.
    """
    starts, width = examples.start_U.tolist(), examples.width
    users, first = len(starts) - 1, 0
    most = max(1, _CHUNK_NUMBERS // (examples.dimension * width))
    while first < users:
        last = first + 1
        while last < users and starts[last + 1] - starts[first] <= most:
            last += 1
        judgements = slice(starts[first], starts[last])
        rows = slice(judgements.start * width, judgements.stop * width)
        counts_B = examples.start_U[first : last + 1].diff()
        user_R = torch.repeat_interleave(torch.arange(last - first), counts_B * width)
        weighted_RD = examples.x_RD[rows] * slopes_JW[judgements].double().reshape(-1, 1)
        sums_BD = torch.zeros(last - first, examples.dimension, dtype=torch.float64)
        sums_BD.index_add_(0, user_R, weighted_RD)
        yield slice(first, last), sums_BD / counts_B.clamp_min(1)[:, None]
        first = last
