"""The users that each registered node may host, as the operator declares them; a node's own claim
is checked against it.

A node states its users, and a user's part of a round is bounded by the clip norm: so the number of
users that a node claims is its influence. In a deployment the operator fixes it when a node's key
is registered, as a number of users, or as their ids. Claims beyond that are ignored, and counted,
so that only the server's owner sees them.

Which of too many users count is decided by their salted names, so it depends on who else is at the
node, and that is more than ``add-remove`` allows one user to change: there ids are needed. Under
the other adjacencies the registered users do not depend on judgements. (Where a user is replaced by
one of another name, at most one who counts changes with it, as the promise allows.)

Legend: U users of a node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.serverapp import Grid

from murmuration.privacy.mechanisms.randomness import user_key
from murmuration.strategies.protocol.messages import RegistryEntry


@dataclass(frozen=True)
class Hosted:
    """The registration of a key: at most ``users`` users and, if ``ids`` are given, no others.

    Raises:
        ValueError: ``users`` is negative.
    """

    users: int = 1
    ids: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.users < 0:
            raise ValueError(f"a node hosts 0 users or more, not {self.users}")


@dataclass(frozen=True)
class Registration:
    """The users that each node may host: ``nodes`` by public key, as Flower reports it, and any
    ``other``.

    Raises:
        ValueError: a user id is registered for two keys.
    """

    nodes: Mapping[bytes, Hosted] = field(default_factory=dict)
    other: Hosted = field(default_factory=Hosted)

    def __post_init__(self) -> None:
        seen = set[str]()
        for hosted in self.nodes.values():
            if twice := seen.intersection(hosted.ids or ()):
                raise ValueError(f"user id {min(twice)!r} is registered for two nodes")
            seen.update(hosted.ids or ())

    @property
    def by_ids(self) -> bool:
        """True if users are registered by id, so that a claim does not depend on the node's other
        users.
        """
        hosted = [*self.nodes.values(), self.other]
        return all(
            one.users == 0 or len(one.ids or ()) in range(1, one.users + 1) for one in hosted
        )

    def held_to(
        self, answers: Mapping[int, RegistryEntry], keys: Mapping[int, bytes], salt: bytes
    ) -> dict[int, RegistryEntry]:
        """The part of nodes' answers that is valid, by node id; their ``keys`` are those that
        Flower verified.

        A user who is registered by id for another key counts nowhere else. A node of a deployment
        has no place of its own, whatever it says.
        """
        names = {
            key: np.array([user_key(user, salt) for user in hosted.ids], dtype=np.uint64)
            for key, hosted in self.nodes.items()
            if hosted.ids is not None
        }
        bound = np.concatenate([np.empty(0, dtype=np.uint64), *names.values()])
        result = {}
        for node, entry in answers.items():
            hosted = self.nodes.get(keys[node], self.other)
            names_U, first_U = np.unique(entry.keys_U, return_index=True)
            mine = names.get(keys[node])
            good_U = ~np.isin(names_U, bound) if mine is None else np.isin(names_U, mine)
            kept = np.sort(first_U[good_U][: hosted.users])  # of too many the smallest names
            counts_U = None if entry.counts_U is None else entry.counts_U[kept]
            result[node] = replace(
                entry, place=-1, places=0, keys_U=entry.keys_U[kept], counts_U=counts_U
            )
        return result


def keys_of(grid: Grid) -> dict[int, bytes]:
    """The public keys of the nodes that are online, by node id."""
    return {node.node_id: bytes(node.public_key) for node in grid.get_nodes()}
