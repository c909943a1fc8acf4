"""The node halves by name: what a node may be asked to run."""

from collections.abc import Callable, Mapping

import numpy as np

from preference.examples import PairExamples
from privacy.randomness import Randomness
from strategies import nonprivate, uls
from strategies.messages import Work

#: From examples, what is asked, the users' random names and the source of draws to named sums.
NodeHalf = Callable[[PairExamples, Work, np.ndarray, Randomness], Mapping[str, np.ndarray]]

NODE_HALVES: dict[str, NodeHalf] = {
    "uls": uls.contribute,
    "nonprivate": nonprivate.contribute,
}
