"""Users over nodes: who hosts whom, and which node gets which of the sampled users.

The user is the privacy unit, the node only the transport. The registry numbers all users in one
line, in an order that does not depend on how they are grouped into nodes; cohorts are drawn on that
line and only then split by node.

Legend: N users in the registry, U users of a node, S sampled users.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from flwr.serverapp import Grid

from privacy.randomness import Randomness
from strategies import messages
from strategies.exchange import exchange


class RegistryError(ValueError):
    """The nodes cannot serve this run; one line that says why and what to do."""


@dataclass(frozen=True, eq=False)
class Registry:
    """All users of a run, in one line.

    Attributes:
        nodes: node ids in the order of their users.
        start: offset of each node's first user, one more than nodes.
        keys_N: the salted 64-bit name of each user.
        counts_N: judgements of each user, where public; else None.
    """

    nodes: tuple[int, ...]
    start: np.ndarray
    keys_N: np.ndarray
    counts_N: np.ndarray | None

    @classmethod
    def ask(
        cls,
        grid: Grid,
        source: Randomness,
        *,
        features: str,
        counts: bool = False,
        timeout: float = 3600.0,
    ) -> "Registry":
        """Ask every node of the grid whom it hosts; nodes compute their users' features meanwhile.

        ``features`` is the feature map's config as JSON; ``counts`` asks for numbers of judgements,
        only where the adjacency makes them public.

        Raises:
            RegistryError: a node failed to answer, a user is hosted twice (their contribution
                would be clipped twice over), or there is no user at all.
        """
        salt = source.key("registry salt")
        request = messages.registry_request(salt, counts, features)
        node_ids = list(grid.get_node_ids())
        outgoing = [messages.outgoing(request, "query.registry", node) for node in node_ids]
        entries: dict[int, messages.RegistryEntry] = {}
        for reply in exchange(grid, outgoing, timeout):
            node = reply.metadata.src_node_id
            if reply.has_error():
                raise RegistryError(f"a node did not register: {reply.error.reason}")
            entries[node] = messages.read_registry(reply.content)
        if missing := len(node_ids) - len(entries):
            raise RegistryError(f"{missing} of {len(node_ids)} nodes did not answer in time")
        return cls.of(entries)

    @classmethod
    def of(cls, entries: dict[int, messages.RegistryEntry]) -> "Registry":
        """The registry of the given answers, by node id; see ``ask``."""

        # Where nodes have no place of their own, the smallest user name is one that stays.
        def order(node: int) -> tuple[int, int]:
            entry = entries[node]
            return entry.place, int(entry.keys_U.min()) if len(entry.keys_U) else 0

        nodes = sorted(entries, key=order)
        sizes = [len(entries[node].keys_U) for node in nodes]
        if sum(sizes) == 0:
            raise RegistryError("no users: none of the nodes hosts anybody; check --data")
        keys_N = np.concatenate([entries[node].keys_U for node in nodes])
        if len(np.unique(keys_N)) < len(keys_N):
            raise RegistryError(
                "a user is hosted by two nodes, and would contribute twice what the clip norm "
                "allows: let one node host all judgements of a user"
            )
        parts = [entries[node].counts_U for node in nodes]
        known = [part for part in parts if part is not None]
        counts_N = np.concatenate(known) if len(known) == len(parts) else None
        return cls(tuple(nodes), np.cumsum([0, *sizes]), keys_N, counts_N)

    def __len__(self) -> int:
        return len(self.keys_N)

    def by_node(self, users_S: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Node ids with the local indices of those of ``users_S`` (ascending) they host."""
        cuts = np.searchsorted(users_S, self.start)
        for place in np.flatnonzero(np.diff(cuts)):
            mine = users_S[cuts[place] : cuts[place + 1]]
            yield self.nodes[place], mine - self.start[place]

    def hold_out(self, fraction: float, source: Randomness) -> tuple[np.ndarray, np.ndarray]:
        """Split all users: (users to train on, users held out), both ascending.

        Each user is held out by a coin of their own. A draw of a fixed share would not do: with one
        user more somebody else could change sides, and neighbouring data sets would be trained on
        users that differ in a swap instead of one who comes or goes.

        Raises:
            RegistryError: nobody is left to train on, or nobody is held out.
        """
        bar = np.uint64(min(fraction, 1.0) * 2.0**64 - 2.0**11)
        held_N = source.user_words("hold out", 0, self.keys_N) < bar
        train, held_out = np.flatnonzero(~held_N), np.flatnonzero(held_N)
        if not len(train) or not len(held_out):
            raise RegistryError(
                f"too few users ({len(self)}) to hold out a share of {fraction:g} of them; "
                "pass --test with judgements of others"
            )
        return train, held_out
