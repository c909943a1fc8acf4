"""The node halves by name: what a node may be asked to run."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import (
    adaptive,
    contributions,
    dp_fedavg,
    els,
    label_moment,
    nonprivate,
    objective_perturbation,
    uls,
)
from murmuration.strategies.protocol import group_size_histogram
from murmuration.strategies.protocol.messages import Work

#: From examples, what is asked, the users' random names and the source of draws to named sums.
NodeHalf = Callable[[Any, Work, np.ndarray, Randomness], Mapping[str, np.ndarray]]

NODE_HALVES: dict[str, NodeHalf] = {
    "uls": uls.contribute,
    "dp-fedavg": dp_fedavg.contribute,
    "els": els.contribute,
    "group": els.contribute,
    "adaptive": adaptive.contribute,
    "aup-centred": adaptive.contribute,
    "aup-corrected": contributions.contribute,
    "aup-published": contributions.contribute,
    "label-moment": label_moment.contribute,
    "objective-perturbation": objective_perturbation.contribute,
    "nonprivate": nonprivate.contribute,
    "counts": group_size_histogram.contribute,
}
