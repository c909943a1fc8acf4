"""A histogram of users by number of judgements, on a public grid; not for release as it is.

Source: the median rule for ELS's group size, Charles et al. 2024, App. H. A user adds one to one
bucket, and one who has no judgements to none: away and empty-handed must be the same. Formal
guarantee: none by itself; ``privacy.mechanisms.median`` releases the median of it and pays.

Legend: J buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from murmuration.privacy.mechanisms.median import GRID, histogram
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.secure_aggregation.party import ProtocolError
from murmuration.strategies.base import Participants, PrivateLog
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import Attendance, Reason, RunAborted
from murmuration.strategies.protocol.exchange import RoundNotes, exchange
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.protocol.secure_rounds import Asker, masked_totals

if TYPE_CHECKING:
    from murmuration.preference.kinds.model import Examples

_SHAPES = {"sum": (len(GRID),)}
_INSTEAD = "how many judgements users have could not be asked; state --group-size instead"


def client_update(
    examples: Examples, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, the number of asked users in each bucket of the grid, (J,)."""
    counts_S = examples.counts_U.numpy()[work.users_S]
    return {"sum": histogram(counts_S[counts_S > 0])}


def ask(
    grid: Grid,
    participants: Participants,
    *,
    features: str,
    log: PrivateLog,
    timeout: float,
    masked: bool = False,
) -> np.ndarray:
    """The histogram over all users that are trained on, (J,); a node that fails counts as zero.

    With ``masked`` it is summed under masks (``strategies.protocol.secure_rounds``), and no single
    node's is seen. Users left out are counted in ``log``.

    Raises:
        RunAborted: nobody answered, or summing under masks is impossible, or a node of a simulation
            failed. An empty histogram is never taken for a result.
    """
    parameters = {"strategy": "counts", "features": features}
    model = messages.model_record(np.zeros(0))
    users, outgoing = {}, []
    for node, asked in participants.registry.by_node(participants.train):
        users[node] = len(asked)
        content = messages.work_request(model, parameters, asked)
        outgoing.append(messages.outgoing(content, "train", node))
    attendance, simulated = Attendance(), participants.registry.simulated
    attendance.begin(sum(users.values()))
    try:
        if masked:
            asker = Asker(grid, timeout, RoundNotes(0, log, set(), attendance, simulated))
            total_J, there = _masked(asker, outgoing, users)
        else:
            replies = exchange(grid, outgoing, timeout, simulated=simulated)
            total_J, there = _added_up(replies, users, log, attendance)
        attendance.check_any()  # everybody was asked, by no coin, and nothing is released
    except RunAborted as aborted:
        if simulated or aborted.reason is Reason.NODE_FAILED:
            raise  # it says more
        raise RunAborted(aborted.reason, _INSTEAD, aborted.private) from None
    except ProtocolError as error:
        raise RunAborted(Reason.NO_ANSWERS, _INSTEAD, {"why": str(error)}) from None
    if len(there) < len(users):
        gone = [count for node, count in users.items() if node not in there]
        log({"round": 0, "nodes left out": len(gone), "of so many users": sum(gone)})
    return total_J


def _added_up(
    replies: Iterable[Message], users: Mapping[int, int], log: PrivateLog, attendance: Attendance
) -> tuple[np.ndarray, set[int]]:
    """The total of the nodes' own histograms, and which nodes these are of."""
    total_J, there = np.zeros(len(GRID)), set[int]()
    for reply in replies:
        node = reply.metadata.src_node_id
        try:
            content = messages.content_of(reply)
            if node not in users or node in there:
                raise messages.MalformedReply("a second reply, or one that was not asked for")
            total_J += _checked(messages.read_sums(content, _SHAPES), users[node])
            attendance.counted(users[node])
            there.add(node)
        except messages.MalformedReply as error:
            log({"round": 0, "node": node, "left out": str(error)})
            attendance.failed(str(error))
    return total_J, there


def _masked(
    asker: Asker, outgoing: Sequence[Message], users: Mapping[int, int]
) -> tuple[np.ndarray, set[int]]:
    """The total under masks, and which nodes it is of; ProtocolError if there is none."""
    totals, nodes = masked_totals(asker, outgoing, dict.fromkeys(_SHAPES, 1.0), _SHAPES)
    try:
        return _checked(totals, sum(users[node] for node in nodes)), set(nodes)
    except messages.MalformedReply as error:
        raise ProtocolError(str(error)) from None


def _checked(sums: Mapping[str, np.ndarray], users: int) -> np.ndarray:
    """A histogram of at most ``users`` users; MalformedReply if it cannot be one."""
    users_J = sums["sum"].astype(np.float64)
    whole = np.isfinite(users_J).all() and (users_J >= 0).all() and (users_J % 1 == 0).all()
    if not whole or users_J.sum() > users:
        raise messages.MalformedReply(f"not a histogram of at most {users} users")
    return users_J
