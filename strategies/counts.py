"""How many judgements users have, as a histogram on a public grid; not for release as it is.

Source: the median rule for ELS's group size, Charles et al. 2024, App. H. A user adds one to one
bucket. Formal guarantee: none by itself; ``privacy.median`` releases the median of it and pays.

Legend: J buckets.
"""

from collections.abc import Mapping

import numpy as np
from flwr.serverapp import Grid

from preference.gradients import Examples
from privacy.median import GRID, histogram
from privacy.randomness import Randomness
from strategies import messages
from strategies.availability import Attendance
from strategies.exchange import exchange
from strategies.messages import Work
from strategies.rounds import Participants, PrivateLog


def contribute(
    examples: Examples, work: Work, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, how many of the asked users are in each bucket of the grid, (J,)."""
    return {"sum": histogram(examples.counts_U.numpy()[work.users_S])}


def ask(
    grid: Grid, participants: Participants, *, features: str, log: PrivateLog, timeout: float
) -> np.ndarray:
    """The histogram over all users that are trained on, (J,); a node that fails counts as zero.

    Raises:
        RunAborted: nobody answered, or a node of a simulation failed.
    """
    parameters = {"strategy": "counts", "features": features}
    model = messages.model_record(np.zeros(0))
    asked, outgoing = {}, []
    for node, local_S in participants.registry.by_node(participants.train):
        asked[node] = len(local_S)
        content = messages.work_request(model, parameters, local_S)
        outgoing.append(messages.outgoing(content, "train", node))
    total_J, attendance = np.zeros(len(GRID)), Attendance()
    attendance.begin(sum(asked.values()))
    simulated = participants.registry.simulated
    for reply in exchange(grid, outgoing, timeout, simulated=simulated):
        node = reply.metadata.src_node_id
        try:
            if reply.has_error():
                raise messages.MalformedReply(str(reply.error.reason))
            total_J += _checked(
                messages.read_sums(reply.content, {"sum": (len(GRID),)}), asked[node]
            )
            attendance.counted(asked[node])
        except messages.MalformedReply as error:
            log({"round": 0, "node": node, "left out": str(error)})
            attendance.failed(str(error))
    attendance.check_any()  # everybody was asked, by no coin, and nothing is released
    return total_J


def _checked(sums: Mapping[str, np.ndarray], users: int) -> np.ndarray:
    """A histogram of ``users`` users; MalformedReply if it cannot be one."""
    users_J = sums["sum"].astype(np.float64)
    whole = np.isfinite(users_J).all() and (users_J >= 0).all() and (users_J % 1 == 0).all()
    if not whole or users_J.sum() != users:
        raise messages.MalformedReply(f"not a histogram of {users} users")
    return users_J
