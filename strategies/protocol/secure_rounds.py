"""Secure aggregation of a round: the server learns the sum over the nodes, not the nodes' sums.

Four exchanges (``privacy.secure_aggregation.party``): keys, shares, the work under masks,
unmasking. Nodes mask, each the sum of its users; who takes part is decided beforehand, by the
cohort, and the server sees which nodes those are. A node that fails in one exchange is not asked in
the next; what it hosts counts as zero, as everywhere. If fewer than
``privacy.secure_aggregation.party.threshold`` of those that began are left, nothing can be unmasked
and the whole round counts as zero.

Threat model: a server that follows the protocol and remembers everything, in league with fewer than
the threshold of nodes. Against one that does not follow it, owners' agents do what they can alone
(``client.agent.agent``): each sum once, bound to its round, model and roster, with parties whose
keys the owner knows, if they list them. Sums of single nodes cannot be checked under masks (only
their total), so a node's clipping must be trusted, or its owner's agent's. The server sees the
exact sum of the cohort before noise.

Whether a round can be unmasked depends on the number of nodes that take part. Where the list of
users is private (add-remove), that would depend on whether a user is there, so this is refused: say
zero-out instead, at the same epsilon. Failures must not depend on data; they never may.

Legend: P nodes of a session, L numbers of a masked vector.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from murmuration.privacy.mechanisms import grid as grids
from murmuration.privacy.secure_aggregation.party import (
    LEAST_PARTIES,
    MOST_PARTIES,
    SESSION_BYTES,
    ProtocolError,
    threshold,
)
from murmuration.privacy.secure_aggregation.server import Session, unmasked
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol import secure_messages as secure
from murmuration.strategies.protocol.exchange import RoundNotes, exchange, message_ttl
from murmuration.strategies.protocol.users import Registry

Answer = TypeVar("Answer")

#: How often a round may be too small to be summed, when a run is begun.
_TOO_SMALL = 0.01


def check_nodes(registry: Registry, probability: float) -> None:
    """Raise ValueError if too few nodes would take part too often, or too many.

    ``probability`` is that of a user to take part in a round, over all secret sampling: a refusal
    must not depend on its outcome.
    """
    users = [len(mine) for _, mine in registry.by_node(registry.single)]
    taking_part = 1.0 - (1.0 - probability) ** np.array(users, dtype=np.float64)
    fewer = np.zeros(LEAST_PARTIES)  # chances of 0, 1, … nodes
    fewer[0] = 1.0
    for chance in taking_part:
        fewer[1:] = fewer[1:] * (1.0 - chance) + fewer[:-1] * chance
        fewer[0] *= 1.0 - chance
    if (often := float(fewer.sum())) > _TOO_SMALL:
        raise ValueError(
            f"--secure-aggregation needs {LEAST_PARTIES} nodes in a round, and {often:.2g} of the "
            f"rounds would have fewer, with {len(users)} nodes: raise --cohort, or use more nodes "
            "(--users-per-node in simulation)"
        )
    expected = float(taking_part.sum())
    if expected + 6.0 * np.sqrt(expected) > MOST_PARTIES and len(users) > MOST_PARTIES:
        raise ValueError(
            f"--secure-aggregation is for at most {MOST_PARTIES} nodes in a round; about "
            f"{expected:.0f} would take part: lower --cohort, or host more users on a node"
        )


def masked_totals(
    ask: "Asker",
    outgoing: Sequence[Message],
    steps: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]],
    kind: str = "train",
) -> tuple[dict[str, np.ndarray], list[int]]:
    """The totals of the sums that ``outgoing`` asks for, and which nodes they are of.

    ``steps`` are the grids of the sums by name, ``kind`` the type of the messages that ask for
    them. Totals are exact, float64.

    Raises:
        ProtocolError: too few nodes began or stayed; there are no totals.
        ValueError: a sum has no grid.
    """
    if set(steps) != set(shapes) or not all(step > 0.0 for step in steps.values()):
        raise ValueError("sums that are on no grid cannot be masked")
    work = {message.metadata.dst_node_id: message.content for message in outgoing}
    if len(work) < LEAST_PARTIES:
        raise ProtocolError(f"{len(work)} nodes have users in this round; {LEAST_PARTIES} must")
    name = os.urandom(SESSION_BYTES)
    about = secure.about(kind, next(iter(work.values())))  # the same of every node
    keys = ask(
        secure.KEYS,
        {node: secure.keys_request(name) for node in work},
        lambda content, _: secure.read_keys(content),
    )
    nodes = [node for node in work if node in keys]  # places are in the order of asking
    place = {node: number for number, node in enumerate(nodes, start=1)}
    roster = [keys[node] for node in nodes]
    if len(nodes) < LEAST_PARTIES:
        raise ProtocolError(f"{len(nodes)} nodes have shown keys; {LEAST_PARTIES} must")
    enough = threshold(len(nodes))

    shared = _by_place(
        place,
        ask(
            secure.SHARES,
            {node: secure.Invitation(name, place[node], roster, about).request() for node in nodes},
            lambda content, node: secure.read_shares(content, place[node], len(nodes)),
        ),
    )
    _check_left(len(shared), enough, "shared")

    def with_shares(node: int) -> RecordDict:
        sealed = {
            other: given.sealed[place[node]]
            for other, given in shared.items()
            if other != place[node]
        }
        request = secure.MaskRequest(name, sealed)
        return RecordDict({**work[node], secure.RECORD: request.record()})

    length = sum(int(np.prod(shape)) for shape in shapes.values())
    masked = _by_place(
        place,
        ask(
            kind,
            {node: with_shares(node) for node in nodes if place[node] in shared},
            lambda content, node: secure.read_masked(content, length),
        ),
    )
    _check_left(len(masked), enough, "sent their vectors")
    arrived, gone = sorted(masked), sorted(set(shared) - set(masked))
    opened = _by_place(
        place,
        ask(
            secure.UNMASK,
            {node: secure.unmask_request(name, arrived) for node in nodes if place[node] in masked},
            lambda content, node: secure.read_opened(content, arrived, gone),
        ),
    )
    commitments = {other: given.commitment for other, given in shared.items()}
    session = Session(name, about, [entry.keys for entry in roster], commitments)
    total_L = unmasked(session, masked, opened)
    return _split(total_L, steps, shapes), [nodes[number - 1] for number in arrived]


def _split(
    total_L: np.ndarray, steps: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """The totals by name, as values."""
    result, first = {}, 0
    for name, step in steps.items():
        size = int(np.prod(shapes[name]))
        part = grids.from_whole(total_L[first : first + size], step)
        result[name] = part.reshape(shapes[name])
        first += size
    return result


@dataclass(frozen=True)
class Asker:
    """Exchanges over ``grid``, one after the other; a node that fails is noted and left out."""

    grid: Grid
    timeout: float
    notes: RoundNotes

    def __call__(
        self,
        kind: str,
        contents: Mapping[int, RecordDict],
        read: Callable[[RecordDict, int], Answer],
    ) -> dict[int, Answer]:
        """The answers of the nodes that gave one.

        Raises:
            RunAborted: a node of a simulation failed.
        """
        result: dict[int, Answer] = {}
        silent = set(contents)
        outgoing = self._messages(kind, contents)
        replies = exchange(
            self.grid, outgoing, self.timeout, self.notes.slow, simulated=self.notes.simulated
        )
        for reply in replies:
            node = reply.metadata.src_node_id
            silent.discard(node)
            self.notes.slow.discard(node)
            try:
                if node not in contents or node in result:
                    raise messages.MalformedReply("a second reply, or one that was not asked for")
                result[node] = read(messages.content_of(reply), node)
            except messages.MalformedReply as error:
                self.notes.leave_out(node, f"{kind}: {error}")
        for node in silent:
            self.notes.leave_out(node, f"no answer to {kind}")
            self.notes.slow.add(node)
        self.notes.attendance.heard(bool(result))
        return result

    def _messages(self, kind: str, contents: Mapping[int, RecordDict]) -> Iterable[Message]:
        for node, content in contents.items():
            yield messages.outgoing(
                content, kind, node, self.notes.round, message_ttl(self.timeout)
            )


def _by_place(place: Mapping[int, int], found: Mapping[int, Answer]) -> dict[int, Answer]:
    return {place[node]: answer for node, answer in found.items()}


def _check_left(left: int, enough: int, done: str) -> None:
    if left < enough:
        raise ProtocolError(f"{left} nodes have {done}; {enough} must: nothing can be summed")
