"""How long a round waits for its nodes where nobody says: from a probe on users that are made up.

The server runs the node half on synthetic users of the sizes that are public: group size, width and
dimension. A language model is tried by its nodes, at ``max_tokens``, when they register. What a
whole cohort would take on one machine follows from that, and a round waits ``FACTOR`` times as
long (of what nodes measured ``OF_NODES`` times), but at least ``FLOOR`` seconds.
Private rounds are never measured: a deadline that follows them would tell of the users who are in.

Legend: U users, R rows, D dimensions.
"""

import time
from collections.abc import Sequence
from math import ceil
from statistics import median

import numpy as np

from murmuration.preference.data.schema import Schema
from murmuration.preference.kinds.model import Model
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.spec import BuiltStrategy

#: Nodes may be so much slower than the server, or have so much else to do.
FACTOR = 20.0
#: As much of what nodes measured themselves, on texts as long as any can be.
OF_NODES = 5.0
#: Seconds; starting a process at a node, or waking it up, takes long whatever is asked.
FLOOR = 600.0
_ENOUGH = 0.05  # seconds of a probe that say something of longer ones
_MORE = 8  # times as many judgements, until there are enough


def deadline(
    config: RunConfig, built: BuiltStrategy, model: Model, measured: Sequence[float] = ()
) -> float:
    """Seconds to wait for the nodes of a round, as if one of them hosted the whole cohort.

    With what nodes ``measured`` for a made-up judgement, in seconds, that of half of them is taken:
    the server needs no language model for it, and one node's word does not count.
    """
    strategy = built.strategy
    if strategy.name not in registry.node_halves():
        return FLOOR  # nothing is computed at nodes
    if not model.trains:
        return FLOOR  # that of so many policies is not tried out
    everybody = strategy.sampler.probability >= 1.0
    users = (config.users or len(strategy.participants.train)) if everybody else config.cohort
    whole, judgements = users * built.group_size, 1
    if measured:
        return max(FLOOR, OF_NODES * median(measured) * whole)
    _seconds(config, built, model, 1)  # compiles, loads
    while True:
        begun = time.monotonic()
        seconds = _seconds(config, built, model, judgements)
        if judgements >= whole or time.monotonic() - begun >= _ENOUGH:
            return max(FLOOR, FACTOR * seconds * whole / judgements)
        judgements = min(whole, judgements * _MORE)


def _seconds(config: RunConfig, built: BuiltStrategy, model: Model, judgements: int) -> float:
    """Return what the node half takes for users who have so many judgements together."""
    strategy = built.strategy
    each = min(judgements, built.group_size)
    schema = Schema(config.kind, config.responses)  # type: ignore[arg-type]
    examples = model.largest_examples(schema, ceil(judgements / each), each)
    arrays = {"theta": strategy.optimizer.theta_D.astype(np.float32), **strategy.arrays()}
    parameters = {"round": 1, "model": config.model, **strategy.parameters()}
    users_S = np.arange(len(examples.start_U) - 1)
    work, keys_S = TrainRequest(arrays, parameters, users_S), users_S.astype(np.uint64)
    begun = time.monotonic()
    registry.node_halves()[strategy.name].client_update(examples, work, keys_S, Randomness(0))
    return time.monotonic() - begun
