"""How nodes' answers become the totals of a round: checked and added one by one, or under masks.

A node that fails, is late, answers twice, or sends anything but a bounded sum of the right shape,
on its grid if it has one, counts as zero. Names and reasons go to the private log, because they
depend on data.

Legend: D dimensions, F figures about held-out users.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Message

from murmuration.privacy.mechanisms import grid as grids
from murmuration.privacy.mechanisms.distributed import NodeNoise
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.privacy.secure_aggregation.party import LEAST_PARTIES, ProtocolError
from murmuration.strategies.protocol import messages, secure_rounds
from murmuration.strategies.protocol.exchange import RoundNotes


@dataclass
class CohortByNode:
    """The number of users behind each node's sum this round.

    ``first`` is the position of the first of them in the cohort, ``total`` the size of the cohort.
    """

    users: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    total: int = 0


@dataclass(frozen=True)
class Expected:
    """The sums that nodes answer with.

    Attributes:
        shapes: by name; of what is ``stacked``, one user's row.
        steps: their grids, 0 for none.
        is_valid: True if so many users, each within the bound, can have produced sums.
        stacked: names of rows, one for each user, in place of a sum.
        noise: the noise that nodes add to the sums, if any.
    """

    shapes: Mapping[str, tuple[int, ...]]
    steps: Mapping[str, float]
    is_valid: Callable[[Mapping[str, np.ndarray], int], bool]
    stacked: frozenset[str] = frozenset()
    noise: NodeNoise | None = None

    def shapes_of(self, users: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the sums of ``users`` users."""
        return {
            name: (users, *shape) if name in self.stacked else shape
            for name, shape in self.shapes.items()
        }

    def nothing(self, users: int) -> dict[str, np.ndarray]:
        """The totals of no users; with the nodes' noise if it did not come with a sum."""
        if self.noise is not None:
            return self.noise.on_nothing(self.shapes_of(users))
        return {name: np.zeros(shape) for name, shape in self.shapes_of(users).items()}

    def read(self, reply: Message, users: int | None) -> dict[str, np.ndarray]:
        """A reply's sums; MalformedReply, with the reason, if they cannot be counted."""
        if users is None:
            raise messages.MalformedReply("a second reply, or one that was not asked for")
        content = messages.content_of(reply)
        sums = messages.read_sums(content, self.shapes_of(users), self.steps)
        if not self.is_valid(sums, users):
            raise messages.MalformedReply(
                f"sums that {users} users within the bound cannot produce"
            )
        self.check_grid(sums)
        return sums

    def check_grid(self, sums: Mapping[str, np.ndarray]) -> None:
        """MalformedReply unless each of the sums lies on its grid, in the exact range."""
        for name, step in self.steps.items():
            try:
                if step and name in sums:
                    grids.check_whole(sums[name], step)
            except ValueError as error:
                raise messages.MalformedReply(str(error)) from None


def plain_totals(
    notes: RoundNotes, expected: Expected, cohort: CohortByNode, replies: Iterable[Message]
) -> dict[str, np.ndarray]:
    """The totals of the admissible sums among the replies.

    Raises:
        RunAborted: a node of a simulation failed.
    """
    totals = {name: np.zeros(shape) for name, shape in expected.shapes_of(cohort.total).items()}
    waiting, arrived = dict(cohort.users), dict[int, dict[str, np.ndarray]]()
    turn = deque(waiting)

    def add(node: int) -> None:
        if (sums := arrived.pop(node, None)) is None:
            return
        first, users = cohort.first[node], cohort.users[node]
        try:
            expected.check_grid(
                {name: totals[name] + sums[name] for name, step in expected.steps.items() if step}
            )
        except messages.MalformedReply as error:  # one by one they were small enough
            notes.leave_out(node, str(error))
            return
        notes.attendance.counted(users)
        for name, total in totals.items():
            if name in expected.stacked:
                total[first : first + users] = sums[name]
            else:
                total += sums[name]

    for reply in replies:
        node = reply.metadata.src_node_id
        notes.slow.discard(node)
        try:
            arrived[node] = expected.read(reply, waiting.pop(node, None))
        except messages.MalformedReply as error:
            notes.leave_out(node, str(error))
        # Added in the order of asking, so that rounding does not depend on who was faster.
        while turn and turn[0] not in waiting:
            add(turn.popleft())
    for node in turn:
        add(node)
    for node in waiting:
        notes.leave_out(node, "no reply in time")
        notes.slow.add(node)
    return totals


def masked_totals(
    ask: secure_rounds.Asker, expected: Expected, cohort: CohortByNode, outgoing: Sequence[Message]
) -> dict[str, np.ndarray] | None:
    """The totals of a round under masks: of all nodes that stayed, or None if there are none.

    Raises:
        RunAborted: a node of a simulation failed.
    """
    shapes, noise = expected.shapes_of(cohort.total), expected.noise
    if len(outgoing) < LEAST_PARTIES:
        ask.notes.attendance.begin(0)  # nobody is asked
    try:
        totals, nodes = secure_rounds.masked_totals(ask, outgoing, expected.steps, shapes)
        users = sum(cohort.users[node] for node in nodes)
        more = noise.in_users(len(nodes), shapes) if noise else 0
        if not expected.is_valid(totals, users + more):
            raise ProtocolError("a total that users within the bound cannot produce")
    except ProtocolError as error:
        ask.notes.write({"left out": f"everybody: {error}"})
        return None
    ask.notes.attendance.counted(users)
    return totals


def plain_tally(
    notes: RoundNotes, tally: Tally, users: Mapping[int, int], replies: Iterable[Message]
) -> np.ndarray:
    """The sums of the admissible tallies among the replies, (F,)."""
    total_F = np.zeros(tally.figures)
    for reply in replies:
        node = reply.metadata.src_node_id
        try:
            content = messages.content_of(reply)
            total_F += messages.read_tally(content, tally, users.get(node, 0))
        except messages.MalformedReply as error:
            notes.write({"node": node, "not evaluated": str(error)})
    return total_F


def masked_tally(
    ask: secure_rounds.Asker, tally: Tally, users: Mapping[int, int], outgoing: Sequence[Message]
) -> np.ndarray:
    """The sums of tallies under masks, (F,); zero if there are none."""
    steps, shapes = {messages.TALLY: 1.0}, {messages.TALLY: (tally.figures,)}
    try:
        totals, nodes = secure_rounds.masked_totals(ask, outgoing, steps, shapes, "evaluate")
        if not tally.is_valid(totals[messages.TALLY], sum(users[node] for node in nodes)):
            raise ProtocolError("a tally that these users cannot produce")
    except ProtocolError as error:
        ask.notes.write({"not evaluated": f"everybody: {error}"})
        return np.zeros(tally.figures)
    return totals[messages.TALLY]
