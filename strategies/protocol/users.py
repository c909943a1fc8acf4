"""Users over nodes: which node hosts which users, and gets which of the sampled ones.

The user is the privacy unit, the node only the transport. The registry numbers all users in one
line, in an order that does not depend on how they are grouped into nodes; cohorts are drawn on that
line and only then split by node.

Legend: N users in the registry, U users of a node, S sampled users.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from murmuration.privacy.mechanisms.hold_out import held_out
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import failed_node
from murmuration.strategies.protocol.exchange import exchange
from murmuration.strategies.protocol.registration import Registration, keys_of

#: Takes a node and why it is left out.
Absent = Callable[[int, str], None]


class RegistryError(ValueError):
    """The nodes cannot serve this run; one line that says why and what to do."""


def wait_for_nodes(grid: Grid, least: int, timeout: float) -> None:
    """Wait until at least ``least`` nodes are online; RegistryError if they are not in time."""
    deadline = time.monotonic() + timeout
    while (result := len(list(grid.get_node_ids()))) < least:
        if time.monotonic() > deadline:
            raise RegistryError(
                f"{result} of at least {least} nodes are online after {timeout:g} seconds; start "
                "the others, or lower min-nodes"
            )
        time.sleep(0.5)


@dataclass(frozen=True, eq=False, kw_only=True)
class Registry:
    """All users of a run, in order.

    Attributes:
        nodes: node ids in the order of their users.
        start: offset of each node's first user, one more than nodes.
        keys_N: the 64-bit name of each user, made with ``salt``.
        counts_N: judgements of each user, where public; else None.
        barred_N: entries that may not be asked, bool: users whom several nodes claim to host, who
            would contribute twice what the clip norm allows, and the former place of a user who
            moved. Other users of the same nodes are not affected.
        entries: each node's answer.
        salt: of the names.
    """

    nodes: tuple[int, ...]
    start: np.ndarray
    keys_N: np.ndarray
    counts_N: np.ndarray | None
    barred_N: np.ndarray | None = None
    entries: Mapping[int, messages.RegistryEntry] = field(default_factory=dict)
    salt: bytes = b""

    @classmethod
    def ask(
        cls,
        grid: Grid,
        source: Randomness,
        *,
        counts: bool = False,
        timeout: float = 3600.0,
        absent: Absent | None = None,
        former: "Registry | None" = None,
        slow: set[int] | None = None,
        registration: Registration | None = None,
        beyond: Absent | None = None,
        **prepared: Any,
    ) -> "Registry":
        """Ask every node of the grid for its users; nodes compute their users' features meanwhile.

        ``counts`` asks for numbers of judgements, only if the adjacency makes them public; what
        nodes are to be ``prepared`` for is as of ``messages.registry_request``.

        With ``absent``, nodes may come and go: one that fails is left out, and reported to it. A
        node of a ``former`` registry that does not answer stays in, except for users whom another
        node hosts now; ``slow`` nodes alone are not waited for, and a node that answers is removed
        from ``slow``.

        With ``registration`` a node's answer counts only as far as the node was registered for it;
        the excess is reported to ``beyond``. Without it, nodes are believed: those of a simulation,
        which know their number; all are waited for, and none may fail.

        Raises:
            RunAborted: the owner of a node refuses, and no node may be left out; or all owners do.
            RegistryError: a node failed to answer, or there is no user at all.
        """
        salt = source.key("registry salt")
        request = messages.registry_request(salt, counts, **prepared)
        keys = {} if registration is None else keys_of(grid)
        node_ids = list(grid.get_node_ids()) if registration is None else list(keys)
        outgoing = [messages.outgoing(request, "query.registry", node) for node in node_ids]
        entries: dict[int, messages.RegistryEntry] = {}
        slow, failures = set() if slow is None else slow, list[str]()
        for reply in exchange(grid, outgoing, timeout, slow):
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    reason = str(reply.error.reason)
                    if absent is None and messages.OWNER_REFUSES in reason:
                        raise failed_node(reason, simulated=False, node=node)
                    plain = reason.removeprefix("InputError: ")
                    alone = registration is None and plain != reason  # no node of anybody's
                    raise RegistryError(plain if alone else f"a node did not register: {plain}")
                entries[node] = messages.read_registry(reply.content)
                slow.discard(node)
            except ValueError as error:
                if absent is None:
                    raise
                absent(node, str(error))
                failures.append(str(error))
        refusals = [why for why in failures if messages.OWNER_REFUSES in why]
        if refusals and len(refusals) == len(node_ids) and former is None:
            raise failed_node(refusals[0], simulated=False)
        if registration is not None:
            entries = _held_to(registration, entries, keys, salt, beyond)
        missing = [node for node in node_ids if node not in entries]
        there = [*entries.values(), *(former.entries.values() if former else ())]
        if failures and there and all(entry.places > 0 for entry in there):
            raise RegistryError(failures[0])  # a simulation
        if missing and absent is None:
            raise RegistryError(
                f"{len(missing)} of {len(node_ids)} nodes did not answer in time: busy, or "
                "the setting timeout is too short"
            )
        places = max((entry.places for entry in entries.values()), default=0)
        if absent is None and places > len(node_ids):
            # They start one after the other; without all of them users are missing.
            wait_for_nodes(grid, places, timeout)
            return cls.ask(grid, source, counts=counts, timeout=timeout, **prepared)
        return cls.of(entries, {} if former is None else former.entries, salt)

    @classmethod
    def of(
        cls,
        now: Mapping[int, messages.RegistryEntry],
        before: Mapping[int, messages.RegistryEntry] = MappingProxyType({}),
        salt: bytes = b"",
    ) -> "Registry":
        """The registry of the given answers, by node id, and of those ``before`` it of nodes that
        give none now; see ``ask``. All of them were asked with ``salt``.
        """
        entries = {**before, **now}

        # Where nodes have no place of their own, the smallest user name is one that stays.
        def order(node: int) -> tuple[int, int]:
            entry = entries[node]
            return entry.place, int(entry.keys_U.min()) if len(entry.keys_U) else 0

        nodes = sorted(entries, key=order)
        sizes = [len(entries[node].keys_U) for node in nodes]
        if sum(sizes) == 0:
            raise RegistryError(
                "no users: none of the nodes hosts anybody, or anybody whom it is registered for; "
                "check --data"
            )
        if all(entries[node].usable == 0 for node in nodes):
            raise RegistryError(
                "nothing to learn from: every row of --data was left out, for the reason said above"
            )
        keys_N = np.concatenate([entries[node].keys_U for node in nodes])
        now_N = np.repeat([node in now for node in nodes], sizes)
        _, inverse_N = np.unique(keys_N, return_inverse=True)
        claims_N = np.bincount(inverse_N, weights=now_N)[inverse_N]  # of nodes that answer now
        former_N = np.bincount(inverse_N, weights=~now_N)[inverse_N]
        barred_N = np.where(now_N, claims_N > 1, claims_N + former_N > 1)
        parts = [entries[node].counts_U for node in nodes]
        known = [part for part in parts if part is not None]
        counts_N = np.concatenate(known) if len(known) == len(parts) else None
        return cls(
            nodes=tuple(nodes),
            start=np.cumsum([0, *sizes]),
            keys_N=keys_N,
            counts_N=counts_N,
            barred_N=barred_N,
            entries=entries,
            salt=salt,
        )

    def __len__(self) -> int:
        return len(self.keys_N)

    def by_node(
        self, users_S: np.ndarray, *, empty: bool = False
    ) -> Iterator[tuple[int, messages.UserSelection]]:
        """Node ids with those of ``users_S`` (ascending) that they host; all, if ``empty``."""
        cuts = np.searchsorted(users_S, self.start)
        for place in np.arange(len(self.nodes)) if empty else np.flatnonzero(np.diff(cuts)):
            mine = users_S[cuts[place] : cuts[place + 1]]
            yield self.nodes[place], messages.UserSelection(self.salt, self.keys_N[mine])

    @property
    def randomized(self) -> bool:
        """True if labels on some node went through randomized response before they reached it."""
        return any(entry.randomized for entry in self.entries.values())

    def with_true_labels(self) -> "Registry":
        """Return this without the nodes whose labels went through randomized response before; all
        of it where the others host nobody.

        How labels are declared is the node's owner's word, and depends on no label.
        """
        true = {node: entry for node, entry in self.entries.items() if not entry.randomized}
        if not any(len(entry.keys_U) for entry in true.values()):
            return self
        return Registry.of(true, salt=self.salt)

    @property
    def simulated(self) -> bool:
        """True if the nodes are those of a simulation, where a failure is always an error."""
        return bool(self.entries) and all(entry.places > 0 for entry in self.entries.values())

    @property
    def single(self) -> np.ndarray:
        """Indices of the users that may be asked, ascending: one node alone hosts each."""
        barred_N = self.barred_N
        return np.arange(len(self)) if barred_N is None else np.flatnonzero(~barred_N)

    def hold_out(self, share: float, key: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Split all users: (users to train on, users held out), both ascending.

        Each user is held out independently at random (``privacy.mechanisms.hold_out``). Drawing a
        fixed share would be wrong: with one user more another could change sides, and neighbouring
        data sets would be trained on users that differ in a swap instead of one added or removed
        user. The number held out is secret, so either number may be zero.
        """
        held_N = held_out(self.keys_N, share, key)
        single = self.single
        return single[~held_N[single]], single[held_N[single]]


def _held_to(
    registration: Registration,
    answers: Mapping[int, messages.RegistryEntry],
    keys: Mapping[int, bytes],
    salt: bytes,
    beyond: Absent | None,
) -> dict[int, messages.RegistryEntry]:
    result = registration.held_to(answers, keys, salt)
    for node, entry in answers.items():
        claimed, counted = len(entry.keys_U), len(result[node].keys_U)
        if beyond and counted < claimed:
            beyond(node, f"{claimed - counted} of {claimed} users it claims are not registered")
    return result
